"""Compiled programs equal the executable reference to the last bit, under every policy; what is excluded is listed."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.ir.graph.ops import REGISTRY
from tests.numerics.bounds import BOUNDS
from tests.policy.programs import OTHERS, POLICIES, Program, random_program

PROGRAMS = int(os.environ.get("POLICY_PROGRAMS", "220"))
"""Ten thousand are recorded: `tests/trials/ten_thousand.py`."""
BATCH = 5
"""Programs that are compiled together: of more, those that round at random become one large kernel."""


def is_tried(seed: int) -> bool:
    """Whether a program is among these: of those that round at random two in five, as they take five times the time."""
    return POLICIES[seed % len(POLICIES)].rounding != "stochastic" or seed // len(POLICIES) % 5 in (1, 3)


SEEDS = list(itertools.islice(filter(is_tried, itertools.count(len(POLICIES))), max(PROGRAMS - len(POLICIES), 0)))


def bits_of(tensor: Any) -> Any:
    """The bits of a tensor, with all NaN alike."""
    array = np.asarray(tensor)
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide).view(np.uint64)


def check(program: Program) -> None:
    arrays = program.arrays()
    compiled, wanted = ts.jit(program)(*arrays), ts.jit(program, backend="reference")(*arrays)
    for number, (ours, theirs) in enumerate(zip(compiled, wanted, strict=True)):
        assert ours.dtype is theirs.dtype
        np.testing.assert_array_equal(bits_of(ours), bits_of(theirs), f"step {number} of {program}")


@pytest.mark.parametrize("seed", range(len(POLICIES)))
def test_n8_a_program_of_each_policy_equals_the_reference(seed: int) -> None:
    check(random_program(seed))


def test_a_product_that_is_a_tie_but_for_a_denormal_is_rounded_once() -> None:
    """A chain of fused multiply-adds whose sum in f64 lost what decides the tie."""
    check(random_program(1936))


def check_together(programs: list[Program]) -> None:
    """Several programs as one function, which compiles in less time than they do one by one."""
    arrays = [program.arrays() for program in programs]

    def every(given: list[Any]) -> list[Any]:
        return [program(*own) for program, own in zip(programs, given, strict=True)]

    compiled, wanted = ts.jit(every)(arrays), ts.jit(every, backend="reference")(arrays)
    for program, ours, theirs in zip(programs, compiled, wanted, strict=True):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(bits_of(one), bits_of(other), f"step {number} of {program}")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(SEEDS), BATCH))
def test_n8_programs_equal_the_reference_to_the_last_bit(first: int) -> None:
    check_together([random_program(seed) for seed in SEEDS[first : first + BATCH]])


def test_programs_are_of_all_policies_and_ops() -> None:
    programs = [random_program(seed) for seed in (*range(len(POLICIES)), *SEEDS)]
    assert len(programs) == PROGRAMS
    for policy in POLICIES:
        assert sum(program.policy == policy for program in programs) >= 8
    names = {step[0] for program in programs for step in program.steps}
    assert names >= set(OTHERS)
    assert len(names) >= 25


def test_the_ops_that_are_not_bit_equal_are_listed_with_why() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "numerics.md").read_text(encoding="utf-8")
    table = page.split("## Where compiled code may differ from the reference", 1)[1].split("\n## ", 1)[0]
    listed = set(
        re.findall(r"`([a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    )
    assert listed == set(BOUNDS)
    assert listed <= {spec.short_name for spec in REGISTRY}
