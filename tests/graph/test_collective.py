"""Collectives over simulated ranks, and their shapes on symbolic axis sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, round_as
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, bool_, f32, i32
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, registry, tensor

DP = Dim.symbol("dp")


def ranks(count: int, *shape: int) -> list[Array]:
    return [np.random.default_rng(rank).standard_normal(shape).astype(np.float32) for rank in range(count)]


def simulate(name: str, arrays: list[Array], **attributes: Any) -> tuple[Array, ...]:
    """Every rank's result."""
    spec = registry()[name]
    assert spec.reference is not None
    filled = spec.with_defaults({"axis": "dp", "size": (Dim.constant(len(arrays)),), **attributes})
    found = spec.reference(*arrays, **filled)
    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
def test_collectives_equal_numpy(count: int) -> None:
    xs = ranks(count, 4, 8)
    for out in simulate("all_reduce", xs):
        np.testing.assert_allclose(out, np.sum(xs, 0), rtol=1e-6, atol=1e-6)
    for out in simulate("all_reduce", xs, op="max"):
        np.testing.assert_array_equal(out, np.max(xs, 0))
    for out in simulate("all_reduce", xs, op="mean"):
        np.testing.assert_allclose(out, np.mean(xs, 0), rtol=1e-6, atol=1e-6)
    for rank, out in enumerate(simulate("reduce_scatter", xs, op="mean")):
        np.testing.assert_allclose(out, np.split(np.mean(xs, 0), count)[rank], rtol=1e-6, atol=1e-6)
    for out in simulate("all_gather", xs, dim=1):
        np.testing.assert_array_equal(out, np.concatenate(xs, 1))
    for rank, out in enumerate(simulate("reduce_scatter", xs, dim=1)):
        wanted = np.split(np.sum(xs, 0), count, 1)[rank]
        np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)
    for rank, out in enumerate(simulate("all_to_all", xs, split=1, concat=0)):
        np.testing.assert_array_equal(out, np.concatenate([np.split(x, count, 1)[rank] for x in xs], 0))


def test_all_to_all_undoes_itself_and_scatter_then_gather_is_reduce() -> None:
    xs = ranks(4, 4, 8)
    there = list(simulate("all_to_all", xs, split=1, concat=0))
    for out, x in zip(simulate("all_to_all", there, split=0, concat=1), xs, strict=True):
        np.testing.assert_array_equal(out, x)
    parts = list(simulate("reduce_scatter", xs))
    for left, right in zip(simulate("all_gather", parts), simulate("all_reduce", xs), strict=True):
        np.testing.assert_array_equal(left, right)


def test_narrow_floats_reduce_in_f32_and_round_once() -> None:
    xs = [round_as([256.0], bf16)] + [round_as([0.5], bf16)] * 8
    assert float(simulate("all_reduce", xs)[0][0]) == 260.0
    # 260 / 9 = 28.888..., and not the nearest bf16 to 260 divided and rounded again.
    assert float(simulate("all_reduce", xs, op="mean")[0][0]) == float(round_as([260.0 / 9], bf16)[0])


def test_shapes_follow_the_mesh_axis() -> None:
    rules = Rules()
    x = tensor("B", 64, dtype=f32)
    mesh: dict[str, Any] = {"axis": "dp", "size": (DP,), "rules": rules}
    assert str(infer("all_reduce", x, **mesh)[0]) == "[B, 64] f32"
    assert str(infer("all_gather", x, dim=0, **mesh)[0]) == "[B*dp, 64] f32"
    assert not rules.guards
    assert str(infer("reduce_scatter", x, dim=1, **mesh)[0]) == "[B, (64 floordiv dp)] f32"
    assert len(rules.guards) == 1
    gathered = infer("all_gather", x, dim=0, **mesh)[0]
    assert infer("reduce_scatter", gathered, dim=0, **mesh)[0] == x
    assert str(infer("all_to_all", gathered, split=0, concat=1, **mesh)[0]) == "[B, 64*dp] f32"


def test_collectives_have_an_effect() -> None:
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert registry()[name].effects == {"collective"}


def test_collectives_say_what_is_wrong() -> None:
    mesh: dict[str, Any] = {"axis": "tp", "size": (Dim.constant(4),)}
    with pytest.raises(RuleError, match=r"divides `x.shape\[0\] = 6` among the 4 ranks of `tp`"):
        infer("reduce_scatter", tensor(6, dtype=f32), **mesh)
    with pytest.raises(RuleError, match="reduces with sum, prod, max, min"):
        infer("all_reduce", tensor(6, dtype=f32), op="median", **mesh)
    with pytest.raises(RuleDTypeError, match="numbers"):
        infer("all_reduce", tensor(6, dtype=bool_), **mesh)
    with pytest.raises(RuleDTypeError, match="means of floats, got i32"):
        infer("all_reduce", tensor(6, dtype=i32), **mesh, op="mean")
    with pytest.raises(RuleError, match="name of a mesh axis"):
        infer("all_gather", tensor(6, dtype=f32), axis="", size=(DP,))
    with pytest.raises(RuleError, match="no axis 1"):
        infer("all_gather", tensor(6, dtype=f32), dim=1, **mesh)
    with pytest.raises(ValueError, match="4 ranks, got the arrays of 2"):
        simulate("all_reduce", ranks(2, 3), size=(Dim.constant(4),))
