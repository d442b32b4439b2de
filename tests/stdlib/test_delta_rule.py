"""The gated delta rule in chunks: the recurrence in f64, its derivatives, and the kernels that it is made of."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.stdlib.delta_rule import chain, invert_triangles
from tests.stdlib.slopes import check_gradients, compare, normal

ROUNDINGS = [(np.float32, 2.0**-17), (np.float16, 2.0**-8), (ml_dtypes.bfloat16, 2.0**-5)]


def recur(q: Any, k: Any, v: Any, beta: Any, g: Any = None) -> Any:
    """Row after row, in f64."""
    q, k, v, beta = (np.asarray(x).astype(np.float64) for x in (q, k, v, beta))
    q, k = (np.repeat(x, v.shape[1] // x.shape[1], axis=1) for x in (q, k))
    g = np.zeros_like(beta) if g is None else np.asarray(g).astype(np.float64)
    state, rows = np.zeros((*v.shape[:2], q.shape[-1], v.shape[-1])), list[Any]()
    for t in range(v.shape[2]):
        state = state * np.exp(g[:, :, t])[..., None, None]
        seen = np.einsum("bhk,bhkv->bhv", k[:, :, t], state)
        state = state + k[:, :, t, :, None] * (beta[:, :, t, None] * (v[:, :, t] - seen))[:, :, None, :]
        rows.append(np.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return np.stack(rows, axis=2)


def operands(length: int, heads: int = 2, groups: int = 2, dtype: Any = np.float32) -> list[Any]:
    q, k = (normal(1, groups, length, 8) for _ in range(2))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    beta = 1 / (1 + np.exp(-normal(1, heads, length)))
    rows = [x.astype(dtype) for x in (q, k, normal(1, heads, length, 16))]
    return [*rows, beta, -np.abs(normal(1, heads, length)) * 0.1]


@pytest.mark.parametrize(("dtype", "step"), ROUNDINGS, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("length", [1, 64, 150])
def test_chunks_equal_the_recurrence(dtype: Any, step: float, length: int) -> None:
    given = operands(length, 4, 2, dtype)
    compare(ts.ops.gated_delta_rule(*given), recur(*given), step)
    compare(ts.ops.gated_delta_rule(*given[:4]), recur(*given[:4]), step)


def test_keys_that_are_alike_lose_no_digits() -> None:
    """Powers of the matrix between them have entries of 1e17: substitution does not compute any."""
    q, k, v, _, _ = operands(130)
    k = np.broadcast_to(k[:, :, :1], k.shape).copy()
    beta = np.ones((1, 2, 130), np.float32)
    compare(ts.ops.gated_delta_rule(q, k, v, beta), recur(q, k, v, beta), 2.0**-17)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_are_slopes_of_the_recurrence(groups: int) -> None:
    check_gradients(ts.ops.gated_delta_rule, recur, *operands(100, 2, groups))


@pytest.mark.parametrize("least", [-80.0, -150.0, -1e4, -1e6, -np.inf])
def test_a_decay_of_nothing_resets_the_state(least: float) -> None:
    given = operands(150)
    given[4][..., 20::40] = least
    compare(ts.ops.gated_delta_rule(*given), recur(*given), 2.0**-13)
    check_gradients(ts.ops.gated_delta_rule, recur, *given, rtol=1e-3)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_chain_and_its_adjoint(reverse: bool) -> None:
    added, moved, decay = normal(1, 2, 5, 8, 8), normal(1, 2, 5, 8, 8) * 0.2, np.abs(normal(1, 2, 5)) * 0.5

    def exact(added: Any, moved: Any, decay: Any) -> Any:
        state, found = np.zeros_like(added[:, :, 0]), list[Any]()
        for c in range(5)[::-1] if reverse else range(5):
            found.append(state)
            matrix = moved[:, :, c] if reverse else np.swapaxes(moved[:, :, c], -1, -2)
            state = state * decay[:, :, c, None, None] - state @ matrix + added[:, :, c]
        return np.stack(found[::-1] if reverse else found, axis=2)

    compare(chain(added, moved, decay, reverse), exact(added, moved, decay), 2.0**-18)
    check_gradients(lambda *x: chain(*x, reverse), exact, added, moved, decay)


def test_inverses_of_triangles() -> None:
    m = np.tril(normal(2, 3, 64, 64), -1) * 0.2
    compare(invert_triangles(m), np.linalg.inv(np.eye(64) + m.astype(np.float64)), 2.0**-18)

    def exact(x: Any) -> Any:
        return np.asarray(np.linalg.inv(np.eye(64) + np.tril(np.asarray(x), -1)))

    def found(x: Any) -> Any:
        return invert_triangles(ts.ops.tril(x, -1))

    check_gradients(found, exact, m)


def test_a_batch_and_other_heads_change_no_bit() -> None:
    given = [np.concatenate([x, -x, x * 0.5]) for x in operands(100)]
    whole = np.asarray(ts.ops.gated_delta_rule(*given))
    alone = np.asarray(ts.ops.gated_delta_rule(*(x[1:2] for x in given)))
    np.testing.assert_array_equal(whole[1:2], alone)


def test_calls_that_do_not_fit_are_refused() -> None:
    q, k, v, beta, _ = operands(5)
    with pytest.raises(ts.TesseraError, match="its `S` is 4, and that of `q` is 5"):
        ts.ops.gated_delta_rule(q, k, v, beta[:, :, :4])
    with pytest.raises(ts.TesseraError, match="are not shared evenly"):
        ts.ops.gated_delta_rule(q, k, v[:, :1], beta[:, :1])


def test_a_symbolic_length_is_refused_by_name() -> None:
    @ts.jit
    def program(q: ts.Tensor["B", "H", "S", 8, ts.f32], beta: ts.Tensor["B", "H", "S", ts.f32]) -> Any:
        return ts.ops.gated_delta_rule(q, q, q, beta)

    q, _, _, beta, _ = operands(5)
    with pytest.raises(ts.TesseraError, match="`gated_delta_rule` takes sequences of a known length, got `S` of S"):
        program(q, beta)
