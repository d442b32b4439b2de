"""What gradients keep and what they rematerialize: never other bits, fewer bytes, and masks from their keys."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import MemoryBudgetError, OverrideError
from tessera.frontend.pytree import flatten
from tessera.ir.base.interpret import interpret
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.derivatives import control
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes.rematerialize import BYTES, POINTWISE, ROWS
from tessera.ir.graph.pipeline import pipeline
from tessera.ir.graph.transforms.reverse import keep_needed

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32) / 3

KEY = np.asarray(ts.random.key(11))

STEPS: list[Any] = [
    lambda h, w, k: ops.tanh(h),
    lambda h, w, k: ops.gelu(h) * h,
    lambda h, w, k: h @ w,
    lambda h, w, k: ops.softmax(h) + h,
    lambda h, w, k: ops.layernorm(h, w[0], w[1]),
    lambda h, w, k: h.T[:6, :6] @ h,
    lambda h, w, k: ts.random.dropout(h, k, 0.4),
    lambda h, w, k: ops.maximum(h, 0.1) / (1.0 + h * h),
    lambda h, w, k: h - h.mean(1, keepdims=True),
]


def draw_loss(seed: int) -> Any:
    """A random chain of steps, with sums over the way to it."""
    chosen = random.Random(seed).choices(STEPS, k=5)

    def loss(x: Any, w: Any, key: Any) -> Any:
        h, total = x, 0.0
        for step in chosen:
            h = step(h, w, key)
            total = total + (h * h).mean()
        return total

    return loss


def run_at(tape: Tape, level: int, *arrays: Any) -> tuple[list[bytes], set[str]]:
    """The results of a program by the interpreter after the graph stage at a level, and the names of its ops."""
    module = from_tape(tape)
    for one in pipeline(level=level):
        one.run(module)
    verify(module)
    names = {op.name for op in module.walk()}
    return [np.asarray(one).tobytes() for one in interpret(symbol_table(module)["main"], *arrays)], names


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_kept_a_gradient_has_the_same_bits_and_no_residual(seed: int) -> None:
    tape = ts.value_and_grad(draw_loss(seed), (0, 1)).trace(X, W, KEY).tape  # pyright: ignore[reportFunctionMemberAccess]
    assert any(record.op == "tgraph.saved_value" for record in tape.records)
    expected, names = run_at(tape, BYTES, X, W, KEY)
    assert "tgraph.saved_value" not in names
    for level in (POINTWISE, ROWS, ROWS + 1, ROWS + 99):
        found, names = run_at(tape, level, X, W, KEY)
        assert found == expected, level
        assert "tgraph.saved_value" not in names


def lines_of(gradient: Any, *args: Any) -> dict[str, list[str]]:
    """The lists of an explanation by their names."""
    gradient(*args)
    found: dict[str, list[str]] = {}
    name = ""
    for line in str(gradient.explain(*args)).splitlines():
        if line.startswith("    "):
            found.setdefault(name, []).append(line.strip())
        name = line.strip().removesuffix(":") if line.endswith(":") else name
    return found


def test_explain_lists_what_is_kept_and_what_is_rematerialized_with_bytes_lines_and_reasons() -> None:
    def loss(x: Any, w: Any) -> Any:
        hidden = x @ w
        return (ops.layernorm(hidden, w[0], w[1]) @ w).sum()

    found = lines_of(ts.grad(loss, (0, 1)), X, W)
    assert any(
        line.startswith("matmul [6, 8] f32: 192 bytes at ") and "test_rematerialize.py:" in line
        for line in found["kept"]
    )
    assert any("mul [6, 8] f32: 192 bytes, needed there alone at " in line for line in found["rematerialized"])
    assert found["forward"]
    assert found["backward"]


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("scan", lambda w, x: ts.scan(lambda h, row: (ops.tanh(h * row), ()), x, w)[0]),
        ("(fori|scan)", lambda w, x: ts.fori_loop(0, 3, lambda n, h: ops.tanh(h * w[n]), x)),
        ("cond", lambda w, x: ts.cond(x.sum() > 0, lambda: ops.tanh(x) * w, lambda: ops.sin(x * w))),
        ("sort", lambda w, x: ops.sort(x * w)),
    ],
)
def test_what_the_forward_part_needs_too_runs_once(op: str, function: Any) -> None:
    """An op of several results, of which the backward part needs others than the forward part, is in both once."""

    def count(transform: Any) -> int:
        made: Any = ts.jit(transform(lambda w, x: (function(w, x) ** 2.0).mean()))
        return len(re.findall(rf"tgraph\.{op} ", str(made.lower(W, W[0]).graph)))

    assert count(ts.value_and_grad) == count(ts.grad) <= 2


def test_probabilities_of_attention_are_in_no_part() -> None:
    """Kernels go over them in blocks; the result and the log-sum-exp of each row are kept."""
    q = RNG.standard_normal((1, 2, 8, 4)).astype(np.float32)
    gradient = ts.grad(lambda q: (ops.attention(q * 2.0, q * 3.0, q, causal=True) ** 2.0).sum())
    found = lines_of(gradient, q)
    assert not any("[1, 2, 8, 8]" in line for lines in found.values() for line in lines)
    graph = str(ts.jit(gradient).lower(q).graph)
    assert "[1, 2, 8, 8]" not in graph
    assert graph.count("tgraph.attention_with_lse ") == graph.count("tgraph.attention_backward ") == 1
    assert "tgraph.attention " not in graph


# A budget of memory: the least that is rematerialized so that the plan fits.


def deep(w: Any, x: Any) -> Any:
    for _ in range(6):
        x = x + ops.gelu(ops.layernorm(x, w[0], w[1]) @ w) @ w
    return (x * x).mean()


def planned(gradient: Any, *args: Any) -> tuple[int, int, list[bytes]]:
    """The workspace and the flops that an explanation shows, and the bits of the gradient."""
    made = [np.asarray(leaf).tobytes() for leaf in flatten(gradient(*args))[0]]
    lines = [line.split() for line in str(gradient.explain(*args)).splitlines()]
    found = {line[0]: int(line[1]) for line in lines if line[:1] in (["workspace:"], ["flops:"])}
    return found["workspace:"], found["flops:"], made


@pytest.mark.slow
def test_a_budget_rematerializes_what_it_takes_and_no_more() -> None:
    x = RNG.standard_normal((32, 8)).astype(np.float32)
    free, flops, bits = planned(ts.grad(deep), W, x)
    sizes, work = [free], [flops]
    while True:
        gradient = ts.jit(lambda w, x: ts.grad(deep)(w, x), memory=sizes[-1] - 1)
        try:
            size, flops, same = planned(gradient, W, x)
        except MemoryBudgetError as error:
            said = error.message
            break
        assert size < sizes[-1]
        assert flops >= work[0]
        assert same == bits
        sizes.append(size)
        work.append(flops)
    assert f"allows {sizes[-1] - 1} bytes of workspace, and the program needs {sizes[-1]}" in said
    assert len(sizes) > 1
    assert sizes[-1] < free * 0.7


@pytest.mark.parametrize("offload", [False, True])
def test_a_budget_that_a_level_in_the_middle_fits_is_met(offload: bool) -> None:
    """The most that can be rematerialized needs more memory here than a part of it."""

    def tower(w: Any, x: Any) -> Any:
        for _ in range(6):
            x = ops.tanh(x @ w)
        return (x * x).mean()

    def jitted(memory: int) -> Any:
        return ts.jit(lambda w, x: ts.value_and_grad(tower, (0, 1))(w, x), memory=memory, offload=offload)

    w = (RNG.standard_normal((32, 32)) / 6).astype(np.float32)
    x = RNG.standard_normal((64, 32)).astype(np.float32)
    with pytest.raises(MemoryBudgetError, match="the program needs") as caught:
        jitted(1000)(w, x)
    least = int(caught.value.message.split()[-1])
    assert least == (32768 if offload else 53248)
    assert ("bytes with values offloaded, and where only" in caught.value.notes[0]) == offload
    size, _, bits = planned(jitted(least), w, x)
    assert size == least
    assert bits == planned(ts.value_and_grad(tower, (0, 1)), w, x)[2]


ROOT = Path(__file__).parents[2]
PEAKS = """
from benchmarks.gradients import peaks

