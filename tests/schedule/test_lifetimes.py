"""Buffers are not used after they are freed: in programs as they are made, and in broken ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify


def chain(x: Any, w: Any) -> Any:
    y = ts.ops.softmax(x @ w, axis=-1)
    z = y @ w
    return ts.ops.reshape(z, (1024,)).sum() + z.sum()


def repeat(x: Any, w: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        return ts.ops.softmax(y @ w, axis=-1) @ w

    return ts.fori_loop(0, 3, step, x)


PROGRAMS = {"chained": chain, "repeated": repeat}


def program_of(name: str) -> SpecOp:
    arrays = [np.zeros((32, 32), np.float32)] * 2
    return lower(ts.jit(PROGRAMS[name]).trace(*arrays).tape, Options()).program


def frees_of(program: SpecOp) -> list[SpecOp]:
    return [op for op in program.walk() if isinstance(op, SpecOp) and op.name == "tsched.free"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_they_are_made_hold(name: str) -> None:
    program = program_of(name)
    assert frees_of(program)
    verify(program)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 10), st.integers(1, 3))
def test_a_buffer_that_is_freed_before_a_use_is_refused(name: str, number: int, steps: int) -> None:
    """Move a free up; where that passes a use, it is found, and else nothing is reported."""
    program = program_of(name)
    frees = frees_of(program)
    free = frees[number % len(frees)]
    block = free.parent_block()
    assert block is not None
    ops = list(block.ops)
    made, end = next((at for at, op in enumerate(ops) if op is free.operands[0].owner), -1), ops.index(free)
    start = max(made + 1, end - steps)
    users = {
        use.operation for use in free.operands[0].uses if use.operation.name not in ("tsched.tile", "tsched.yield")
    }
    is_passed = any(part in users for op in ops[start:end] for part in op.walk())
    if start < end:
        free.detach()
        block.insert_op_before(free, ops[start])
    if not is_passed:
        verify(program)
        return
    with pytest.raises(OpError, match="uses a buffer that was freed"):
        verify(program)


TEXT = """builtin.module attributes {{tessera.version = 4 : i64}} {{
  tsched.module @main(%x: !ttile.buffer<[8], f32>) -> !ttile.buffer<[8], f32> attributes {{workspace = 64}} {{
    %0 = tsched.alloc {{offset = 0}} : !ttile.buffer<[8], f32>
    tsched.copy %x, %0
    %1 = tsched.alloc {{output = 0}} : !ttile.buffer<[8], f32>
    {body}
    tsched.return %1
  }}
}}"""
BROKEN = {
    "use": ("tsched.free %0\n    tsched.copy %0, %1", "`tsched.copy` uses a buffer that was freed"),
    "alias": (
        "%2 = tsched.alias %0 : !ttile.buffer<[2, 4], f32>\n    tsched.free %0\n    %3 = tsched.alias %2 : "
        "!ttile.buffer<[8], f32>\n    tsched.copy %3, %1",
        "uses a buffer that was freed",
    ),
    "next iteration": (
        "tsched.for %x {carried = 0, length = 2} ({\n    ^bb0(%i: !ttile.buffer<[8], f32>):\n"
        "      tsched.copy %0, %1\n      tsched.free %0\n      tsched.yield\n    })",
        "`tsched.copy` uses a buffer that was freed",
    ),
    "behind a loop": (
        "tsched.for %x {carried = 0, length = 2} ({\n    ^bb0(%i: !ttile.buffer<[8], f32>):\n"
        "      tsched.yield\n    })\n    tsched.free %0\n    tsched.copy %0, %1",
        "`tsched.copy` uses a buffer that was freed",
    ),
    "twice": ("tsched.copy %0, %1\n    tsched.free %0\n    tsched.free %0", "a buffer is freed twice"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_used_behind_its_end_is_refused(name: str) -> None:
    load_dialects()
    verify(parse_module(TEXT.format(body="tsched.copy %0, %1\n    tsched.free %0")))
    body, message = BROKEN[name]
    with pytest.raises(OpError, match=message):
        verify(parse_module(TEXT.format(body=body)))


def test_a_program_comes_back_from_its_text() -> None:
    program = program_of("chained")
    text = print_module(program)
    assert print_module(next(iter(parse_module(text).ops))).strip() == text.strip()
