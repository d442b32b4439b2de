"""Rows that several warps share: which do, who has which iterations, what is emitted, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from benchmarks.gpu_widths import free
from tessera.backends.nvptx.compile import NvptxBackend, NvptxCode
from tessera.backends.nvptx.passes.defer_accumulators import find_deferred_accumulators
from tessera.backends.nvptx.row_prefetch import LINE, ROW, SECTION, prefetched_rows, shared_widths
from tessera.backends.nvptx.row_warps import Division, divide_static, divide_symbolic, split_iteration
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import KernelOp, LoopOp, TailOp

BF16 = ml_dtypes.bfloat16
WARP = 32


def lowered(function: Callable[..., Any], *arrays: Any) -> Lowering:
    tape = ts.jit(function).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=("sm_90a",)))


def ptx_of(lowering: Lowering) -> list[str]:
    code_target = NvptxBackend(GPUS["sm_90a"]).code_target
    return [ptx.decode() for ptx in compile_texts(lowering.texts, code_target)]


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def gelu_layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(ts.ops.gelu(x), w, b)


def running(x: Any) -> Any:
    return ts.ops.cumsum(x, axis=-1)


def arrays(function: Any, columns: int, dtype: Any = BF16) -> list[Any]:
    line = np.zeros(columns, dtype)
    return [np.zeros((64, columns), dtype), *[line] * (function.__code__.co_argcount - 1)]


# Who shares.


@pytest.mark.parametrize(("columns", "dtype", "warps"), [(4096, BF16, 0), (4097, BF16, 4), (4608, BF16, 0),
    (4640, BF16, 4),
    (5000, BF16, 4), (8192, BF16, 4), (8448, BF16, 8), (16384, np.float32, 8), (32768, BF16, 16), (33280, BF16, 0),
    (8192, np.float64, 8), (16384, np.float64, 16)])  # fmt: skip
def test_as_many_warps_share_a_row_as_registers_need(columns: int, dtype: Any, warps: int) -> None:
    (kernel,) = lowered(softmax, *arrays(softmax, columns, dtype)).targets
    assert kernel.value("warps_per_row") == warps


def test_long_formulas_are_shared_sooner() -> None:
    counts = [
        lowered(gelu_layernorm, *arrays(gelu_layernorm, columns)).targets[0].value("warps_per_row")
        for columns in (1000, 2048, 4096)
    ]
    assert counts == [0, 4, 4]


def test_other_kernels_stay_whole() -> None:
    assert all(
        not kernel.value("warps_per_row") for kernel in lowered(running, np.zeros((64, 8192), np.float32)).targets
    )


@pytest.mark.parametrize("function", [softmax, layernorm])
def test_a_symbolic_width_has_a_kernel_for_wide_rows_beside_that_for_all(function: Any) -> None:
    lowering = lowered(free(function), *arrays(function, 100))
    shared, plain = lowering.targets
    assert shared.value("symbol") == plain.value("symbol") + "__shared"
    assert (shared.value("warps_per_row"), plain.value("warps_per_row")) == (16, 0)
    assert isinstance(shared, KernelOp)
    found = shared_widths(shared)
    assert found is not None
    assert found[2] == 16 * 64 * WARP + SECTION * WARP - 1
    assert isinstance(lowering.code, NvptxCode)
    assert set(lowering.code.entry.kernels) == {shared.value("symbol"), plain.value("symbol")}


# Who has which iterations.


class Numbers:
    """What writes instructions, as one that computes them: addresses are numbers then."""

    def __init__(self, block: int, blocks: int) -> None:
        self.known = {"ctaid.x": block, "nctaid.x": blocks}

    def call(self, name: str, args: Any, ret: str) -> int:
        return self.known[name.removeprefix("llvm.nvvm.read.ptx.sreg.")]

    def cast(self, way: str, value: int, to: str) -> int:
        return value

    def index(self, value: int) -> int:
        return value

    def add(self, a: int, b: int) -> int:
        return a + b

    def sub(self, a: int, b: int) -> int:
        return a - b

    def mul(self, a: int, b: int) -> int:
        return a * b

    def udiv(self, a: int, b: int) -> int:
        assert a >= 0
        assert b > 0
        return a // b

    def ceil_div(self, a: int, b: int) -> int:
        return -(-a // b)

    def smin(self, a: int, b: int) -> int:
        return min(a, b)

    def smax(self, a: int, b: int) -> int:
        return max(a, b)

    def select(self, test: bool, a: int, b: int) -> int:
        return a if test else b

    def icmp(self, way: str, a: int, b: int) -> bool:
        return {"sgt": a > b, "slt": a < b, "eq": a == b}[way]

    def op(self, name: str, a: bool, b: bool) -> bool:
        assert name == "and"
        return a and b


def turns_of(division: Division) -> list[Any]:
    return [place for section in division.sections if section.condition in (None, True) for place in section.starts]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 33023), st.integers(0, 5), st.integers(6, 9))
def test_rows_of_symbolic_width_are_divided_in_order(width: int, block: int, blocks: int) -> None:
    """Warp groups of a block have rows of their own; warps of one have all iterations of theirs in order."""
    teams: dict[Any, list[Division]] = {}
    for warp in range(16):
        emitter: Any = SimpleNamespace(f=Numbers(block, blocks), warps_per_row=16)
        found = divide_symbolic(emitter, warp, width, 8)  # pyright: ignore[reportArgumentType]
        teams.setdefault(found.group.row, []).append(found)
    assert len({found.group.step for parts in teams.values() for found in parts}) == 1
    for parts in teams.values():
        assert [part.group.index for part in parts] == list(range(len(parts)))
        assert {part.group.warps for part in parts} == {len(parts)}
        turns = [turn for part in parts for turn in turns_of(part)]
        assert turns == list(range(0, WARP * len(turns), WARP))
        assert width <= WARP * len(turns) < width + SECTION * WARP
        ragged = [part.sections[-1].condition for part in parts]
        assert sum(map(bool, ragged)) == (width % (SECTION * WARP) > 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2000), st.sampled_from([4, 8, 16]))
def test_known_rows_are_divided_in_order(turns: int, shares: int) -> None:
    emitter: Any = SimpleNamespace(f=Numbers(0, 1), warps_per_row=shares)
    parts = [divide_static(emitter, warp, turns) for warp in range(shares)]  # pyright: ignore[reportArgumentType]
    found = [turn for part in parts for turn in turns_of(part)] + list(parts[0].remainder)
    assert found == list(range(0, WARP * turns, WARP))
    assert len(parts[0].remainder) < shares


# What is emitted.


def test_what_iterations_carry_comes_last() -> None:
    (kernel,) = lowered(softmax, *arrays(softmax, 8192)).targets
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp)]
    before, after, needed = split_iteration(loops[1])
    assert [op.value("fn") for op in before if op.name == "ttarget.elementwise"] == ["sub", "exp"]
    assert [op.value("fn") for op in after if op.name == "ttarget.elementwise"] == ["add"]
    assert len(needed) == 1


@pytest.mark.parametrize("columns", [5000, 5001, 16384])
def test_a_shared_row_is_read_once(columns: int) -> None:
    (ptx,) = ptx_of(lowered(softmax, *arrays(softmax, columns)))
    assert "cp.async.cg.shared.global" in ptx
    assert not [line for line in ptx.splitlines() if "ld.global" in line and "nothing" not in line]
    shares = 8 if columns == 16384 else 4
    assert f".reqntid {shares * WARP}" in ptx
    assert "bar.sync" in ptx


def differences(x: Any) -> Any:
    return ts.ops.softmax(x[1:] - x[:-1], axis=-1)


def two_of_one(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w[:5000]) + w[5000:]


def test_what_is_read_by_two_patterns_is_not_prefetched() -> None:
    """A program has a place for one row of an argument: another would be looked for behind it."""
    alone, (several,), (halves,) = (
        lowered(rmsnorm, *arrays(rmsnorm, 5000)).targets[0],
        lowered(differences, np.zeros((64, 5000), BF16)).targets,
        lowered(two_of_one, np.zeros((64, 5000), BF16), np.zeros(10000, BF16)).targets,
    )
    kernels = [kernel for kernel in (alone, several, halves) if isinstance(kernel, KernelOp)]
    found = [[len(prefetched_rows(kernel, what)) for what in (ROW, LINE)] for kernel in kernels]
    assert found == [[1, 1], [0, 0], [1, 0]]


def test_exps_are_computed_once_and_divided_by_warps() -> None:
    """Unrolled for a warp's own iterations: a fourth of the code that one warp would take."""
    (ptx,) = ptx_of(lowered(gelu_layernorm, *arrays(gelu_layernorm, 4096)))
    assert ptx.count("\n") < 4000


