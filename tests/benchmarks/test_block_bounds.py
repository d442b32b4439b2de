"""What the model says of drawn matmuls: which are drawn, what is printed, and that no block is far from its bound."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import block_bounds
from benchmarks.block_bounds import LEAST, MOST, draw, predict, predictions


def test_sizes_are_those_that_tma_takes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        (m, n, k), form = draw(rng)
        assert m % 8 == n % 8 == k % 8 == 0
        assert LEAST < 2.0 * m * n * k < MOST
        assert form in block_bounds.FORMS


def test_predictions_are_no_better_than_the_bound_and_the_worst_come_first() -> None:
    found = predictions(1, 60)
    ratios = [one.ratio for one in found]
    assert ratios == sorted(ratios, reverse=True)
    assert all(ratio >= 1 for ratio in ratios)


def test_large_matmuls_are_near_their_bound() -> None:
    for size in ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 16384, 4096)):
        for form in block_bounds.FORMS:
            found = predict(size, form)
            assert found is not None
            assert found.ratio < 1.12


def test_few_rows_have_another_rule() -> None:
    assert predict((16, 8192, 8192), "nt") is None


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    block_bounds.main(["--draws", "20", "--show", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("median ")
