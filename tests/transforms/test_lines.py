"""What a transform writes names the line of the program that it comes from, and what it is of that line."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DifferentiationError, GraphVerifyError
from tessera.diagnostics.error import Span
from tessera.ir.base.tape import Record, Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.types import span_of
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types import dtype as dt
from tessera.types.shape import TensorType

X, W = np.ones((4, 3), np.float32), np.ones((3, 3), np.float32)


def layer(x: Any, w: Any) -> Any:
    y = ops.tanh(x @ w)
    return (y * y).sum()


def recur(x: Any, w: Any) -> Any:
    state, _ = ts.scan(lambda h, row: (ops.tanh(h @ w + row), ()), w[0], x)
    return state.sum()


def choose(x: Any, w: Any) -> Any:
    return ts.cond(x.sum() > 0, lambda: (x @ w).sum(), lambda: ops.exp(x).sum() * w[0, 0])


def program_of(function: Callable[..., Any]) -> Tape:
    return ts.jit(function).trace(X, W).tape


def records_of(tape: Tape) -> Iterator[Record]:
    for record in tape.records:
        yield record
        for body in record.bodies:
            yield from records_of(body)


def lines_of(tape: Tape) -> set[tuple[str, str]]:
    """The source of each record and its role."""
    return {(r.span.source_text, r.span.role) for r in records_of(tape) if r.span is not None}


@pytest.mark.parametrize("function", [layer, recur, choose], ids=lambda one: one.__name__)
def test_every_record_of_a_gradient_has_a_line_of_the_function(function: Callable[..., Any]) -> None:
    first = function.__code__.co_firstlineno
    forward = program_of(function)
    made = program_of(ts.grad(function, (0, 1)))
    spans = [record.span for record in records_of(made) if record.op not in ("tgraph.full", "tgraph.iota")]
    assert all(span is not None and span.file == __file__ and first < span.line < first + 4 for span in spans)
    texts = {text for text, _ in lines_of(forward)}
    assert {text for text, role in lines_of(made) if role.startswith("backward")} <= texts
    assert ("x @ w", "backward") in lines_of(made) or function is recur


def test_roles_tell_values_tangents_derivatives_and_the_way_back() -> None:
    made = lines_of(program_of(ts.grad(layer)))
    assert {("x @ w", ""), ("x @ w", "backward"), ("ops.tanh(x @ w)", "derivative")} <= made
    pushed = lines_of(program_of(lambda x, w: ts.jvp(layer, (x, w), (x, w))))
    assert ("x @ w", "tangent") in pushed
    assert not any(role.startswith("backward") for _, role in pushed)
    twice = lines_of(program_of(ts.grad(lambda x, w: ts.grad(layer)(x, w).sum())))
    assert ("x @ w", "backward of backward") in twice


def test_a_page_has_the_backward_apart_with_the_line_that_it_comes_from() -> None:
    gradient = ts.jit(ts.grad(layer, 1))
    gradient(X, W)
    (page,) = gradient.explain().specializations
    text = str(page)
    assert text.index("  forward:\n") < text.index("  backward:\n") < text.index("  kernels:\n")
    backward = text[text.index("  backward:\n") : text.index("  kernels:\n")]
    assert "test_lines.py" in backward
    assert "backward of `x @ w`" in backward
    assert len(page.report["groups"]) >= 2
    plain = ts.jit(layer)
    plain(X, W)
    assert "  groups:\n" in str(plain.explain())
    assert "backward" not in str(plain.explain())


def test_an_error_about_the_way_back_names_the_line() -> None:
    def halve(x: Any) -> Any:
        return ts.while_loop(lambda v: v.sum() > 1, lambda v: v / 2, x).sum()

    with pytest.raises(DifferentiationError) as caught:
        ts.grad(halve)(X)
    assert "while_loop(" in caught.value.render()
    assert "= note: this is about the backward of that line" in caught.value.render()


def test_a_rule_that_writes_what_does_not_fit_is_an_error_at_the_line() -> None:
    builder = TapeBuilder()
    x, y = add_inputs(builder.tape, [TensorType.of((2,), dt.f32), TensorType.of((3,), dt.f32)], ["x", "y"])
    builder.follow(Record("tgraph.add", (), {}, (), Span("model.py", 7, 3).with_role("backward")))
    with pytest.raises(GraphVerifyError) as caught:
        builder.emit("add", x, y)
    assert caught.value.span == Span("model.py", 7, 3, role="backward")
    assert "`x.shape[0] = 2` and `y.shape[0] = 3` differ" in caught.value.message


def test_a_text_with_locations_keeps_roles() -> None:
    tape = program_of(ts.grad(layer))
    module = from_tape(tape)
    again = parse_module(print_module(module, locations=True))
    before, after = ([span_of(op) for op in one.walk()] for one in (module, again))
    assert [span for span in before if span] == [span for span, given in zip(after, before, strict=True) if given]
    assert any(span is not None and span.role == "backward" for span in after)
    bare = Span("model.py", 7, 3, role="tangent of backward")
    assert (bare.label, bare.described) == (
        "model.py:7:3-0:0, tangent of backward",
        "model.py:7:3, tangent of backward",
    )
    assert bare.as_backward().role == "backward of backward"
