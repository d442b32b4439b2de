"""Comparing two checkouts: this one with itself has equal bits, and the report says what is slow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import commits


def test_a_checkout_has_the_bits_of_itself() -> None:
    this, other = (commits.Checkout(commits.ROOT, "cpu") for _ in range(2))
    row = commits.compare(this, other, "call 4", rounds=1)
    assert row["equal"]
    assert row["ratio"] > 0
    for one in (this, other):
        with one.process:
            one.process.communicate()
        assert one.process.returncode == 0


def test_a_row_that_no_checkout_has_ends_the_comparison() -> None:
    checkout = commits.Checkout(commits.ROOT, "cpu")
    with checkout.process, pytest.raises(RuntimeError, match="ended with status 1"):
        checkout.ask(row="no such row")


def test_the_report_names_results_that_differ_and_the_lowest_ratio() -> None:
    rows = [
        {"row": "a", "equal": True, "this_us": 1.0, "other_us": 2.0, "ratio": 2.0},
        {"row": "b", "equal": False, "this_us": 2.0, "other_us": 1.0, "ratio": 0.5},
    ]
    text = commits.report(rows)
    assert "DIFFER" in text
    assert text.endswith("geometric mean 1.000, lowest 0.500")


def test_without_another_checkout_it_says_what_to_give() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.commits"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "name the root of another checkout" in done.stderr
