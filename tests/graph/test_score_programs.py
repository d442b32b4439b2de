"""Score programs: what their lines may be, derivatives as lines, and attention that refuses what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.graph.score_forms import ArrayArithmetic, index_arrays
from tessera.ir.graph.score_programs import (
    FIRST,
    HEAD,
    KEY,
    QUERY,
    SCORE,
    Lines,
    ProgramWriter,
    dependences,
    derive,
    evaluate,
)
from tessera.types.dtype import bool_, f32, f64, i32, i64
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, infer, tensor

Q = tensor(1, 2, 5, 8, dtype=f32)
CAUSAL: Lines = (("ge", (QUERY, KEY), None),)


def number(value: float) -> Any:
    return ("constant", (), (value, f32))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"score": (("swirl", (0,), None),)}, "`swirl` of f32 is no line"),
        ({"score": (("add", (0, 9), None),)}, "no line on values before it"),
        ({"score": (("add", (0, 3), None),)}, "`add` of f32, i32 is no line"),
        ({"score": (("not", (0,), None),)}, "does not take f32"),
        ({"score": (("ge", (3, 4), None), ("select", (5, 0, 3), None))}, "takes a bool and two of one dtype"),
        ({"score": (("load", (2, 3), 0),)}, r"read at \[i32, i32\]"),
        ({"score": (("load", (0,), 0),)}, r"read at \[f32\]"),
        ({"score": (("load", (2,), 1),)}, "no line"),
        ({"score": CAUSAL}, "gives f32 for scores of f32, got bool"),
        ({"mask": (number(1.0),)}, "gives bool for scores of f32, got f32"),
    ],
)
def test_a_line_that_is_none_is_refused(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleDTypeError, match=words):
        infer("scored_attention", Q, Q, Q, tensor(2, dtype=f32), **attributes)


def test_operands_that_are_none_are_refused() -> None:
    seen: Lines = (number(0.0), ("gt", (SCORE, FIRST), None))
    with pytest.raises(RuleError, match="does not read them"):
        infer("scored_attention", Q, Q, Q, mask=seen)
    with pytest.raises(RuleError, match="how many keys there are"):
        infer("scored_attention", Q, Q, Q, mask=CAUSAL, cached=True)
    with pytest.raises(RuleError, match="2 tensors of ranges"):
        infer("scored_attention", Q, Q, Q, tensor(1, 1, 1, dtype=i64), mask=CAUSAL, ranges=True)
    with pytest.raises(RuleError, match=r"i64 \[batch, heads, blocks\]"):
        infer("scored_attention", Q, Q, Q, *[tensor(1, 1, 1, dtype=i32)] * 2, mask=CAUSAL, ranges=True)
    with pytest.raises(RuleError, match="needs `delta` of 3 axes"):
        infer("scored_attention_backward", Q, Q, Q, Q, tensor(1, 2, 5, dtype=f32), Q, mask=CAUSAL)
    with pytest.raises(RuleError, match=r"tangent of operand 0"):
        infer(
            "scored_attention_tangent", Q, Q, Q, Q, tensor(1, 2, 5, dtype=f32), tensor(1, 2, 4, 8, dtype=f32), by=(0,)
        )


def test_lines_are_written_once_and_unused_ones_are_dropped() -> None:
    writer = ProgramWriter(f32, [])
    first = writer.elementwise("sub", QUERY, KEY)
    assert writer.elementwise("sub", QUERY, KEY) == first
    assert writer.constant(0.0, f32) != writer.constant(-0.0, f32)
    assert writer.finish(writer.elementwise("abs", first)) == (("sub", (QUERY, KEY), None), ("abs", (5,), None))
    assert writer.finish(SCORE) == (("cast", (SCORE,), f32),)


def test_dependences_go_through_what_is_read() -> None:
    writer = ProgramWriter(f32, [TensorType.of((4, 9), f32)])
    read = writer.load(0, [(0, HEAD), (0, writer.elementwise("sub", QUERY, KEY))])
    lines = writer.finish(writer.elementwise("add", SCORE, read))
    assert dependences(lines)[-1] == {SCORE, HEAD, QUERY, KEY}


def program(name: str, writer: ProgramWriter) -> int:
    two = writer.constant(2.0, f64)
    if name == "cap":
        return writer.elementwise("mul", two, writer.elementwise("tanh", writer.elementwise("div", SCORE, two)))
    if name == "chosen":
        return writer.select(writer.elementwise("ge", QUERY, KEY), writer.elementwise("mul", SCORE, SCORE), two)
    if name == "scaled":
        read = writer.load(0, [(0, HEAD)])
        return writer.elementwise("exp", writer.elementwise("mul", writer.elementwise("mul", SCORE, read), read))
    distance = writer.cast(writer.elementwise("sub", QUERY, KEY), f64)
    return writer.elementwise("pow", writer.elementwise("add", writer.elementwise("abs", SCORE), two), distance)


@pytest.mark.parametrize("name", ["cap", "chosen", "scaled", "power"])
def test_derivatives_are_central_differences(name: str) -> None:
    table = np.array([0.5, -1.25])
    types = [TensorType.of((2,), f64)]
    writer = ProgramWriter(f64, types)
    lines = writer.finish(program(name, writer))
    scores = np.random.default_rng(0).standard_normal((1, 2, 3, 4))
    where, step = index_arrays(*scores.shape), 1e-6
    slope = derive(lines, SCORE, f64, types)
    assert slope is not None

    def run(program: Lines, moved: float) -> Any:
        return evaluate(program, [scores + moved, *where], ArrayArithmetic([table]))[-1]

    wanted = (run(lines, step) - run(lines, -step)) / (2 * step)
    np.testing.assert_allclose(np.broadcast_to(run(slope, 0.0), scores.shape), wanted, rtol=1e-6, atol=1e-7)


def test_what_does_not_depend_on_a_score_has_no_slope() -> None:
    writer = ProgramWriter(f32, [TensorType.of((2,), f32), TensorType.of((2,), bool_)])
    lines = writer.finish(writer.load(0, [(0, HEAD)]))
    assert derive(lines, SCORE, f32, writer.captures) is None
    assert derive(lines, FIRST, f32, writer.captures) is not None
    rounded = writer.finish(writer.cast(writer.cast(SCORE, i32), f32))
    assert derive(rounded, SCORE, f32, writer.captures) is None
