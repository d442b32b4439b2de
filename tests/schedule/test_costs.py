"""Costs of groups: bytes of inputs count as far as anything reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.ir.schedule.costs import BANDWIDTH, CLOCK
from tessera.types.rates import rates_of

X = np.ones((1000, 600), np.float32)
ROW = 600 * 4
INDICES = np.arange(10)


def groups_of(function: Any, *arrays: Any) -> list[dict[str, Any]]:
    made: Any = ts.jit(function)
    made(*arrays)
    return made.specializations[-1].loaded.executable.metadata["work"]


def cut(x: Any) -> Any:
    return x[:10] * 2.0


def step(x: Any) -> Any:
    return x[::100] * 2.0


def gather(x: Any) -> Any:
    return ts.ops.take(x, INDICES, axis=0)


def cut_twice(x: Any) -> Any:
    return x[:10] * 2.0 + x[10:20]


def transpose(x: Any) -> Any:
    return ts.ops.transpose(x) + 1.0


def broadcast(x: Any) -> Any:
    return ts.ops.broadcast_to(x[0], (1000, 600)) + 1.0


def split(x: Any) -> Any:
    return ts.ops.split(x, [10, 990], axis=0)[0] * 2.0


def read_all(x: Any) -> Any:
    return x[:10].sum() + x.sum()


def multiply(x: Any) -> Any:
    return ts.ops.matmul(x, x.T)


def add_up(x: Any) -> Any:
    return x.sum()


@pytest.mark.parametrize(
    ("function", "moved"),
    [
        (cut, 20 * ROW),
        (step, 20 * ROW),
        (gather, 20 * ROW + 80),
        (cut_twice, 30 * ROW),
        (transpose, 2 * X.nbytes),
        (broadcast, X.nbytes + ROW),
        (split, 20 * ROW),
        (read_all, X.nbytes + 8),
    ],
)
def test_what_nobody_reads_costs_nothing(function: Any, moved: int) -> None:
    assert int(groups_of(function, X)[-1]["bytes"]) == moved


def test_of_symbolic_sizes_a_gather_reads_the_smaller_of_both() -> None:
    def rows(x: ts.Tensor["A", "B", ts.f32], index: ts.Tensor["N", ts.i64]) -> Any:
        return ts.ops.take(x, index, axis=0)

    assert groups_of(rows, X, INDICES)[-1]["bytes"] == "4*B*N + 8*N + min(4*A*B, 4*B*N)"


def test_a_group_says_what_it_writes_and_how_it_computes() -> None:
    (group,) = groups_of(multiply, X)
    assert (group["has_dots"], group["dtype"], group["kind"]) == (True, "f32", "contraction")
    assert int(group["written"]) == 1000 * 1000 * 4
    assert int(group["flops"]) == 2 * 1000 * 1000 * 600
    (group,) = groups_of(add_up, X[:100].astype(np.float64))
    assert (group["has_dots"], group["dtype"], group["written"]) == (False, "f64", "8")
    # Of many elements ten programs have a run of leaves each, which another kernel joins.
    (group,) = groups_of(add_up, X.astype(np.float64))
    assert (len(group["kernels"]), group["blocks"], group["written"]) == (2, "10", "80")


def test_the_orders_of_magnitude_that_plans_are_compared_by_are_those_measured() -> None:
    """They stay as they are where a record is made anew: programs that are written down say times by them."""
    rates = rates_of("cpu")
    assert rates is not None
    assert 0.5 < BANDWIDTH / rates.unit_curve[-1][1] < 2
    lanes = 16
    assert 0.5 < CLOCK / (rates.compute("f32", 1) / (4 * lanes)) < 2
