"""Modules are pytrees: what is a child and what is static, how they are changed, split, cast, named and shown."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, PytreeError, ShapeError
from tessera.frontend.pytree import flatten, leaf_paths, map_leaves, unflatten


class Inner(nn.Module):
    """A module with a tensor, a number and a function."""

    weight: ts.Tensor
    power: float = 2.0
    function: Any = ts.ops.relu

    def __call__(self, x: Any) -> Any:
        return self.function(x * self.weight) ** self.power


class Outer(nn.Module):
    """A module with every kind of container."""

    first: Inner
    several: list[Inner]
    named: dict[str, Any]
    sizes: tuple[int, ...]
    factor: float = nn.leaf(default=0.5)
    missing: ts.Tensor | None = None

    def __call__(self, x: Any) -> Any:
        for one in (self.first, *self.several):
            x = one(x) * self.factor
        return x * self.named["scale"] * self.sizes[0]


def make(power: float = 2.0) -> Outer:
    inner = Inner(ts.array([1.0, 2.0]), power)
    return Outer(inner, [inner, inner], {"scale": ts.array(3.0)}, (4,))


def call_module(model: Any, x: Any) -> Any:
    return model(x)


def total(model: Any, x: Any) -> Any:
    return model(x).astype(ts.f32).sum()


def replace_leaf(leaf: Any) -> float:
    return 1.5


def drop_leaf(leaf: Any) -> None:
    return None


def is_one_of_several(name: str, leaf: Any) -> bool:
    return name.startswith("several")


def test_tensors_are_leaves_and_everything_else_is_the_form() -> None:
    leaves, form = flatten(make())
    paths = [".first.weight", ".several[0].weight", ".several[1].weight", ".named['scale']", ".factor"]
    assert leaf_paths(form) == paths
    assert form == flatten(make())[1]
    assert form != flatten(make(3.0))[1]
    again = unflatten(form, leaves)
    assert (again.sizes, again.first.power, again.missing) == ((4,), 2.0, None)
    assert list(nn.state_dict(make())) == [
        "first.weight", "several.0.weight", "several.1.weight", "named.scale", "factor",
    ]  # fmt: skip


def test_gradients_have_the_form_of_the_module_eagerly_and_under_jit() -> None:
    model, x = make(1.0), ts.array([1.0, 3.0])
    for differentiate in (ts.grad(total), ts.jit(ts.grad(total))):
        gradient = differentiate(model, x)
        assert flatten(gradient)[1] == flatten(model)[1]
        # 12 f^3 w^3 x with w = (1, 2), x = (1, 3) and f = 1/2.
        np.testing.assert_allclose(np.asarray(gradient.factor), 12 * 3 * 0.25 * (1 + 8 * 3), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(gradient.first.weight), 12 * 0.125 * np.array([1, 4 * 3]), rtol=1e-6)


def test_one_compilation_serves_modules_of_one_form_and_another_power_has_its_own() -> None:
    call, x, w = ts.jit(call_module), np.array([1.0, 3.0], np.float32), np.array([1.0, 2.0], np.float32)
    for power in (1.0, 1.0, 3.0):
        np.testing.assert_allclose(np.asarray(call(Inner(ts.asarray(w), power), x)), (x * w) ** power, rtol=1e-6)
    assert call.cache_info().misses == 2


def test_a_transformed_module_keeps_its_children_whatever_they_are() -> None:
    model = map_leaves(replace_leaf, make())
    assert flatten(model)[0] == [1.5] * 5
    assert flatten(map_leaves(drop_leaf, make()))[0] == []
    for other in (copy.deepcopy(make()), pickle.loads(pickle.dumps(map_leaves(replace_leaf, make())))):
        assert flatten(other)[1] == flatten(make())[1]


def test_a_module_is_a_value() -> None:
    model = make()
    with pytest.raises(FrozenInstanceError, match=r"module.replace\(sizes=...\)"):
        model.sizes = (1,)  # pyright: ignore[reportAttributeAccessIssue]
    assert model.replace(sizes=(1,)).sizes == (1,)
    with pytest.raises(ArgumentError, match="has no field `size`") as caught:
        model.replace(size=(1,))
    assert "write `sizes`" in str(caught.value)


def test_what_is_neither_tensor_nor_static_is_refused_by_name() -> None:
    with pytest.raises(PytreeError, match=r"`Outer.sizes` is of type `list`, .* not hashable") as caught:
        flatten(make().replace(sizes=[1, 2]))
    assert "tuple" in str(caught.value)
    with pytest.raises(PytreeError, match=r"`Outer.named` has tensors beside 'relu'"):
        flatten(make().replace(named={"scale": ts.array(1.0), "kind": "relu"}))
    whole = make().replace(named={"scale": ts.array(1)})
    with pytest.raises(DifferentiationError, match=r"named\['scale'\] is \[\] i64"):
        ts.grad(total)(whole, ts.array([1.0, 3.0]))


def test_a_part_is_trained_and_the_rest_stays() -> None:
    model = make(1.0)
    trained, frozen = nn.partition(model, is_one_of_several)
    assert (trained.first.weight, frozen.several[0].weight) == (None, None)

    def loss(trained: Any, frozen: Any, x: Any) -> Any:
        return nn.combine(trained, frozen)(x).sum()

    gradient = ts.grad(loss)(trained, frozen, ts.array([1.0, 3.0]))
    assert len(flatten(gradient)[0]) == 2
    assert flatten(nn.combine(trained, frozen))[1] == flatten(model)[1]
    with pytest.raises(PytreeError, match="each leaf in one of them"):
        nn.combine(model, model)


def test_policies_and_dtypes() -> None:
    layer = nn.Linear.init(ts.random.key(0), 8, 4)
    mixed = nn.with_policy(layer, ts.Training())
    x = ts.ones((2, 8))
    assert mixed(x).dtype is ts.bf16
    gradient = ts.grad(total)(mixed, x)
    assert gradient.module.weight.dtype is ts.f32
    assert {str(one.dtype) for one in flatten(nn.cast(layer, "bf16"))[0]} == {"bf16"}


def test_state_dicts_are_loaded_by_name_and_shape() -> None:
    layer = nn.Linear.init(ts.random.key(0), 3, 2)
    tensors = map_leaves(np.asarray, nn.state_dict(layer, layout="torch"))
    assert tensors["weight"].shape == (2, 3)
    again = nn.load_state_dict(nn.Linear.init(ts.random.key(1), 3, 2), tensors, layout="torch")
    np.testing.assert_array_equal(np.asarray(again.weight), np.asarray(layer.weight))
    with pytest.raises(ShapeError, match=r"`weight` has the shape \[3, 2\], and `weight` of the state dict \[2, 3\]"):
        nn.load_state_dict(layer, tensors)
    with pytest.raises(ArgumentError, match="misses 1 tensors of the module, and has 1") as caught:
        nn.load_state_dict(layer, {"weight": tensors["weight"], "biases": tensors["bias"]}, layout="torch")
    assert "is `bias` there as `biases`?" in str(caught.value)
    alike = {"a": {"b": ts.ones((1,))}, "a.b": ts.zeros((1,))}
    assert nn.load_state_dict(alike, nn.state_dict(alike))["a.b"].tolist() == [0.0]
    assert sorted(nn.state_dict(alike)) == ["['a']['b']", "['a.b']"]


def test_the_summary_counts_every_parameter_and_joins_equal_layers() -> None:
    config = nn.GPTConfig(vocabulary=11, length=8, width=8, depth=3, heads=2)
    model = nn.GPT.init(ts.random.key(0), config)
    table = nn.summary(model)
    assert table.rows[0].count == nn.count_parameters(model) == sum(np.asarray(one).size for one in flatten(model)[0])
    assert "[0] to [2], each" in str(table)
    assert f"{nn.count_parameters(model):,}" in str(table)
    assert "shape" in str(table)
    assert "shape" not in str(nn.summary(model, depth=1))


@pytest.mark.parametrize("name", ["normal", "truncated_normal", "xavier_uniform", "xavier_normal", "kaiming_normal"])
def test_initializers_have_the_deviation_they_promise(name: str) -> None:
    drawn = np.asarray(getattr(nn.initializers, name)(ts.random.key(0), (200, 300)))
    wanted = {
        "normal": 0.02,
        "truncated_normal": 0.02 * 0.879626,  # of a normal distribution within two deviations
        "xavier_uniform": np.sqrt(2 / 500),
        "xavier_normal": np.sqrt(2 / 500),
        "kaiming_normal": np.sqrt(2 / 200),
    }[name]
    # The deviation of 60,000 numbers is known to 1 / sqrt(2 n), and the mean to 1 / sqrt(n).
    assert abs(drawn.std() / wanted - 1) < 4 / np.sqrt(2 * drawn.size)
    assert abs(drawn.mean()) < 4 * wanted / np.sqrt(drawn.size)


def test_orthogonal_matrices() -> None:
    for shape in ((8, 20), (20, 8)):
        drawn = np.asarray(nn.initializers.orthogonal(ts.random.key(0), shape)).astype(np.float64)
        square = drawn @ drawn.T if shape[0] < shape[1] else drawn.T @ drawn
        np.testing.assert_allclose(square, np.eye(8), atol=20 * float(np.finfo(np.float32).eps))
    # The smallest singular value of one key in a million at 1024.
    first, second = (np.linalg.qr(np.random.default_rng(seed).standard_normal((8, 8)))[0] for seed in (0, 1))
    made = nn.initializers.orthogonalize((first * np.geomspace(1e-12, 1.0, 8)) @ second)
    np.testing.assert_allclose(made @ made.T, np.eye(8), atol=8 * 8 * float(np.finfo(np.float64).eps))
