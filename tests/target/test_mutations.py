"""Faults put into lowered kernels at random: how many the verifier, the bounds and the tile kernel reveal."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tessera import ops
from tessera.backends.cpu.passes import lower_kernels
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.error import InternalError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import Machine
from tests.kernel import kernels
from tests.schedule.programs import tensor, trace
from tests.target.mutations import faults_of
from tests.target.samples import MACHINES, NAMES, lower_samples
from tests.trials.memory_faults import all_faults, ops_of, reveal, try_faults
from tests.trials.test_kernel_blocks import dot_of_transposed

COUNT = 300
"""Faults that are tried, of some thousand that there are."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_without_faults_pass(name: str, machine: str) -> None:
    for tile, target in lower_samples(name, MACHINES[machine]):
        assert reveal(tile, target) == ""


def test_injected_faults_are_revealed() -> None:
    """At least 95 of 100, of every kind of fault at least 90; a fault is counted once, by who notices it first."""
    tally = try_faults(COUNT)
    assert tally.rate() >= 0.95, tally
    assert all(tally.rate(kind) >= 0.9 for kind, tried in tally.tried.items() if tried >= 10), tally


def test_the_verifier_alone_reveals_what_an_access_says_of_itself() -> None:
    """Ways, alignments, names, axes, modes and written arguments need no tile kernel to be seen through."""
    own = ("pattern", "align", "read-only", "dtype")
    for _, tile, target, number, fault in random.Random(3).sample(list(all_faults()), COUNT):
        if fault.kind in own:
            copy = target.clone()
            assert isinstance(copy, SpecOp)
            fault.inject(ops_of(copy)[number])
            assert reveal(tile, copy) == "verifier", fault


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [(kernels.running, [(64, 32)]), (dot_of_transposed, [(70, 65), (33, 70)])],
    ids=["rows", "loops"],
)
def test_faults_in_kernels_of_users_are_revealed(kernel: Any, shapes: Sequence[tuple[int, int]]) -> None:
    """Tiles that are gone over row by row, and in loops, are other code than those in registers."""
    tile = write_kernel(kernel.program(*(np.zeros(shape, np.float32) for shape in shapes)))
    source, target = lower_kernels.translate(tile, MACHINES["avx2"])
    has_loops = source is not tile
    assert has_loops is (kernel is dot_of_transposed)
    assert reveal(source, target, has_loops) == ""
    faults = [(number, fault) for number, op in enumerate(ops_of(target)) for fault in faults_of(op)]
    for number, fault in random.Random(5).sample(faults, 40):
        copy = target.clone()
        assert isinstance(copy, SpecOp)
        fault.inject(ops_of(copy)[number])
        assert reveal(source, copy, has_loops), fault


@pytest.mark.parametrize("how", ["verify", "debug"])
def test_a_wrong_lowering_is_refused(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `TESSERA_VERIFY=1`, and in debug builds; other compilations do not look."""
    translate = lower_kernels.translate

    def translate_wrong(kernel: SpecOp, machine: Machine, unit: str) -> tuple[SpecOp, SpecOp]:
        source, target = translate(kernel, machine, unit)
        for op in ops_of(target):
            if op.name == "ttarget.load":
                op.set_value("offset", op.value("offset") + 1)
        return source, target

    monkeypatch.setattr(lower_kernels, "translate", translate_wrong)
    monkeypatch.setenv("TESSERA_REPRODUCERS", os.devnull)
    tape = trace(ops.relu, tensor("M N"))
    monkeypatch.delenv("TESSERA_VERIFY", raising=False)
    lower(tape, Options())
    if how == "verify":
        monkeypatch.setenv("TESSERA_VERIFY", "1")
    with pytest.raises(InternalError, match="is no access of the tile kernel"):
        lower(tape, Options.of(debug=how == "debug"))
