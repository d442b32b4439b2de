"""A small dialect for tests of the ground itself: one op of every form that a spec can declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.dialect_of import install
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec, Registry, Simplifier
from tessera.ir.base.types import INDEX, BufferAttr, IndexAttr, TensorAttr, TileAttr
from tessera.types.dim import Dim
from tessera.types.shape import TensorType


def infer_add(context: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    left, right = types
    if left.dtype is not right.dtype:
        raise context.fail_dtype(f"cannot add {left.dtype} and {right.dtype}", help="cast one of them")
    if left.rank != right.rank:
        raise context.fail(f"cannot add rank {left.rank} and rank {right.rank}")
    pairs = zip(left.shape, right.shape, strict=True)
    return [left.with_shape(context.equal(a, b, "the operands of `add`") for a, b in pairs)]


def infer_scale(context: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return types


def simplify_scale(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    if attributes["by"] == 1.0:
        return operands[0]
    inner = simplifier.producer(operands[0])
    if inner is not None and inner.name == "scale":
        return simplifier.emit("scale", inner.operands[0], by=inner.attributes["by"] * attributes["by"])
    return None


def infer_cond(context: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    then, other = attributes["then"], attributes["other"]
    given = [[tape.types[value] for value in tape.outputs] for tape in (then, other)]
    if given[0] != given[1]:
        raise context.fail("both ways of `cond` give the same types")
    return given[0]


def reference_cond(chosen: Any, *values: Any, then: Callable[..., Any], other: Callable[..., Any]) -> Any:
    return then(*values) if chosen else other(*values)


def reference_add(x: Any, y: Any) -> Any:
    return x + y


def reference_double(x: Any) -> Any:
    return x + x


def reference_shout(x: Any) -> Any:
    return x


def reference_scale(x: Any, by: float) -> Any:
    return (x * np.float32(by)).astype(x.dtype)


def check_loop(op: SpecOp) -> None:
    if op.region("body").block.arg_types[:1] != (INDEX,):
        op.fail("the body of `toy.loop` takes its step first", "add an argument of type !ttile.index")


def decompose_double(builder: Any, operands: Sequence[Any], attributes: Attributes) -> Any:
    return builder.emit("add", operands[0], operands[0])


FUNC = OpSpec(
    "toy.func",
    "A function.",
    results=(),
    attributes=(Attribute("symbol", "symbol"), Attribute("names", "strs", ()), Attribute("guards", "any", ())),
    regions=("body",),
    form="function",
)
SPECS = (
    FUNC,
    OpSpec("toy.return", "Its end.", ("values*",), results=(), is_terminator=True),
    OpSpec("toy.yield", "The end of a body.", ("values*",), results=(), is_terminator=True),
    OpSpec("toy.add", "x + y", ("x", "y"), infer_add, reference_add),
    OpSpec(
        "toy.scale",
        "x * by",
        ("x",),
        infer_scale,
        reference_scale,
        attributes=(Attribute("by", "float", 1.0),),
        simplify=simplify_scale,
    ),
    OpSpec("toy.double", "x + x", ("x",), infer_scale, reference_double, decompose=decompose_double),
    OpSpec("toy.shout", "Says its value.", ("x",), infer_scale, reference_shout, effects=frozenset(["io"])),
    OpSpec(
        "toy.cond",
        "One of two.",
        ("chosen", "values*"),
        infer_cond,
        reference_cond,
        attributes=(Attribute("then", "tape"), Attribute("other", "tape")),
        results=("results*",),
    ),
    OpSpec(
        "toy.loop",
        "A loop that carries tiles.",
        ("start*",),
        attributes=(Attribute("extent", "dim"), Attribute("tag", "any", None)),
        results=("ends*",),
        type_rule=lambda types, attributes: types,
        regions=("body",),
        verify=check_loop,
    ),
    OpSpec(
        "toy.load",
        "A tile of a buffer.",
        ("buffer", "at*"),
        attributes=(Attribute("shape", "dims"),),
        results=("tile",),
        type_rule=lambda types, attributes: (TileAttr.of(TensorType(attributes["shape"], types[0].dtype)),),
    ),
)
REGISTRY = Registry("toy", SPECS)


def use_toy() -> None:
    """Make the dialect known."""
    install(REGISTRY, [TensorAttr, TileAttr, BufferAttr, IndexAttr])


def tensor(*shape: Dim | int | str, dtype: Any = None) -> TensorType:
    """A type of f32, or of another dtype."""
    from tessera.types import dtype as dtypes

    return TensorType.of(shape, dtype or dtypes.f32)
