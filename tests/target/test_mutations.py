"""Faults put into lowered kernels at random: how many the verifier, the bounds and the tile kernel reveal."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tessera.backends.cpu.passes.check_accesses import REFUTED, examine
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tests.oracles.compare_accesses import compare_accesses
from tests.target.mutations import ACCESSES, LOOPS, Fault, faults_of
from tests.target.samples import MACHINES, NAMES, lower_samples

COUNT = 600
"""Faults that are tried, of some thousand that there are."""


def ops_of(kernel: SpecOp) -> list[SpecOp]:
    names = (*ACCESSES, *LOOPS)
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name in names]


def all_faults() -> Iterator[tuple[str, SpecOp, SpecOp, int, Fault]]:
    for name in NAMES:
        for tile, target in lower_samples(name, MACHINES["avx2"]):
            for number, op in enumerate(ops_of(target)):
                for fault in faults_of(op):
                    yield name, tile, target, number, fault


def reveal(tile: SpecOp, target: SpecOp) -> str:
    """Who notices that something is wrong: verifier, comparison or bounds; empty where no one does."""
    try:
        verify(target)
    except OpError:
        return "verifier"
    try:
        compare_accesses(tile, target)
    except OpError:
        return "comparison"
    return "bounds" if any(finding.verdict == REFUTED for finding in examine(target)) else ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_without_faults_pass(name: str, machine: str) -> None:
    for tile, target in lower_samples(name, MACHINES[machine]):
        assert reveal(tile, target) == ""


def test_injected_faults_are_revealed() -> None:
    """At least 95 of 100, of every kind of fault at least 90; a fault is counted once, by who notices it first."""
    cases = random.Random(7).sample(list(all_faults()), COUNT)
    by: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    missed: list[str] = []
    for name, tile, target, number, fault in cases:
        copy = target.clone()
        assert isinstance(copy, SpecOp)
        fault.inject(ops_of(copy)[number])
        who = reveal(tile, copy)
        by[who] += 1
        tried[fault.kind] += 1
        if not who:
            missed.append(f"{fault.kind}: {name}, {ops_of(target)[number].name}: {fault.what}")
    lost = Counter(line.partition(":")[0] for line in missed)
    report = f"{dict(by)}\n" + "\n".join(missed)
    assert 1 - len(missed) / COUNT >= 0.95, report
    assert all(1 - lost[kind] / tried[kind] >= 0.9 for kind in tried if tried[kind] >= 10), report


def test_the_verifier_alone_reveals_what_an_access_says_of_itself() -> None:
    """Ways, alignments, names, axes, modes and written arguments need no tile kernel to be seen through."""
    own = ("pattern", "align", "read-only", "dtype")
    for _, tile, target, number, fault in random.Random(3).sample(list(all_faults()), COUNT):
        if fault.kind in own:
            copy = target.clone()
            assert isinstance(copy, SpecOp)
            fault.inject(ops_of(copy)[number])
            assert reveal(tile, copy) == "verifier", fault
