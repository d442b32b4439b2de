"""Sizes in return annotations: proved, refuted with sizes that a call may have, or guarded."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, ops
from tessera.diagnostics.codes import GuardError, ShapeError


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def jit(function: Any = None, **options: Any) -> Any:
    return ts.jit(function, backend="reference", **options)


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(ShapeError) as caught:
        function(*arguments)
    assert caught.value.span is not None
    return str(caught.value)


def test_names_arithmetic_and_numbers_that_hold_cost_nothing() -> None:
    @jit(constraints=["D = H*Dh"], static_argnames=("H",))
    def heads(x: Tensor["B", "D", f32], H: int) -> Tensor["B", "H", "Dh", f32]:
        return x.reshape(x.shape[0], H, x.shape[1] // H)

    @jit
    def flat(x: Tensor["B", "S", f32]) -> Tensor["B*S", f32]:
        return x.reshape(-1)

    @jit
    def longer(x: Tensor["N", f32]) -> Tensor["N + 2", f32]:
        return ops.pad(x, ((1, 1),))

    @jit
    def turned(x: Tensor["B", "S", f32]) -> tuple[Tensor["S", "B", f32], Tensor["N", f32], Tensor["N", "_", f32]]:
        return x.T, x.sum(0), x.T

    assert heads(zeros(2, 8), 4).shape == (2, 4, 2)
    assert flat(zeros(2, 8)).shape == (16,)
    assert longer(zeros(3)).shape == (5,)
    assert [one.shape for one in turned(zeros(2, 3))] == [(3, 2), (3,), (3, 2)]
    for function, arguments in ((flat, [zeros(2, 8)]), (longer, [zeros(3)]), (turned, [zeros(2, 3)])):
        assert not function.trace(*arguments).tape.guards


def test_sizes_that_rules_exclude_refute_nothing() -> None:
    """`2 * (S // 2)` is `S` where S is even; without the rule there is an S for which it is not."""

    def halves(x: Tensor["B", "S", f32]) -> Tensor["B", "S", f32]:
        half = x[:, : x.shape[1] // 2]
        return ops.concat([half, half], axis=1)

    even = jit(halves, constraints=["S % 2 == 0"])
    assert even(zeros(2, 4)).shape == (2, 4)
    with pytest.raises(GuardError, match="S % 2 == 0"):
        even(zeros(2, 5))
    assert "with S = 3 it is 2, not 3" in refused(jit(halves), zeros(2, 4))


def test_a_number_where_a_free_dim_is_and_a_free_dim_where_a_number_is() -> None:
    @jit
    def fixed(x: Tensor["B", f32]) -> Tensor[4, f32]:
        return x + 1.0

    @jit
    def other(x: Tensor["B", f32], n: int) -> Tensor["n", f32]:
        return ops.concat([x.sum(keepdims=True), x.sum(keepdims=True)], axis=0)

    assert "declared `4`" in refused(fixed, zeros(4))
    assert other(zeros(4), 2).shape == (2,)
    assert "`result.shape[0] = 2`, and is declared `n`" in refused(other, zeros(4), 3)


def test_equal_sizes_by_an_op_before_are_equal() -> None:
    @jit
    def f(x: Tensor["S", f32], y: Tensor["T", f32]) -> Tensor["S", f32]:
        return (x + y) * 0.0 + y

    @jit
    def g(x: Tensor["S", f32], y: Tensor["T", f32]) -> Tensor["S", f32]:
        return y * 2.0

    assert f(zeros(3), zeros(3)).shape == (3,)
    text = refused(g, zeros(3), zeros(3))
    assert "`result.shape[0] = T`, and is declared `S`" in text
    assert "`S` is `x.shape[0]`" in text


def test_sizes_without_a_name_are_for_the_call_to_decide() -> None:
    @jit(dynamic=True)
    def f(x: Any) -> Tensor[4, "N", f32]:
        return x * 2.0

    assert f(zeros(4, 3)).shape == (4, 3)
    with pytest.raises(GuardError, match="declared 4"):
        f(zeros(3, 3))


def test_a_function_that_is_called_by_another_keeps_its_word_too() -> None:
    @jit
    def inner(x: Tensor["B", "S", f32]) -> Tensor["S", "B", f32]:
        return x + 1.0

    @jit
    def outer(x: Tensor["M", "K", f32]) -> Any:
        return inner(x)

    @jit
    def square(x: Tensor["M", "M", f32]) -> Any:
        return inner(x)

    text = refused(outer, zeros(2, 2))
    assert "`result.shape[0] = M`, and is declared `S`" in text
    assert 'declare the returned `Tensor["B", "S", f32]`' in text
    assert square(zeros(2, 2)).shape == (2, 2)


def test_tensors_from_outside_and_names_that_look_like_coordinates() -> None:
    @jit
    def outside(x: Tensor["N", f32]) -> Tensor["N", f32]:
        return ts.zeros(4)

    @jit
    def turned(x: Tensor["d0", "m1", f32]) -> Tensor["m1", "d0", f32]:
        return x * 2.0

    assert "`result.shape[0] = 4`, and is declared `N`" in refused(outside, zeros(4))
    assert 'declare the returned `Tensor["d0", "m1", f32]`' in refused(turned, zeros(2, 2))
