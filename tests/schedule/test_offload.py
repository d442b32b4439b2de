"""Offloaded values: whatever is offloaded, results have the same bits, and the workspace what was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera import ops
from tessera.ir.base.tape import Tape
from tessera.ir.schedule import typed_ops as tsched
from tessera.ir.schedule.bodies import with_sizes
from tessera.ir.schedule.host_program.accesses import HOST_MEMORY, Memory
from tessera.ir.schedule.host_program.launch_order import order_of
from tessera.ir.schedule.passes.reorder_launches import ReorderLaunches
from tessera.ir.schedule.plan import programs_in
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.dim import Dim
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import inputs_for, run_schedule, simplify, tapes

SIZES = {"A": 5, "B": 5}


def with_numbers(tape: Tape) -> Tape:
    """A program of symbolic sizes for those of `SIZES`."""
    return with_sizes(tape, {name: Dim.constant(size) for name, size in SIZES.items()})


def workspace_of(module: ModuleOp) -> int:
    """The bytes of the workspace of a program, whose sizes are known."""
    (program,) = programs_in(module)
    assert program.workspace is not None
    return program.workspace.evaluate({})


def run_bits(module: ModuleOp, tape: Tape) -> list[bytes]:
    return [one.tobytes() for one in run_program(module, *inputs_for(tape, {}))]


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(tapes())
def test_meaning_is_kept_whatever_is_offloaded(symbolic: Tape) -> None:
    """Plan by plan, with less and less memory: a value that is read from where it is not shows as poison."""
    tape = with_numbers(symbolic)
    plain = run_schedule(simplify(tape), fusion=False)
    expected, size = run_bits(plain, tape), workspace_of(plain)
    for memory in (size - 1, 0):
        module = run_schedule(simplify(tape), fusion=False, memory=max(0, memory))
        assert workspace_of(module) <= size
        assert run_bits(module, tape) == expected


def skip(x: object, w: object) -> object:
    """A net whose early values are read late, in the opposite order."""
    kept = [x]
    for _ in range(5):
        kept.append(ops.tanh(kept[-1] @ w))  # type: ignore[operator]
    total = kept.pop()
    while kept:
        total = ops.tanh(total @ w) * kept.pop()  # type: ignore[operator]
    return total


@settings(deadline=None, max_examples=10)
@given(st.integers(3, 7), st.integers(1, 9), st.integers(1, 17), st.integers(0, 4))
def test_meaning_is_kept_where_early_values_wait(depth: int, rows: int, columns: int, quarters: int) -> None:
    """Nets that always have something to move, whatever they are allowed."""

    def net(x: Any, w: Any) -> Any:
        kept = [x]
        for _ in range(depth):
            kept.append(ops.tanh(kept[-1] @ w))
        total = kept.pop()
        while kept:
            total = ops.tanh(total @ w) * kept.pop()
        return total

    tape = ts.jit(net).trace(np.ones((rows, columns), np.float32), np.ones((columns, columns), np.float32)).tape
    plain = run_schedule(simplify(tape))
    size = workspace_of(plain)
    module = run_schedule(simplify(tape), memory=min(size - 1, size * quarters // 4))
    assert moves_in(module) > 0
    assert workspace_of(module) < size
    assert run_bits(module, tape) == run_bits(plain, tape)


def plan_skip(memory: int) -> tuple[ModuleOp, Tape]:
    x, w = np.ones((8, 16), np.float32), np.ones((16, 16), np.float32)
    tape = ts.jit(skip).trace(x, w).tape
    return run_schedule(simplify(tape), memory=memory), tape


def moves_in(module: ModuleOp) -> int:
    """How many values are offloaded."""
    return sum(isinstance(op, tsched.AllocOp) and bool(op.space) for op in module.walk())


def test_as_few_values_are_offloaded_as_fit_and_every_budget_is_kept() -> None:
    plain, tape = plan_skip(-1)
    size, expected = workspace_of(plain), run_bits(plain, tape)
    assert moves_in(plain) == 0
    before, least = 0, size
    for memory in range(size, 0, -256):
        module, _ = plan_skip(memory)
        count, now = moves_in(module), workspace_of(module)
        if now > memory:  # all that can be offloaded is
            assert now == least
            break
        assert count >= before
        assert run_bits(module, tape) == expected
        before, least = count, min(least, now)
    assert before >= 3
    assert least <= size - 3 * 8 * 16 * 4


@pytest.mark.parametrize("seed", range(3))
def test_any_order_that_the_launch_order_allows_has_the_same_bits(seed: int) -> None:
    module, tape = plan_skip(0)
    assert moves_in(module)
    expected = run_bits(module, tape)
    ReorderLaunches(seed).run(module)
    assert run_bits(module, tape) == expected


def test_copies_wait_for_what_shares_their_bytes_in_either_memory() -> None:
    module, _ = plan_skip(0)
    (program,) = programs_in(module)
    kernels = {op.symbol: op for op in module.ops if isinstance(op, KernelOp)}
    order = order_of(program, kernels)
    order.check()
    memory = Memory(program, kernels)
    copies = [op for op in program.walk() if isinstance(op, tsched.CopyOp)]
    ends = [tuple(memory.ranges(value)[0].memory for value in (op.source, op.target)) for op in copies]
    assert ends.count(("workspace", HOST_MEMORY)) == ends.count((HOST_MEMORY, "workspace")) == moves_in(module)
    assert program.offloaded is not None
    assert program.offloaded.evaluate({}) >= 8 * 16 * 4
