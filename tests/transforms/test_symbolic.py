"""Derivatives of every op with symbolic dims: one program for sizes that are empty, single and ragged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.transforms.op_derivatives import OpDerivative, derivatives

EVERY = derivatives()
COMPILED = 8
"""Of so many ops one is compiled too; where to begin is changed by hand, and `python -m` of this file tries all."""


def check_all_sizes(one: OpDerivative, **options: str) -> None:
    """One program, and what it gives at each size."""
    function = one.jitted(**options)
    for number in one.numbers_of_sizes():
        case, directions = one.case(number)
        with np.errstate(all="ignore"):
            tangents, cotangents = function(*case.given, *directions)
            one.check(number, tangents, cotangents)
    assert function.cache_info().misses == 1


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.spec.short_name)
def test_one_program_of_derivatives_serves_all_sizes(one: OpDerivative) -> None:
    check_all_sizes(one, backend="reference")


@pytest.mark.slow
@pytest.mark.parametrize("one", EVERY[3::COMPILED], ids=lambda one: one.spec.short_name)
def test_one_compiled_program_of_derivatives_serves_all_sizes(one: OpDerivative) -> None:
    check_all_sizes(one)


def test_every_family_of_ops_is_tried() -> None:
    assert len(EVERY) >= 120
    empty = [one for one in EVERY if any(0 in one.form.sizes[at].values() for at in one.numbers_of_sizes())]
    assert len(empty) >= 60


if __name__ == "__main__":
    for each in EVERY:
        try:
            check_all_sizes(each)
        except Exception as problem:
            print(each.spec.short_name, type(problem).__name__, problem, flush=True)
