"""Control flow: what bodies may take and give, and what loops mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.ir.base.tape import Record, Tape
from tessera.types.dim import Dim
from tessera.types.dtype import bool_, f32, i64
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, registry, tensor


def tape(inputs: list[TensorType], outputs: list[TensorType]) -> Tape:
    """A body of these types that does something or other."""
    made = Tape()
    made.inputs = [made.new_value(type) for type in inputs]
    made.outputs = [made.new_value(type) for type in outputs]
    made.records.append(Record("tgraph.anything", tuple(made.inputs), {}, tuple(made.outputs)))
    return made


def run(op: str, *arrays: Array, **attributes: Any) -> tuple[Array, ...]:
    reference = registry()[op].reference
    assert reference is not None
    found = reference(*arrays, **attributes)
    assert isinstance(found, tuple)
    return found


X, N, FLAG = tensor("B", 4, dtype=f32), tensor(dtype=i64), tensor(dtype=bool_)


def test_cond_runs_one_branch() -> None:
    def then(x: Any) -> Any:
        return (x + 1,)

    def otherwise(x: Any) -> Any:
        return (x * 2,)

    x = np.arange(3.0)
    branches: dict[str, Any] = {"then": then, "otherwise": otherwise}
    np.testing.assert_array_equal(run("cond", np.array(True), x, **branches)[0], x + 1)
    np.testing.assert_array_equal(run("cond", np.array(False), x, **branches)[0], x * 2)
    assert infer("cond", FLAG, X, then=tape([X], [X, N]), otherwise=tape([X], [X, N])) == [X, N]


def test_while_asks_first_and_passes_what_it_captured() -> None:
    def below(n: Any, by: Any) -> Any:
        return (n < 10,)

    def add(n: Any, by: Any) -> Any:
        return (n + by,)

    loop: dict[str, Any] = {"condition": below, "body": add, "carried": 1}
    (out,) = run("while", np.array(0), np.array(3), **loop)
    assert out == 12
    (out,) = run("while", np.array(50), np.array(3), **loop)
    assert out == 50
    body, condition = tape([X, N], [X]), tape([X, N], [FLAG])
    assert list(infer("while", X, N, condition=condition, body=body, carried=1)) == [X]


def test_fori_counts() -> None:
    def add(i: Any, total: Any) -> Any:
        return (total + i,)

    (out,) = run("fori", np.array(2), np.array(5), np.array(0), body=add, carried=1)
    assert out == 2 + 3 + 4
    assert list(infer("fori", N, N, X, body=tape([N, X], [X]), carried=1)) == [X]


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_carries_and_stacks(reverse: bool) -> None:
    def add(total: Any, row: Any) -> Any:
        return total + row, total + row

    x = np.arange(12.0).reshape(4, 3)
    total, sums = run("scan", np.zeros(3), x, body=add, carried=1, scanned=1, reverse=reverse)
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(sums, np.cumsum(x[::-1], 0)[::-1] if reverse else np.cumsum(x, 0))
    _, empty = run("scan", np.zeros(3), x[:0], body=add, carried=1, scanned=1)
    assert empty.shape == (0, 3)


def test_scan_stacks_along_the_scanned_dim() -> None:
    rows, row = tensor("T", "B", 4, dtype=f32), tensor("B", 4, dtype=f32)
    given = infer("scan", X, rows, body=tape([X, row], [X, N]), carried=1, scanned=1)
    assert [str(type) for type in given] == ["[B, 4] f32", "[T] i64"]
    given = infer("scan", X, body=tape([X], [X, X]), carried=1, length=(Dim.constant(7),))
    assert [str(type) for type in given] == ["[B, 4] f32", "[7, B, 4] f32"]


def test_dims_that_may_be_equal_are_guarded() -> None:
    rules = Rules()
    infer("fori", N, N, X, body=tape([N, X], [tensor("C", 4, dtype=f32)]), carried=1, rules=rules)
    assert rules.guards == [(Dim.symbol("C"), Dim.symbol("B"))]


def test_control_says_what_is_wrong() -> None:
    with pytest.raises(RuleError, match="one bool"):
        infer("cond", N, X, then=tape([X], [X]), otherwise=tape([X], [X]))
    with pytest.raises(RuleDTypeError, match="value 0 of what the second branch gives is"):
        infer("cond", FLAG, X, then=tape([X], [X]), otherwise=tape([X], [X.with_dtype(i64)]))
    with pytest.raises(RuleError, match=r"value 0 of what the body gives is \[B, 5\] f32, and must be \[B, 4\] f32"):
        infer("fori", N, N, X, body=tape([N, X], [tensor("B", 5, dtype=f32)]), carried=1)
    with pytest.raises(RuleError, match="has 1 values where 2 are needed"):
        infer("while", X, N, condition=tape([X, N], [FLAG]), body=tape([X, N], [X]), carried=2)
    with pytest.raises(RuleError, match="its condition"):
        infer("while", X, condition=tape([X], [X]), body=tape([X], [X]), carried=1)
    with pytest.raises(RuleError, match="needs `length`"):
        infer("scan", X, body=tape([X], [X]), carried=1)
    with pytest.raises(RuleError, match="is a scalar"):
        infer("scan", N, body=tape([N], []), carried=0, scanned=1)
