"""Collectives over the name of a batch: the elements of `vmap` are the ranks, against NumPy on the whole array."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, ops
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, TracingError
from tessera.ir.base.arrays import RANK_REDUCTIONS
from tessera.ir.graph.ops import collective

RNG = np.random.default_rng(3)
X, Y, Z = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 8, 8)), RNG.standard_normal((3, 4, 5))


def each(function: Any, *arrays: Any, **more: Any) -> Any:
    return np.asarray(ts.vmap(function, axis_name="i", **more)(*arrays))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "i32", "u8"])
@pytest.mark.parametrize("op", RANK_REDUCTIONS)
def test_a_reduction_is_that_of_the_ranks(op: str, dtype: str) -> None:
    """Bit for bit what as many ranks reduce to, in the dtype of the operand."""
    if op == "mean" and dtype in ("i32", "u8"):
        return
    x = np.asarray(ts.array(np.abs(X * 4).round(), dtype))
    found = each(lambda v: dist.all_reduce(v, "i", op), x)
    expected = np.stack(collective.all_reduce_reference(*x, axis="i", size=(), op=op))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=1e-2 if dtype == "bf16" else 0
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_go_where_ranks_send_them(dim: int) -> None:
    given: dict[str, Any] = {"axis": "i", "size": ()}
    gathered = collective.all_gather_reference(*Y, **given, dim=dim)
    np.testing.assert_array_equal(each(lambda v: dist.all_gather(v, "i", dim), Y), np.stack(gathered))
    scattered = collective.reduce_scatter_reference(*Y, **given, dim=dim)
    np.testing.assert_allclose(each(lambda v: dist.reduce_scatter(v, "i", dim), Y), np.stack(scattered), rtol=1e-13)
    for concat in (0, 1):
        sent = collective.all_to_all_reference(*Y, **given, split=dim, concat=concat)
        found = each(lambda v, concat=concat: dist.all_to_all(v, "i", dim, concat), Y)
        np.testing.assert_array_equal(found, np.stack(sent))


def test_what_all_elements_share_has_no_batch() -> None:
    """A reduction is one value, and may decide for all."""
    np.testing.assert_allclose(each(lambda v: dist.all_reduce(v, "i"), X, out_axes=None), X.sum(0))
    np.testing.assert_array_equal(each(lambda v: dist.axis_index("i"), X), np.arange(4))
    np.testing.assert_array_equal(each(lambda v: dist.all_reduce(ops.ones(()), "i"), X), np.full(4, 4.0))
    chosen = lambda v: ts.cond(dist.all_reduce(v, "i").sum() > 1e9, lambda: v, lambda: dist.all_reduce(v, "i"))  # noqa: E731
    np.testing.assert_allclose(each(chosen, X), np.broadcast_to(X.sum(0), X.shape))
    with pytest.raises(DifferentiationError, match="one has an effect"):
        each(lambda v: ts.cond(v.sum() > 0, lambda: dist.all_reduce(v, "i"), lambda: v), X)


def test_bodies_of_loops_may_name_the_batch() -> None:
    total = lambda v: ts.scan(lambda c, x: (c + dist.all_reduce(x, "i"), ()), ops.zeros((), ts.f64), v)[0]  # noqa: E731
    np.testing.assert_allclose(each(total, X), np.full(4, X.sum()))
    count = lambda v: ts.fori_loop(0, 3, lambda i, c: c + dist.axis_index("i"), 0) + v.sum().cast(ts.i64) * 0  # noqa: E731
    np.testing.assert_array_equal(each(count, X), 3 * np.arange(4))


def test_names_nest_and_the_inner_one_shadows() -> None:
    inner = ts.vmap(lambda v: v / dist.all_reduce(v, "i") + dist.all_reduce(v, "j", "max"), axis_name="j")
    np.testing.assert_allclose(each(inner, Z), Z / Z.sum(0) + Z.max(1, keepdims=True), rtol=1e-13)
    same = ts.vmap(lambda v: dist.all_reduce(v, "i"), axis_name="i")
    np.testing.assert_allclose(each(same, Z), np.broadcast_to(Z.sum(1, keepdims=True), Z.shape), rtol=1e-13)


def test_gradients_through_a_named_batch() -> None:
    """The transpose of a sum over ranks is that sum of the cotangents, as on ranks: both orders agree."""
    one = lambda v: (ops.sin(v) * dist.all_reduce(v * v, "i")).sum()  # noqa: E731
    expected = np.cos(X) * (X * X).sum(0) + 2 * X * np.sin(X).sum(0)
    np.testing.assert_allclose(each(ts.grad(one), X), expected, rtol=1e-12)
    whole = ts.grad(lambda x: ts.vmap(one, axis_name="i")(x).sum())(X)
    np.testing.assert_allclose(np.asarray(whole), expected, rtol=1e-12)


def test_a_program_over_a_named_batch_has_no_collective() -> None:
    @ts.jit
    def normalize(x: ts.Tensor["B", "D", ts.f64]):
        return ts.vmap(lambda v: v - dist.all_reduce(v, "i", "mean"), axis_name="i")(x)

    for size in (1, 4):
        np.testing.assert_allclose(np.asarray(normalize(X[:size])), X[:size] - X[:size].mean(0), atol=1e-15)
    assert str(normalize.effects) == "pure"


def test_unknown_names_say_which_there_are() -> None:
    with pytest.raises(TracingError, match="mesh axis `k`, and there is no such axis") as caught:
        each(ts.vmap(lambda v: dist.all_reduce(v, "k"), axis_name="j"), Z)
    assert "axes of `vmap` around it are `i`, `j`" in str(caught.value)
    with pytest.raises(ArgumentError, match="`axis_name` as a string, got 3"):
        ts.vmap(lambda v: v, axis_name=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TracingError, match="no such axis"):
        ts.jit(lambda x: (ts.vmap(lambda v: v, axis_name="i")(x), dist.all_reduce(x, "i")))(X)
