"""A jitted function inside of another: what it declares of shapes, dtypes, numerics and results holds there too."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DTypeError, GuardError, RuntimeArgumentError, ShapeError, SpecializationError


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@ts.jit
def eight(x: ts.Tensor["N", 8, ts.f32]) -> Any:
    return x * 2


@ts.jit
def pair(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]) -> Any:
    return x.sum() + y.sum()


@ts.jit
def twice(x: ts.Tensor["N", ts.f32], y: ts.Tensor["2 * N", ts.f32]) -> Any:
    return x.sum() + y.sum()


@ts.jit
def narrow(x: Any) -> ts.Tensor["N", ts.bf16]:
    return x * 2


@ts.jit
def plain(x: Any, y: Any) -> Any:
    return x + y


@ts.jit
def by(x: ts.Tensor["N", ts.f32], factor: ts.Tensor[ts.f32]) -> Any:
    return x * factor


@ts.jit
def saturating(x: ts.Tensor["N", ts.i8 @ ts.saturate]) -> Any:
    return x + x


def test_ranks_sizes_and_dtypes() -> None:
    call = ts.jit(lambda x: eight(x) + 1)
    assert np.asarray(call(ones(3, 8))).tolist() == [[3.0] * 8] * 3
    for given, error, words in (
        (ones(3, 7), ShapeError, r"`x.shape\[1\]` must be 8, got 7"),
        (ones(8), ShapeError, "`x` must have 2 dims, got 1"),
        (ones(3, 8).astype(np.float64), DTypeError, "`x` must be f32, got f64"),
    ):
        with pytest.raises(error, match=words) as caught:
            call(given)
        assert caught.value.span is not None
        assert "eight(x)" in caught.value.span.source_line
        assert any('it is declared Tensor["N", 8, f32]' in note for note in caught.value.notes)
        assert caught.value.fix


def test_arguments_that_are_missing_or_no_tensors_are_refused_as_in_a_call_from_outside() -> None:
    for call, words in (
        (lambda x: pair(x), "missing a required argument: `y`"),
        (lambda x: pair(x, 3), "`y` must be a tensor, got int"),
        (lambda x: pair(x, "3"), "`y` must be a tensor, got str"),
        (lambda x: pair(x, (x, x)), "`y` must be a tensor, got tuple"),
        (lambda x: plain(x), "missing a required argument: `y`"),
    ):
        with pytest.raises(RuntimeArgumentError, match=words) as caught:
            ts.jit(call)(ones(3))
        assert caught.value.fix
        assert caught.value.span is not None
        assert caught.value.span.file == __file__


def test_a_name_that_is_no_parameter_is_told_where_another_is_missing() -> None:
    with pytest.raises(RuntimeArgumentError, match="missing a required argument: `y`") as caught:
        pair(ones(3), why=ones(3))
    assert caught.value.notes == ("unexpected argument `why`",)
    with pytest.raises(RuntimeArgumentError, match="missing a required argument: `y`") as caught:
        pair(ones(3))
    assert caught.value.notes == ()


def test_a_number_is_a_scalar_where_one_is_declared() -> None:
    scaled = ts.jit(lambda x: by(x, 3) + by(x, x.shape[0]))
    assert np.asarray(scaled(ones(2))).tolist() == [5.0, 5.0]


def test_one_name_is_one_size() -> None:
    with pytest.raises(ShapeError, match=r"`y.shape\[0\]` must be 3, got 4"):
        ts.jit(lambda x, y: pair(x, y))(ones(3), ones(4))
    free = ts.jit(lambda x, y: pair(x, y), dynamic=True)
    assert float(np.asarray(free(ones(3), ones(3)))) == 6
    assert float(np.asarray(free(ones(0), ones(0)))) == 0
    with pytest.raises(GuardError, match="must be equal"):
        free(ones(3), ones(4))


def test_arithmetic_of_names() -> None:
    call = ts.jit(lambda x, y: twice(x, y))
    assert float(np.asarray(call(ones(3), ones(6)))) == 9
    with pytest.raises(ShapeError, match=r"`y.shape\[0\]` must be 6, got 5"):
        call(ones(3), ones(5))


def test_a_declared_size_does_not_fix_a_free_one() -> None:
    def outer(x: ts.Tensor["B", "D", ts.f32]) -> Any:
        return eight(x)

    with pytest.raises(SpecializationError, match="`D` is declared symbolic, but this op specializes it to 8"):
        ts.jit(outer)(ones(3, 8))


def test_results() -> None:
    with pytest.raises(DTypeError, match="`result` is f32, and is declared bf16"):
        ts.jit(lambda x: narrow(x))(ones(3))
    assert ts.jit(lambda x: narrow(x.cast(ts.bf16)))(ones(3)).dtype is ts.bf16


def test_requirements_name_the_sizes_of_their_own_function() -> None:
    @ts.jit
    def few(x: ts.Tensor["K", ts.f32]) -> Any:
        ts.require("K <= 8")
        return x * 2

    @ts.jit
    def outer(K: ts.Tensor["N", ts.f32], other: ts.Tensor["K", ts.f32]) -> Any:
        few(K)
        ts.require("K >= 2")  # the size of `other` again
        return other + 1

    assert np.asarray(outer(ones(8), ones(20))).shape == (20,)
    with pytest.raises(GuardError, match="`K <= 8` must hold"):
        outer(ones(9), ones(20))
    with pytest.raises(GuardError, match="`K >= 2` must hold"):
        outer(ones(8), ones(1))


def test_policies_of_types_hold_inside_and_end_there() -> None:
    x = np.array([100, -100, 3], np.int8)
    assert np.asarray(ts.jit(lambda x: saturating(x))(x)).tolist() == [127, -128, 6]
    inside, outside = ts.jit(lambda x: (saturating(x), saturating(x) + x))(x)
    assert np.asarray(inside).tolist() == [127, -128, 6]
    assert np.asarray(outside).tolist() == [-29, 28, 9], "wraps, as it does when the two are called one by one"
    assert np.asarray(saturating(x) + ts.array(x)).tolist() == [-29, 28, 9]

    @ts.jit
    def outer(x: ts.Tensor["N", ts.i8 @ ts.saturate]) -> Any:
        return saturating(x) + x

    assert np.asarray(outer(x)).tolist() == [127, -128, 9]


def test_defaults_containers_and_bodies() -> None:
    @ts.jit
    def masked(x: ts.Tensor["N", ts.f32], scale: float = 2.0, more: Any = None) -> Any:
        return x * scale if more is None else x + more["w"]

    @ts.jit
    def layer(x: Any, weights: dict[str, ts.Tensor["D", "D", ts.f32]]) -> Any:
        return x @ weights["w"]

    assert np.asarray(ts.jit(lambda x: masked(x))(ones(2))).tolist() == [2.0, 2.0]
    assert np.asarray(ts.jit(lambda x: masked(x, more={"w": x}))(ones(2))).tolist() == [2.0, 2.0]
    assert np.asarray(ts.jit(lambda x, w: layer(x, {"w": w}))(ones(2, 3), ones(3, 3))).tolist() == [[3.0] * 3] * 2
    with pytest.raises(ShapeError, match=r"`weights\['w'\].shape\[1\]` must be 3, got 4"):
        ts.jit(lambda x, w: layer(x, {"w": w}))(ones(2, 3), ones(3, 4))
    looped = ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, x: eight(x), x))
    assert np.asarray(looped(ones(1, 8))).tolist() == [[8.0] * 8]
    with pytest.raises(ShapeError, match="must be 8, got 2"):
        ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, x: eight(x), x))(ones(1, 2))
    constant = ts.array(ones(3, 8))
    assert np.asarray(ts.jit(lambda x: ops.sum(eight(constant)) + x)(ones(1))).tolist() == [49.0]


def test_an_argument_that_is_returned_as_it_is_has_a_place_in_the_error() -> None:
    def same(x: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.bf16]:
        return x  # pyright: ignore[reportReturnType]

    with pytest.raises(DTypeError, match="is declared bf16") as caught:
        ts.jit(same)(ones(3))
    assert caught.value.span is not None
