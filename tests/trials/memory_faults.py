"""Faults put into memory ops of lowered kernels, and which of the product's verifiers finds each: [count] [seed].

A whole run takes every fault there is: `python -m tests.trials.memory_faults`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tessera.backends.cpu.passes.check_accesses import REFUTED, examine
from tessera.backends.cpu.passes.compare_accesses import compare_accesses
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tests.target.mutations import ACCESSES, LOOPS, Fault, faults_of
from tests.target.samples import MACHINES, NAMES, lower_samples


def ops_of(kernel: SpecOp) -> list[SpecOp]:
    names = (*ACCESSES, *LOOPS)
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name in names]


def all_faults() -> Iterator[tuple[str, SpecOp, SpecOp, int, Fault]]:
    for name in NAMES:
        for tile, target in lower_samples(name, MACHINES["avx2"]):
            for number, op in enumerate(ops_of(target)):
                for fault in faults_of(op):
                    yield name, tile, target, number, fault


def reveal(tile: SpecOp, target: SpecOp, has_loops: bool = False) -> str:
    """Who notices that something is wrong: verifier, comparison or bounds; empty where no one does."""
    try:
        verify(target)
    except OpError:
        return "verifier"
    try:
        compare_accesses(tile, target, has_loops=has_loops)
    except OpError:
        return "comparison"
    return "bounds" if any(finding.verdict == REFUTED for finding in examine(target)) else ""


@dataclass
class Tally:
    """Faults tried and found, by kind and by who found them."""

    by: Counter[str] = field(default_factory=Counter[str])
    tried: Counter[str] = field(default_factory=Counter[str])
    missed: list[str] = field(default_factory=list[str])

    def rate(self, kind: str = "") -> float:
        """The share that is found, of one kind or of all."""
        lost = sum(line.startswith(f"{kind}:") or not kind for line in self.missed)
        return 1 - lost / (self.tried[kind] if kind else self.tried.total())

    def __str__(self) -> str:
        head = f"{self.tried.total()} faults, {self.rate():.2%} found, by {dict(self.by)}"
        return "\n".join(
            [head, *(f"  {kind}: {self.rate(kind):.1%} of {self.tried[kind]}" for kind in self.tried), *self.missed]
        )


def try_faults(count: int | None = None, seed: int = 7) -> Tally:
    """Put so many faults, drawn, into copies of kernels, one at a time; all of them where no count is given."""
    faults = list(all_faults())
    tally = Tally()
    for name, tile, target, number, fault in random.Random(seed).sample(faults, count or len(faults)):
        copy = target.clone()
        assert isinstance(copy, SpecOp)
        fault.inject(ops_of(copy)[number])
        who = reveal(tile, copy)
        tally.by[who] += 1
        tally.tried[fault.kind] += 1
        if not who:
            tally.missed.append(f"{fault.kind}: {name}, {ops_of(target)[number].name}: {fault.what}")
    return tally


if __name__ == "__main__":
    print(try_faults(*map(int, sys.argv[1:])))
