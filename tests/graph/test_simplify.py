"""Simplifications: each does its job, keeps every bit, and leaves alone what it must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.arrays import Array
from tessera.ir.base.spec import Producer
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, bf16, f16, f32, i8, i32, u32
from tessera.types.shape import TensorType
from tests.graph.eager import infer, reference, registry, tensor


@dataclass(eq=False)
class Node:
    """A value of a small graph: an input where it has no op."""

    type: TensorType
    op: str = ""
    operands: tuple[Node, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Graph:
    """A simplifier over nodes; `emit` simplifies what it makes, as a pass would."""

    def emit(self, name: str, *operands: Node, **attributes: Any) -> Node:
        spec = registry()[name]
        filled = spec.with_defaults(attributes)
        if spec.simplify is not None:
            simplified = spec.simplify(self, operands, filled)
            if simplified is not None:
                return simplified
        return self.plain(name, *operands, **attributes)

    def plain(self, name: str, *operands: Node, **attributes: Any) -> Node:
        filled = registry()[name].with_defaults(attributes)
        (type,) = infer(name, *(operand.type for operand in operands), **attributes)
        return Node(type, name, operands, filled)

    def type_of(self, value: Node) -> TensorType:
        return value.type

    def producer(self, value: Node) -> Producer | None:
        if not value.op:
            return None
        return Producer(value.op, value.operands, value.attributes, registry()[value.op].moves_elements)


def evaluate(node: Node, inputs: Mapping[Node, Array]) -> Array:
    if not node.op:
        return inputs[node]
    return reference(node.op, *(evaluate(operand, inputs) for operand in node.operands), **node.attributes)


def full(value: float, dtype: Any = f32) -> Node:
    return Graph().emit("full", value=value, shape=(), dtype=dtype)


X = Node(tensor(3, 5, dtype=f32))
N = Node(tensor(3, 5, dtype=i32))
C = Node(tensor(3, 5, dtype=BY_NAME["bool"]))


def g(name: str, *operands: Node, **attributes: Any) -> Node:
    return Graph().emit(name, *operands, **attributes)


def size(*sizes: int) -> tuple[Dim, ...]:
    return tuple(Dim.of(dim) for dim in sizes)


ONES = Node(tensor(3, 5, dtype=f32), "constant", (), {"value": np.ones((3, 5), np.float32)})


@pytest.mark.parametrize(
    ("simplified", "expected"),
    [
        (g("add", N, full(0, i32)), N),
        (g("add", full(0, i32), N), N),
        (g("add", X, full(-0.0)), X),
        (g("sub", X, full(0.0)), X),
        (g("mul", X, full(1.0)), X),
        (g("mul", ONES, X), X),
        (g("div", X, full(1.0)), X),
        (g("floordiv", N, full(1, i32)), N),
        (g("pow", X, full(1.0)), X),
        (g("maximum", X, X), X),
        (g("logical_and", C, full(1, BY_NAME["bool"])), C),
        (g("bitwise_and", N, full(-1, i32)), N),
        (g("shift_left", N, full(0, i32)), N),
        (g("neg", g("neg", X)), X),
        (g("logical_not", g("logical_not", C)), C),
        (g("where", C, X, X), X),
        (g("where", full(1, BY_NAME["bool"]), X, full(0.0)), X),
        (g("where", full(0, BY_NAME["bool"]), full(0.0), X), X),
        (g("cast", X, dtype=f32), X),
        (g("cast", g("cast", X, dtype=BY_NAME["f64"]), dtype=f32), X),
        (g("bitcast", g("bitcast", X, dtype=u32, source=f32), dtype=f32, source=u32), X),
        (g("transpose", X, axes=(0, 1)), X),
        (g("transpose", g("transpose", X, axes=(1, 0)), axes=(1, 0)), X),
        (g("reshape", X, shape=size(3, 5)), X),
        (g("reshape", g("reshape", X, shape=size(15)), shape=size(3, 5)), X),
        (g("reshape", g("expand_dims", X, axes=(1,)), shape=size(3, 5)), X),
        (g("broadcast_to", X, shape=size(3, 5)), X),
        (g("squeeze", g("expand_dims", X, axes=(0, 2)), axes=(0, 2)), X),
        (g("slice", X, start=size(0, 0), stop=size(3, 5), step=(1, 1)), X),
        (g("flip", g("flip", X, axes=(1,)), axes=(1,)), X),
        (g("roll", X, shifts=(0,), axes=(1,)), X),
        (g("tile", X, reps=(1, 1)), X),
        (g("repeat", X, repeats=1, axis=0), X),
        (g("concat", X, axis=0), X),
        (g("pad", X, low=size(0, 0), high=size(0, 0)), X),
        (g("sum", X, axes=()), X),
    ],
    ids=lambda node: node.op or "input",
)
def test_what_changes_nothing_goes_away(simplified: Node, expected: Node) -> None:
    assert simplified is expected


ROW = Node(tensor(5, dtype=f32))
COUNTS = Node(tensor(5, dtype=i32))


@pytest.mark.parametrize(
    ("name", "operands", "attributes"),
    [
        ("add", (X, full(0.0)), {}),
        ("sub", (X, full(-0.0)), {}),
        ("add", (COUNTS, g("broadcast_to", full(0, i32), shape=size(3, 5))), {}),
        ("mul", (ROW, ONES), {}),
        ("cast", (g("cast", X, dtype=f16),), {"dtype": f32}),
        ("cast", (g("cast", N, dtype=i8),), {"dtype": i32}),
        ("transpose", (X,), {"axes": (1, 0)}),
        ("floordiv", (X, full(1.0)), {}),
        ("slice", (X,), {"start": size(0, 0), "stop": size(3, 4), "step": (1, 1)}),
        ("where", (C, ROW, ROW), {}),
        ("where", (C, X, full(0.0)), {}),
    ],
)
def test_what_changes_a_bit_or_a_shape_stays(name: str, operands: tuple[Node, ...], attributes: dict[str, Any]) -> None:
    kept = g(name, *operands, **attributes)
    assert (kept.op, kept.operands) == (name, operands)


def test_rewrites_to_something_smaller() -> None:
    assert g("pow", X, full(2.0)).op == "mul"
    stack = g("stack", X, axis=1)
    assert (stack.op, stack.attributes["axes"]) == ("expand_dims", (1,))
    merged = g("transpose", g("transpose", Node(tensor(2, 3, 5, dtype=f32)), axes=(2, 0, 1)), axes=(0, 2, 1))
    assert merged.attributes["axes"] == (2, 1, 0)
    twice = g(
        "slice",
        g("slice", X, start=size(1, 1), stop=size(3, 5), step=(1, 1)),
        start=size(1, 0),
        stop=size(2, 3),
        step=(1, 1),
    )
    assert (twice.attributes["start"], twice.attributes["stop"], twice.operands) == (size(2, 1), size(3, 4), (X,))
    assert g("constant", value=np.zeros((2, 2), np.float32)).op == "full"
    assert g("constant", value=np.array([0.0, -0.0])).op == "constant"
    assert g("dim_size", dims=size(3, 5)).attributes["value"] == 15
    empty = Node(tensor(0, 5, dtype=f32))
    assert g("concat", empty, X, empty, axis=0) is X
    assert g("argmax", X, axes=()).op == "full"
    assert g("sum", N, axes=()).op == "cast"


def test_what_holds_by_a_guard_only_is_left_alone() -> None:
    x = Node(tensor("B", "S", dtype=f32))
    merged = Graph().plain("reshape", x, shape=(Dim.symbol("N"),))
    again = g("reshape", merged, shape=(Dim.symbol("P"), Dim.symbol("Q")))
    assert again.operands == (merged,)
    empty, other = Node(tensor(0, "S", dtype=f32)), Node(tensor("B", "T", dtype=f32))
    assert g("concat", empty, other, axis=0).operands == (empty, other)
    stretched = Graph().plain("broadcast_to", Node(tensor("S", dtype=f32)), shape=(Dim.symbol("T"),))
    assert g("broadcast_to", stretched, shape=(Dim.of(2), Dim.symbol("T"))).operands == (stretched,)
    free = (Dim.symbol("K"),)
    row = Node(tensor("S", dtype=f32))
    cut = Graph().plain("slice", row, start=size(1), stop=free, step=(1,))
    assert g("slice", cut, start=size(1), stop=(Dim.symbol("K") - 1,), step=(1,)).operands == (cut,)
    whole = (Dim.symbol("S") - 2,)
    short = Graph().plain("slice", Node(TensorType(whole, f32)), start=size(0), stop=free, step=(1,))
    assert g("slice", short, start=size(0), stop=whole, step=(1,)).operands == (short,)


def test_all_of_an_axis_is_dropped_where_a_guard_alone_says_that_it_is_there() -> None:
    row = Node(tensor(Dim.symbol("S") - 2, 4, dtype=f32))
    assert g("slice", row, start=size(0, 0), stop=(Dim.symbol("S") - 2, Dim.of(4)), step=(1, 1)) is row
    (half,) = infer("slice", row.type, start=size(0, 1), stop=(Dim.symbol("S") - 2, Dim.of(4)), step=(1, 1))
    assert str(half) == "[S - 2, 3] f32"


Step: TypeAlias = tuple[str, dict[str, Any]]
STEPS: list[Step] = [
    ("transpose", {"axes": (1, 0)}),
    ("transpose", {"axes": (0, 1)}),
    ("flip", {"axes": (0,)}),
    ("flip", {"axes": (1,)}),
    ("neg", {}),
    ("abs", {}),
    ("relu", {}),
    ("floor", {}),
    ("cast", {"dtype": bf16}),
    ("cast", {"dtype": f32}),
    ("cast", {"dtype": BY_NAME["f64"]}),
    ("roll", {"shifts": (1,), "axes": (0,)}),
    ("tile", {"reps": (1, 1)}),
]


@given(st.lists(st.sampled_from(STEPS), max_size=8), st.booleans())
def test_meaning_is_kept_bit_for_bit(chain: list[Step], reshaped: bool) -> None:
    array = (np.random.default_rng(len(chain)).standard_normal((3, 5)) * 3).astype(np.float32)
    plain = simplified = X
    for name, attributes in chain:
        plain, simplified = Graph().plain(name, plain, **attributes), g(name, simplified, **attributes)
    if reshaped:
        for shape in (size(15), size(5, 3)):
            plain, simplified = Graph().plain("reshape", plain, shape=shape), g("reshape", simplified, shape=shape)
    assert simplified.type == plain.type
    assert evaluate(simplified, {X: array}).tobytes() == evaluate(plain, {X: array}).tobytes()
