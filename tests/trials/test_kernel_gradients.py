"""A few kernels that nobody chose: each is refused, or has the derivatives of central differences."""

from __future__ import annotations

import pytest

from tests.trials.kernel_gradients import run


@pytest.mark.slow
def test_drawn_kernels_are_refused_or_derived_right() -> None:
    counts, _, failed = run(10, seed=3)
    assert not failed, failed[0]
    assert counts["derived"] >= 5
