"""Control flow: the same results in a trace, outside one, and in plain Python."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DTypeError, PytreeError, ShapeError

F32 = np.float32


def run(function: Any, *arguments: Any) -> Any:
    return ts.jit(backend="reference")(function)(*arguments)


def numbers(value: Any) -> Any:
    return np.asarray(value).tolist()


def test_cond_runs_one_branch_with_what_both_capture() -> None:
    def f(x: Any, limit: Any) -> Any:
        doubled = x * 2
        return ts.cond(x.sum() > limit, lambda v: {"y": v + doubled}, lambda v: {"y": v - limit}, x)

    x = np.arange(3, dtype=F32)
    assert numbers(run(f, x, F32(1))["y"]) == [0.0, 3.0, 6.0]
    assert numbers(run(f, x, F32(9))["y"]) == [-9.0, -8.0, -7.0]


def test_cond_on_a_python_bool_is_python() -> None:
    assert ts.cond(True, lambda: 1, lambda: 2) == 1


def test_branches_must_agree() -> None:
    x = np.zeros(3, F32)
    with pytest.raises(PytreeError, match="different forms"):
        run(lambda v: ts.cond(v.sum() > 0, lambda: v, lambda: (v, v)), x)
    with pytest.raises(DTypeError, match="one dtype"):
        run(lambda v: ts.cond(v.sum() > 0, lambda: v, lambda: v > 0), x)
    with pytest.raises(ShapeError, match="one shape"):
        run(lambda v: ts.cond(v.sum() > 0, lambda: v, lambda: v[:2]), x)
    with pytest.raises(ShapeError, match="scalar of bool"):
        run(lambda v: ts.cond(v > 0, lambda: v, lambda: v), x)


def test_while_loop() -> None:
    def f(x: Any) -> Any:
        step = x * 2
        return ts.while_loop(lambda s: s["n"] < 5, lambda s: {"n": s["n"] + 1, "v": s["v"] + step}, {"n": 0, "v": x})

    out = run(f, np.ones(2, F32))
    assert (int(out["n"]), numbers(out["v"])) == (5, [11.0, 11.0])


def test_the_state_keeps_its_type() -> None:
    with pytest.raises(DTypeError, match="before and after"):
        run(lambda x: ts.while_loop(lambda v: v.sum() < 9, lambda v: v.cast(ts.f64), x), np.ones(2, F32))
    with pytest.raises(PytreeError, match="of the form it takes"):
        run(lambda x: ts.while_loop(lambda v: v.sum() < 9, lambda v: (v, v), x), np.ones(2, F32))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_fori_loop_counts_to_a_free_dim(count: int) -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.fori_loop(0, x.shape[0], lambda i, total: total + i, 0)

    assert int(f(np.zeros(count, F32))) == sum(range(count))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_scan_stacks_what_each_step_gives(count: int, reverse: bool) -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        bias = x.sum()
        return ts.scan(lambda s, v: (s + v, {"y": s * 2 + bias}), ts.ops.zeros(()), x, reverse=reverse)

    x = np.arange(count, dtype=F32) + 1
    total, ys = f(x)
    state, expected = 0.0, [0.0] * count
    for at in reversed(range(count)) if reverse else range(count):
        expected[at] = state * 2 + float(x.sum())
        state += float(x[at])
    assert float(total) == state
    assert numbers(ys["y"]) == expected


def test_scan_without_inputs_needs_a_length() -> None:
    _, ys = run(lambda x: ts.scan(lambda s, _: (s * 2, s), x, length=3), F32(1))
    assert numbers(ys) == [1.0, 2.0, 4.0]
    with pytest.raises(ShapeError, match="or `length`"):
        run(lambda x: ts.scan(lambda s, _: (s, s), x), F32(1))


def test_loops_nest_and_see_tensors_two_levels_out() -> None:
    outside = np.float32(10)

    def f(x: Any) -> Any:
        def outer(i: Any, total: Any) -> Any:
            return ts.fori_loop(0, 2, lambda j, inner: inner + x.sum() + outside + i.cast(ts.f32), total)

        return ts.fori_loop(0, 3, outer, 0.0)

    assert float(run(f, np.ones(2, F32))) == 6 * 12 + 2 * (0 + 1 + 2)


def test_effects_of_a_body_are_effects_of_the_function() -> None:
    key = np.zeros(2, np.uint64)
    traced = ts.jit(
        lambda x, k: ts.fori_loop(0, 2, lambda i, v: v + ts.random.uniform(ts.random.fold(k, i), v.shape), x)
    ).trace(np.zeros(3, F32), key)
    assert traced.effects == {"random"}
