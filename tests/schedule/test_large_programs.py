"""Programs of many ops: groups stop growing, so that neither recursion nor compile time grows with a chain."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts
from tessera import ops
from tessera.ir.schedule.fusion import RULES
from tessera.ir.schedule.grouping import LARGEST, group_tape
from tessera.ir.schedule.program import Program
from tests.schedule.programs import tensor, trace

X = np.linspace(-1, 1, 24, dtype=np.float32)


def chain(count: int) -> Any:
    def run(x: Any) -> Any:
        for _ in range(count):
            x = ops.abs(x) * 0.5
        return x

    return run


def sizes(function: Any, dims: str = "24") -> list[int]:
    """How many records each group has."""
    grouping = group_tape(Program(trace(function, tensor(dims))), lambda knob, record: True, RULES)
    return [len(group.records) for group in grouping.groups]


def test_groups_stop_growing() -> None:
    found = sizes(chain(200))
    assert sum(found) == 400
    assert max(found) <= LARGEST
    assert len(found) == -(-400 // LARGEST)
    rows = sizes(lambda x: chain(100)(ops.sum(chain(100)(x), axis=-1, keepdims=True)), "4 6")
    assert max(rows) <= LARGEST


def test_groups_that_fit_are_not_cut() -> None:
    assert sizes(chain(LARGEST // 2)) == [LARGEST]


def test_a_chain_of_two_thousand_ops() -> None:
    jitted: Any = ts.jit(chain(1000))
    given = np.asarray(jitted(X))
    wanted = X
    for _ in range(1000):
        wanted = np.abs(wanted) * np.float32(0.5)
    np.testing.assert_array_equal(given, wanted)


def test_a_sum_of_three_hundred_arguments() -> None:
    def total(*parts: Any) -> Any:
        result = parts[0]
        for part in parts[1:]:
            result = result + part
        return result

    assert np.asarray(ts.jit(total)(*[X] * 300)).tolist() == total(*[X] * 300).tolist()


def test_three_hundred_results() -> None:
    given = ts.jit(lambda x: tuple(x[at % 24] + ops.sum(x * 2.0) for at in range(300)))(X)
    np.testing.assert_allclose([float(one) for one in given], [X[at % 24] for at in range(300)], atol=1e-5)


def test_a_long_chain_between_a_matmul_and_a_sum_of_columns() -> None:
    """Who computes what such a sum reads is found without recursion."""

    def run(x: Any, w: Any) -> Any:
        y = x @ w
        for _ in range(1500):
            y = y * 1.0009765625
        return ops.sum(y, axis=0)

    x = X.reshape(6, 4)
    wanted = np.abs(x).astype(np.float64).sum(0) * 1.0009765625**1500
    # Each product rounds once.
    np.testing.assert_allclose(ts.jit(run)(np.abs(x), np.eye(4, dtype=np.float32)), wanted, rtol=1500 * 2.0**-24)
