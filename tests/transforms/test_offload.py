"""`jit(memory=..., offload=True)`: gradients with the same bits in less memory, and what `explain` says of it."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import MemoryBudgetError, OverrideError
from tessera.frontend.pytree import flatten
from tessera.runtime.native.support import load_support

RNG = np.random.default_rng(7)
W = (RNG.standard_normal((32, 32)) / 6).astype(np.float32)
X = RNG.standard_normal((64, 32)).astype(np.float32)


def deep(w: Any, x: Any) -> Any:
    for _ in range(2):
        x = x + ops.gelu(ops.layernorm(x, w[0], w[1]) @ w) @ w
    return (x * x).mean()


def scanned(w: Any, x: Any) -> Any:
    def layer(h: Any, row: Any) -> Any:
        h = ops.tanh(h @ w) * row
        return h, h

    last, every = ts.scan(layer, x, x[:6, :1] * 0.1 + 1.0)
    later, _ = ts.scan(layer, ops.sin(last @ w) @ w, x[:6, 1:2] * 0.1 + 1.0)
    return (later * later).mean() + (every * every).mean()


def branched(w: Any, x: Any) -> Any:
    h = ops.gelu(x @ w)
    g = ts.cond(h.sum() > 0.0, lambda: ops.tanh(h @ w), lambda: ops.sin(h) @ w)
    y = ops.gelu(ops.gelu(g @ w) @ w)
    return (y * g * h).sum()


NETS: dict[str, Any] = {
    "deep": deep,
    "scan": scanned,
    "cond": branched,
    "second": lambda w, x: (ts.grad(lambda x: (ops.tanh(ops.tanh(x @ w) @ w) ** 2.0).sum())(x) ** 2.0).sum(),
    "checkpoint": lambda w, x: deep(w, ts.checkpoint(lambda x: ops.gelu(x @ w) @ w)(x)),
    "dropout": lambda w, x: deep(w, ts.random.dropout(ops.gelu(x @ w) @ w, ts.random.key(3), 0.5)),
}


def run(gradient: Any, *args: Any) -> tuple[list[bytes], int, int]:
    """The bits of results, and the bytes of workspace and host memory that an explanation shows."""
    bits = [np.asarray(leaf).tobytes() for leaf in flatten(gradient(*args))[0]]
    lines = [line.strip().partition(": ") for line in str(gradient.explain(*args)).splitlines()]
    shown = {name: int(text.split()[0]) for name, _, text in lines if name in ("workspace", "host memory")}
    return bits, shown["workspace"], shown.get("host memory", 0)


@pytest.mark.parametrize("name", NETS)
def test_loss_and_gradients_have_the_same_bits_in_less_memory(name: str) -> None:
    def step(w: Any, x: Any) -> Any:
        return ts.value_and_grad(NETS[name], (0, 1))(w, x)

    expected, size, host = run(ts.jit(step), W, X)
    assert host == 0
    bits, used, host = run(ts.jit(step, memory=int(size * 0.9), offload=True), W, X)
    assert bits == expected
    assert used <= size * 0.9
    assert host > 0


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f64])
def test_other_dtypes_and_ragged_sizes_have_the_same_bits(dtype: Any) -> None:
    w, x = (ts.array(array[:31, :31]).cast(dtype) for array in (W, X))

    def step(w: Any, x: Any) -> Any:
        return ts.grad(lambda w: (ops.tanh(ops.tanh(ops.tanh(x @ w) @ w) @ w) ** 2.0).sum())(w)

    expected, size, _ = run(ts.jit(step), w, x)
    bits, used, host = run(ts.jit(step, memory=size - 1, offload=True), w, x)
    assert (bits == expected, used < size, host > 0) == (True, True, True)


def test_the_allocator_gives_out_what_the_plan_says() -> None:
    """On a CPU there is one memory: the bytes of both are taken in one piece."""
    plain = ts.jit(lambda w, x: ts.grad(deep)(w, x))
    _, size, _ = run(plain, W, X)
    found: list[tuple[int, int]] = []
    for gradient in (plain, ts.jit(lambda w, x: ts.grad(deep)(w, x), memory=int(size * 0.9), offload=True)):
        _, used, host = run(gradient, W, X)
        memory = load_support().memory
        memory.peak = before = memory.in_use
        gradient(W, X)
        found.append((used + host, memory.peak - before))
    (planned, taken), (planned_less, taken_less) = found
    assert taken_less - taken == planned_less - planned


def test_explain_lists_what_moves_with_its_bytes_and_its_line() -> None:
    gradient = ts.jit(lambda w, x: ts.grad(deep)(w, x), memory=50_000, offload=True)
    gradient(W, X)
    text = str(gradient.explain(W, X))
    offloads, prefetches = ([line for line in text.splitlines() if f"{word} of [64, 32] f32" in line] for word in MOVES)
    assert len(offloads) == len(prefetches) > 0
    assert all("16384 bytes at " in line and "test_offload.py:" in line for line in offloads)


MOVES = ("offload", "prefetch")


def test_values_are_offloaded_before_any_is_rematerialized() -> None:
    def step(w: Any, x: Any) -> Any:
        return ts.grad(deep)(w, x)

    def flops(gradient: Any) -> str:
        gradient(W, X)  # what it computes is known of code that was made
        return next(line for line in str(gradient.explain(W, X)).splitlines() if line.strip().startswith("flops"))

    _, size, _ = run(ts.jit(step), W, X)
    assert flops(ts.jit(step, memory=int(size * 0.9), offload=True)) == flops(ts.jit(step))


def test_what_fits_is_left_alone() -> None:
    expected = ts.jit(deep).lower(W, X).llvm
    assert ts.jit(deep, memory=2**30, offload=True).lower(W, X).llvm == expected


def test_a_budget_of_offloads_needs_memory_and_sizes() -> None:
    with pytest.raises(OverrideError, match="there is no `memory` to fit into"):
        ts.jit(deep, offload=True)
    with pytest.raises(OverrideError, match="`offload` is True or False, got 3"):
        ts.jit(deep, memory=3, offload=3)

    @ts.jit(memory=64, offload=True)
    def loss(x: ts.Tensor["N", ts.f32]):
        return ts.grad(lambda x: (ops.sort(ops.exp(x)) * x).sum())(x)

    with pytest.raises(MemoryBudgetError, match="for sizes not known yet"):
        loss(np.ones(100, np.float32))
