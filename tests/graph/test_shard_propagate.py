"""Propagation of shardings through programs: forwards, backwards, by weight, and conflicts that name both sides."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.tape import Tape
from tessera.ir.graph.sharding.partition import lower_composites
from tessera.ir.graph.sharding.propagate import Propagation
from tessera.types.sharding import Sharding

MESH = {"dp": 2, "tp": 2}
of = Sharding.of


def trace(function: Callable[..., Any], *shapes: Sequence[int]) -> Tape:
    return ts.jit(function).trace(*(np.ones(shape, np.float32) for shape in shapes)).tape


def run(tape: Tape, *given: Sharding | None, mesh: dict[str, int] | None = None) -> Propagation:
    pairs = zip(tape.inputs, given, strict=False)
    return Propagation(tape, mesh or MESH, {value: one for value, one in pairs if one is not None})


def inputs(found: Propagation) -> list[str]:
    return [str(found.shardings[value]) for value in found.tape.inputs]


def outputs(found: Propagation) -> list[str]:
    return [str(found.shardings[value]) for value in found.tape.outputs]


def test_columns_of_the_first_weight_are_rows_of_the_second() -> None:
    tape = trace(lambda x, a, b: ops.relu(x @ a) @ b, (8, 4), (4, 6), (6, 4))
    found = run(tape, of("dp", None), of(None, "tp"))
    assert inputs(found) == ["[{dp}, {}]", "[{}, {tp}]", "[{tp}, {}]"]
    assert outputs(found) == ["[{dp}, {}]"]
    assert not found.conflicts


def test_a_result_decides_for_what_it_comes_from() -> None:
    tape = trace(lambda x: ops.transpose(ops.exp(x)).reshape((6, 2, 4)), (8, 6))
    found = Propagation(tape, MESH, {tape.outputs[0]: of("dp", "tp", None)})
    assert inputs(found) == ["[{tp}, {dp}]"]


def test_a_reshape_takes_the_outer_factor_along() -> None:
    tape = trace(lambda x: x.reshape((2, 4, 6)), (8, 6))
    assert outputs(run(tape, of("dp", None))) == ["[{dp}, {}, {}]"]
    # Two axes do not fit into the outer factor of 2.
    assert outputs(run(tape, of(("dp", "tp"), None))) in (["[{dp}, {}, {}]"], ["[{tp}, {}, {}]"])


def test_what_does_not_come_out_even_is_left_whole() -> None:
    tape = trace(lambda x: ops.concat([x, x[:, :3]], axis=1), (8, 6))
    assert outputs(run(tape, of("dp", "tp"))) == ["[{dp}, {}]"]
    odd = trace(lambda x, w: x @ w, (8, 4), (4, 5))
    assert outputs(run(odd, of("dp", None), of(None, None))) == ["[{dp}, {}]"]


def test_elementwise_ops_come_before_contractions() -> None:
    # The sum would let the product have `dp` along its columns; the addition lets it have it along its rows, first.
    tape = trace(lambda x, a, y: x @ a + y, (8, 4), (4, 8), (8, 8))
    found = run(tape, None, of(None, "dp"), of("dp", None))
    assert outputs(found) == ["[{dp}, {}]"]
    assert inputs(found)[0] == "[{}, {}]"
    (conflict,) = found.conflicts
    assert (conflict.op, conflict.axis) == ("matmul", "dp")
    assert {conflict.first, conflict.second} == {
        "dim 1 of `a`",
        f"dim 0 of `{found.program.names[tape.records[0].results[0]]}`",
    }
    assert "axis `dp` at dim 1 of `a`" in str(conflict)


def test_what_is_given_stays() -> None:
    tape = trace(lambda x, y: x + y, (8, 4), (8, 4))
    found = run(tape, of("dp", None), of(None, "dp"))
    assert inputs(found) == ["[{dp}, {}]", "[{}, {dp}]"]
    assert outputs(found) == ["[{}, {}]"]
    assert len(found.conflicts) == 1
    whole = run(tape, of("dp", None), of(None, None))
    assert inputs(whole) == ["[{dp}, {}]", "[{}, {}]"]
    assert outputs(whole) == ["[{dp}, {}]"]


def test_what_cannot_be_is_refused_by_the_name_of_the_argument() -> None:
    tape = trace(lambda weights, x: x @ weights, (6, 5), (4, 6))
    with pytest.raises(ShardingError, match=r"`weights.shape\[1\] = 5` cannot be cut into 2 equal parts over `tp` 2"):
        run(tape, of(None, "tp"))
    with pytest.raises(ShardingError, match=r"`x.shape\[0\] = 4`.*mesh axis `ep`"):
        run(tape, None, of("ep", None))


def test_reductions_and_scans_keep_other_dims() -> None:
    tape = trace(lambda x: (ops.cumsum(x, axis=1), x.sum(1), ops.argmax(x, axis=0)), (8, 4))
    parts = run(lower_composites(tape), of("dp", "tp"))
    assert outputs(parts) == ["[{dp}, {}]", "[{dp}]", "[{tp}]"]
