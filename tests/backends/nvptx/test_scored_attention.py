"""Attention with functions on tensor cores: what it means, simulated, and that it assembles without spills."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import Array
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.backends.nvptx.matrices import BACKEND, kernels_of
from tests.oracles.nvptx_simulator import simulate

SLOPES, DOCUMENTS = np.array([0.125, 0.5], np.float32), np.repeat(np.arange(4, dtype=np.int32), [90, 5, 65, 40])
NORMS = (1 + np.random.default_rng(3).random(200)).astype(np.float32)
slopes, documents, norms = ts.asarray(SLOPES), ts.asarray(DOCUMENTS), ts.asarray(NORMS)


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 70)


def same_document(b: Any, h: Any, i: Any, j: Any) -> Any:
    return documents[i] == documents[j]


def cap(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return 2.0 * ops.tanh(s / 2.0)


def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s - slopes[h] * (i - j).cast(ts.f32)


def divide(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s / norms[j]  # beyond the last key there is nothing to divide by


CASES: dict[str, tuple[Any, Any]] = {
    "divided": (divide, None),
    "window": (None, window),
    "soft cap": (cap, None),
    "alibi": (alibi, window),
    "documents": (None, same_document),
}


def attend(name: str) -> Any:
    score, mask = CASES[name]
    return lambda q, k, v: ops.attention(q, k, v, mask, score=score)


def differentiate(name: str) -> Any:
    of = attend(name)
    return lambda q, k, v: ts.grad(lambda q, k, v: of(q, k, v).cast(ts.f32).sum(), argnums=(0, 1, 2))(q, k, v)


def library_kernels(function: Any, shapes: Sequence[Sequence[int]]) -> list[SpecOp]:
    """The kernels of attention of a program, on tensor cores."""
    made = [BACKEND.matrix(one) for one in kernels_of(function, shapes) if one.value("kind") == "library"]
    assert all(one is not None for one in made)
    return [one for one in made if one is not None]


@pytest.mark.parametrize("name", CASES)
def test_kernels_on_tensor_cores_mean_attention(name: str) -> None:
    length, head = 200, 64
    rng = np.random.default_rng(0)
    shape = (1, 2, length, head)
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for _ in range(3))
    (made,) = library_kernels(attend(name), [shape] * 3)
    changed, _ = change(name, q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / np.sqrt(head))
    terms = np.exp(changed - changed.max(-1, keepdims=True))
    wanted = terms / terms.sum(-1, keepdims=True) @ v.astype(np.float64)
    buffers = [q, k, v, *ranges_of(changed[0, 0], name), *captured(name), np.full(shape, np.nan, ml_dtypes.bfloat16)]
    for at, argument in enumerate(made.regions[0].block.args):
        assert isinstance(argument.type, BufferAttr)
        buffers[at] = buffers[at].reshape([dim.value or 0 for dim in argument.type.shape])
    simulate(made, buffers, {})
    np.testing.assert_allclose(buffers[-1].reshape(shape).astype(np.float64), wanted, rtol=0.05, atol=0.02)


def change(name: str, scores: Array) -> tuple[Array, Array]:
    """What functions make of scores, -inf where they are hidden, and its slope."""
    _, h, i, j = np.ogrid[tuple(map(slice, scores.shape))]
    changed = {
        "soft cap": 2 * np.tanh(scores / 2),
        "alibi": scores - SLOPES[h] * (i - j),
        "divided": scores / NORMS[j],
    }.get(name, scores)
    slope = {"soft cap": 1 - np.tanh(scores / 2) ** 2, "divided": 1 / NORMS[j]}.get(name, np.ones_like(scores))
    hidden = {
        "documents": DOCUMENTS[i] != DOCUMENTS[j],
        "soft cap": np.False_,
        "divided": np.False_,
    }.get(name, (i < j) | (i - j >= 70))
    return np.where(hidden, -np.inf, changed), slope


@pytest.mark.parametrize(("name", "head"), [*((name, 64) for name in CASES), ("alibi", 128)])
def test_gradients_on_tensor_cores_are_those_of_the_formula(name: str, head: int) -> None:
    """Weights and gradients of scores are rounded before their dots, and results once more."""
    length = 200
    rng = np.random.default_rng(1)
    shape = (1, 2, length, head)
    given = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for _ in range(4)]
    q, k, v, cotangent = (one.astype(np.float64) for one in given)
    changed, slope = change(name, q @ k.swapaxes(2, 3) / np.sqrt(head))
    lse = np.log(np.exp(changed).sum(-1))
    weights = np.exp(changed - lse[..., None])
    delta = (weights @ v * cotangent).sum(-1)
    by_scores = weights * (cotangent @ v.swapaxes(2, 3) - delta[..., None]) * slope / np.sqrt(head)
    by_keys = by_scores.swapaxes(2, 3)
    wanted = [by_scores @ k, by_keys @ q, weights.swapaxes(2, 3) @ cotangent]
    ranges = [*ranges_of(changed[0, 0], name), *ranges_of(changed[0, 0].T, name)]
    written: set[int] = set()
    for kernel in library_kernels(differentiate(name), [shape] * 3)[1:]:
        results = [np.full(shape, np.nan, ml_dtypes.bfloat16) for _ in range(3)]
        buffers = [*given, lse.astype(np.float32), delta.astype(np.float32), *ranges, *captured(name), *results]
        for at, argument in enumerate(kernel.regions[0].block.args):
            assert isinstance(argument.type, BufferAttr)
            buffers[at] = buffers[at].reshape([dim.value or 0 for dim in argument.type.shape])
        simulate(kernel, buffers, {})
        for number, one in enumerate(wanted):
            found = buffers[number - 3].reshape(shape).astype(np.float64)
            if not np.isnan(found).all():
                written.add(number)
                assert np.linalg.norm(found - one) <= 0.02 * np.linalg.norm(one), number
    assert written == {0, 1, 2}


def ranges_of(scores: Array, name: str) -> list[Array]:
    """Where the keys of each 32 queries begin and end, where there is a mask."""
    if CASES[name][1] is None:
        return []
    blocks = [np.flatnonzero((scores[at : at + 32] > -np.inf).any(0)) for at in range(0, len(scores), 32)]
    first = [keys[0] // 32 * 32 for keys in blocks]
    end = [min(keys[-1] // 32 * 32 + 32, scores.shape[1]) for keys in blocks]
    return [np.array(one, np.int64) for one in (first, end)]


def captured(name: str) -> list[Array]:
    return {"alibi": [SLOPES], "documents": [DOCUMENTS], "divided": [NORMS]}.get(name, [])


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("name", ["soft cap", "alibi"])
def test_kernels_and_gradients_assemble_without_spilling(name: str, head: int) -> None:
    """The assembler refuses to keep dots in flight where registers run out."""
    kernels = library_kernels(differentiate(name), [(1, 2, 1024, head)] * 3)
    assert len(kernels) == 3
    for kernel in kernels:
        (ptx,) = compile_texts([BACKEND.code(kernel).text], BACKEND.code_target)
        assert re.search(rb"wgmma\.mma_async", ptx)
        assert assemble(ptx, "sm_90a").startswith(b"\x7fELF")


def test_tensors_that_are_read_at_computed_indices_leave_tensor_cores() -> None:
    table = ts.ones((2, 2047))

    def relative(q: Any, k: Any, v: Any) -> Any:
        return ops.attention(q, k, v, score=lambda s, b, h, i, j: s + table[h, i - j + 1023])

    (kernel,) = (one for one in kernels_of(relative, [(1, 2, 1024, 64)] * 3) if one.value("kind") == "library")
    assert BACKEND.matrix(kernel) is None
