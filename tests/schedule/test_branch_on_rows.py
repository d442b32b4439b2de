"""Groups for few rows beside those for many: whatever the sizes, the same bits; and each block where it was chosen."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import ops
from tessera.backends.nvptx.block_model import MODELS
from tessera.backends.reference.compile import run_tape
from tessera.compiler.backend import machines
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.verify import verify
from tessera.ir.schedule.passes.branch_on_rows import LIMITS, BranchOnRows
from tessera.ir.schedule.plan import choices_for, fusions_in
from tessera.ir.schedule.typed_ops import IfOp
from tessera.types.machine import Machine
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import MACHINE, run_schedule, simplify, tensor, trace

BEFORE = 5
"""Passes of the schedule stage before this one."""


def layer(x: Any, w: Any, b: Any) -> Any:
    return ops.relu(x @ w + b) @ ops.transpose(w)


@settings(max_examples=25)
@given(
    sizes=st.tuples(st.integers(0, 4), st.integers(0, 5)),
    limits=st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True),
)
def test_meaning_is_kept(sizes: tuple[int, int], limits: list[int]) -> None:
    """Sizes on both sides of each limit, and at it; nothing at all too."""
    tape = trace(layer, tensor("B S 6"), tensor("6 10"), tensor("10"))
    rng = np.random.default_rng(7)
    shapes = ((*sizes, 6), (6, 10), (10,))
    arrays = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    module = run_schedule(simplify(tape), steps=BEFORE)
    BranchOnRows(limits=tuple(limits)).run(module)
    verify(module)
    assert sum(isinstance(op, IfOp) for op in module.walk()) == 2 * len(limits)
    (found,), (wanted,) = run_program(module, *arrays), run_tape(tape, arrays)
    np.testing.assert_array_equal(found, wanted)


def plan_for(*types: Any) -> Any:
    chooser = StaticChooser(models=MODELS)
    tape = trace(lambda x, w: ops.gelu(x @ w), *types)
    return run_schedule(simplify(tape), steps=BEFORE + 2, chooser=chooser, machine=machines()["sm_90a"])


def test_blocks_are_those_of_programs_with_as_many_rows() -> None:
    free = {fuse.rows: choices_for(fuse)["contraction.block"].value for fuse in fusions_in(plan_for(*_types("M")))}
    assert set(free) > {-1, 64}
    for rows, block in free.items():
        (alone,) = fusions_in(plan_for(*_types("4096" if rows < 0 else str(rows))))
        assert choices_for(alone)["contraction.block"].value == block


def _types(rows: str) -> tuple[Any, Any]:
    return tensor(f"{rows} 768", "bf16"), tensor("768 3072", "bf16")


def test_a_block_that_is_asked_for_is_that_of_all_rows() -> None:
    chooser = StaticChooser({"contraction.block": (128, 128, 64)})
    tape = trace(lambda x, w: x @ w, *_types("M"))
    module = run_schedule(simplify(tape), steps=BEFORE + 2, chooser=chooser, machine=machines()["sm_90a"])
    assert not any(isinstance(op, IfOp) for op in module.walk())


@pytest.mark.parametrize(("rows", "machine"), [("M", MACHINE), ("64", machines()["sm_90a"])], ids=["cpu", "static"])
def test_static_rows_and_cpus_have_no_branches(rows: str, machine: Machine) -> None:
    tape = trace(lambda x, w: x @ w, *_types(rows))
    module = run_schedule(simplify(tape), steps=BEFORE + 2, machine=machine)
    assert not any(isinstance(op, IfOp) for op in module.walk())


def test_limits_are_in_order_and_chosen_for_rows_within() -> None:
    limits = list(LIMITS)
    assert limits == sorted(limits)
    for lower, limit in zip([0, *limits], limits, strict=False):
        assert lower < LIMITS[limit] <= limit