whole, dots, least = peaks().values()
assert whole.results == dots.results == least.results
assert least.planned < whole.planned / 3
assert least.planned < dots.planned < whole.planned
assert whole.measured - dots.measured == whole.planned - dots.planned
assert whole.measured - least.measured == whole.planned - least.planned
"""


@pytest.mark.slow
def test_the_peak_of_twelve_blocks_falls_by_the_predicted_amount() -> None:
    """What the plan says is what the allocator gives out, to the byte, and less where less is kept.

    In a process of its own: scratch that threads kept of other programs would not be taken again.
    """
    done = subprocess.run([sys.executable, "-c", PEAKS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_budget_needs_sizes_and_a_number() -> None:
    @ts.jit(memory=64)
    def loss(x: ts.Tensor["N", ts.f32]):
        return ts.grad(lambda x: (ops.sort(ops.exp(x)) * x).sum())(x)

    with pytest.raises(MemoryBudgetError, match="for sizes not known yet"):
        loss(np.ones(100, np.float32))
    with pytest.raises(OverrideError, match="`memory` is a number of bytes, got -1"):
        ts.jit(lambda x: x, memory=-1)


# Masks of dropout: from the key in both directions, whatever is kept.


def mask_of(values: Any) -> Any:
    return np.asarray(values) != 0.0


def drop(x: Any, key: Any) -> Any:
    return ts.random.dropout(x, key, 0.5)


MASKED: dict[str, Any] = {
    "plain": lambda x, key: drop(x, key),
    "checkpoint": lambda x, key: ts.checkpoint(drop)(x, key),
    "jit": lambda x, key: ts.jit(drop)(x, key),
    "checkpoint of more": lambda x, key: ts.checkpoint(lambda x: drop(ops.exp(x), key) * ops.exp(x))(x),
    "scan": lambda x, key: ts.scan(lambda c, row: (c, drop(row, key)), 0.0, x)[1],
    "scan of checkpoint": lambda x, key: ts.scan(lambda c, row: (c, ts.checkpoint(drop)(row, key)), 0.0, x)[1],
    "vmap": lambda x, key: ts.vmap(drop, in_axes=(0, None))(x, key),
    "vmap of checkpoint": lambda x, key: ts.vmap(ts.checkpoint(drop), in_axes=(0, None))(x, key),
}


@pytest.mark.parametrize("name", MASKED)
def test_the_mask_of_dropout_is_the_same_in_both_directions(name: str) -> None:
    key = ts.random.key(7)
    function = MASKED[name]
    forward = ts.jit(lambda x: function(x, key))(X)
    backward = ts.grad(lambda x: function(x, key).sum())(X)
    np.testing.assert_array_equal(mask_of(forward), mask_of(backward))
    assert 0 < mask_of(forward).mean() < 1
    again = ts.grad(lambda x: function(x, key).sum())(X)
    assert np.asarray(again).tobytes() == np.asarray(backward).tobytes()


def test_no_mask_is_kept() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (ts.random.dropout(x @ w, ts.random.key(3), 0.5) @ w).sum()

    found = lines_of(ts.grad(loss, (0, 1)), X, W)
    # The dropped activations alone, which the gradient of the second `w` is a product with.
    assert [line.split(":")[0] for line in found["kept"]] == ["where [6, 8] f32"]


def test_gradients_are_trees_of_the_same_bits_with_and_without_other_results() -> None:
    loss = draw_loss(3)
    alone = ts.grad(loss, (0, 1))(X, W, KEY)
    _, beside = ts.value_and_grad(loss, (0, 1))(X, W, KEY)
    pairs = zip(flatten(alone)[0], flatten(beside)[0], strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


# Bodies: what a loop or a branch keeps for its backward part.

ROWS_OF_BODIES = RNG.standard_normal((12, 64)).astype(np.float32)
GAIN = RNG.standard_normal((64, 64)).astype(np.float32) / 8


def step(h: Any, row: Any, w: Any) -> Any:
    """Pointwise ops before and behind a contraction, with a mask from a key."""
    h = ops.tanh(ops.exp(h * 0.1) * row)
    return ts.random.dropout(ops.gelu(h @ w) * ops.sin(row), ts.random.key(3), 0.2) + h


BODIES: dict[str, Any] = {
    "scan": lambda w, x: ts.scan(lambda h, r: (step(h, r, w), ()), x[0], x)[0],
    "results": lambda w, x: ts.scan(lambda h, r: (h * 0.5, ops.exp(ops.tanh(h @ w) * r)), x[0], x)[1],
    "fori": lambda w, x: ts.fori_loop(0, 12, lambda n, h: step(h, x[n], w), x[0]),
    "map": lambda w, x: ts.map(lambda r: step(r, r, w), x),
    "while": lambda w, x: ts.while_loop(lambda h: h.sum() < 1e9, lambda h: step(h, x[0], w), x[0], max_trips=12),
    "cond": lambda w, x: ts.cond(x.sum() < 1e9, lambda: step(x, x, w), lambda: ops.sin(x) * x),
}


def gradient_of(name: str) -> tuple[int, int, list[bytes]]:
    """The bytes that a gradient keeps of loops and branches, its workspace, and its bits."""
    gradient = ts.grad(lambda w, x: (BODIES[name](w, x) ** 2.0).sum(), (0, 1))
    kept = lines_of(gradient, GAIN, ROWS_OF_BODIES)["kept"]
    found = [re.match(r"(?:(\d+) x )?(?:scan|cond|fori) .*: (\d+) bytes", line) for line in kept]
    size, _, bits = planned(gradient, GAIN, ROWS_OF_BODIES)
    return sum(int(one[1] or 1) * int(one[2]) for one in found if one), size, bits


@pytest.mark.parametrize(
    ("name", "rows", "all_rows"),
    [("scan", 2, 7.25), ("results", 2, 4), ("fori", 2, 8.28125), ("map", 1, 7.25), ("cond", 1, 9.25)],
)
def test_bodies_keep_what_cannot_be_rematerialized(
    name: str, rows: float, all_rows: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 64 floats for each of 12 trips: what is needed as it is, and what is kept of that."""
    kept, size, bits = gradient_of(name)
    assert kept == rows * ROWS_OF_BODIES.nbytes
    monkeypatch.setattr(control, "KeepCheapest", lambda *prices: keep_needed)
    kept_before, size_before, same = gradient_of(name)
    assert kept_before == all_rows * ROWS_OF_BODIES.nbytes
    assert bits == same
    assert size < size_before
    if name in ("scan", "results"):  # elsewhere the peak is not between the two loops alone
        # A scan updates its carry in place, and with less kept its peak has a row more.
        row = ROWS_OF_BODIES[0].nbytes if name == "scan" else 0
        assert size_before - size == kept_before - kept - row


def test_gradients_of_loops_in_bf16_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def bits_of(name: str) -> list[bytes]:
        narrow = [ts.array(one).astype(ts.bf16) for one in (GAIN, ROWS_OF_BODIES)]
        found = ts.grad(lambda w, x: (BODIES[name](w, x) ** 2.0).sum(), (0, 1))(*narrow)
        return [np.asarray(leaf).tobytes() for leaf in found]

    bits = [bits_of(name) for name in ("scan", "while")]
    monkeypatch.setattr(control, "KeepCheapest", lambda *prices: keep_needed)
    assert [bits_of(name) for name in ("scan", "while")] == bits


@pytest.mark.parametrize("name", ["fori", "cond"])
def test_bodies_that_rematerialize_assemble_for_a_gpu(name: str) -> None:
    gradient: Any = ts.jit(ts.grad(lambda w, x: (BODIES[name](w, x) ** 2.0).sum(), (0, 1)))
    tape = gradient.trace(GAIN, ROWS_OF_BODIES).tape
    assert compile_tape(tape, Options.of(backend="cuda", features=("sm_90a",))) is not None
