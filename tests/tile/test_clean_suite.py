"""Every op on its way through the schedule: no access of its kernels is refuted, and no two programs meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import BoundsError, RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.ir.tile.passes.check_barriers import CheckBarriers
from tessera.ir.tile.passes.check_bounds import CheckBounds
from tessera.ir.tile.passes.check_races import CheckRaces
from tessera.ir.tile.pipeline import pipeline
from tessera.types.shape import TensorType
from tests.graph.eager import RuleError, Rules, registry, type_of

OPS = {spec.short_name: spec for spec in registry() if spec.samples and spec.reference is not None}


def tape_of(spec: OpSpec, sample: Sample, *, is_free: bool) -> Tape:
    """A program of one op; equal sizes share a name where dims are free."""
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
    tape, rules = Tape(), Rules()
    for array in arrays:
        shape: list[Any] = [f"N{size}" if is_free and size > 1 else size for size in array.shape]
        tape.inputs.append(tape.new_value(TensorType.of(shape, type_of(array).dtype)))
    tape.names = [f"x{value}" for value in tape.inputs]
    attributes = spec.with_defaults(sample.attributes)
    tape.outputs = [tape.new_value(type) for type in spec.infer(rules, tape.types[: len(arrays)], attributes)]
    tape.records = [Record(spec.name, tuple(tape.inputs), attributes, tuple(tape.outputs))]
    tape.guards = [Guard(left, right, "the op's rule") for left, right in rules.guards]
    return tape


@pytest.mark.parametrize("op", OPS)
def test_no_report(op: str) -> None:
    spec = OPS[op]
    for is_free in (False, True):
        try:
            tape = tape_of(spec, spec.samples[0], is_free=is_free)
        except RuleError:
            # A dim that must be a number (the words of a key) cannot be free.
            assert is_free
            continue
        lower(tape, Options(debug=True))


def test_a_debug_build_refuses_a_mistake_that_any_kernel_makes() -> None:
    """Each bound dropped and each program taken out of a store, one at a time, in kernels that were right."""
    kernels = lower(tape_of(OPS["softmax"], OPS["softmax"].samples[0], is_free=True), Options()).kernels
    for kernel in kernels:
        for number, op in enumerate(kernel.walk()):
            if isinstance(op, SpecOp) and op.name in ("ttile.load", "ttile.store") and op.value("axes"):
                none = [-1] * len(op.value("bounds"))
                # Lines of lanes are whole: they need no bound.
                is_whole = all(bound.value == -1 for bound in op.value("bounds"))
                assert is_whole or is_refused(kernel, number, "bounds", none), op
            if isinstance(op, SpecOp) and op.name == "ttile.store" and op.operands[1] in kernel.regions[0].block.args:
                assert is_refused(kernel, number, "map", [0] * len(op.value("map"))), op


def is_refused(kernel: SpecOp, number: int, name: str, value: Any) -> bool:
    """Whether a debug build says no to a copy of the kernel with one attribute changed."""
    copy = kernel.clone()
    changed = list(copy.walk())[number]
    assert isinstance(changed, SpecOp)
    changed.set_value(name, value)
    module = ModuleOp([copy])
    checks = [one for one in pipeline(debug=True) if isinstance(one, CheckBounds | CheckRaces | CheckBarriers)]
    assert len(checks) == 3
    for one in checks:
        try:
            one.run(module)
        except (BoundsError, RaceError):
            return True
    return False