def rmsnorm(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w)


def variance(x: Any) -> Any:
    return ts.ops.var(x, axis=-1), ts.ops.sum(x * 0.5, axis=-1)


@pytest.mark.parametrize(("function", "columns", "rare"), [(layernorm, 16384, {1: 0}), (rmsnorm, 12288, {1: 0}),
    (rmsnorm, 12290, {1: 0}), (variance, 16384, {})])  # fmt: skip
def test_reductions_that_stand_in_for_others_are_deferred(function: Any, columns: int, rare: dict[int, int]) -> None:
    kernel = lowered(function, *arrays(function, columns)).targets[0]
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp) and op.results]
    tails = [op for op in kernel.walk() if isinstance(op, TailOp) and op.results]
    assert find_deferred_accumulators(loops[-1], tails[-1] if tails else None) == rare


def test_a_sum_that_is_used_is_not_deferred() -> None:
    """The one that stands in for another does not, where it is not chosen by whether that is infinite."""
    kernel = lowered(rmsnorm, *arrays(rmsnorm, 12288)).targets[0]
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp)]
    loop = next(op for op in ops if isinstance(op, LoopOp) and op.results)
    test = next(op for op in ops if op.name == "ttarget.elementwise" and op.value("fn") == "isinf")
    assert find_deferred_accumulators(loop, None)
    test.set_value("fn", "isnan")
    assert not find_deferred_accumulators(loop, None)


# What is refused.


@pytest.mark.parametrize(("name", "value", "words"), [("warps_per_row", 3, "shared by 4, 8, 16 warps"),
    ("threads", 64, "programs of 64 threads")])  # fmt: skip
def test_a_program_of_more_warps_is_not_shared(name: str, value: int, words: str) -> None:
    (kernel,) = lowered(softmax, *arrays(softmax, 8192)).targets
    verify(kernel)
    kernel.set_value(name, value)
    with pytest.raises(OpError, match=words):
        verify(kernel)


def test_registers_hold_rows_of_symbolic_width_only_where_warps_share_them() -> None:
    shared, _ = lowered(free(softmax), *arrays(softmax, 100)).targets
    verify(shared)
    shared.set_value("warps_per_row", 0)
    with pytest.raises(OpError, match="has static sizes"):
        verify(shared)
