"""Recognize attention that is spelled out, and where other roundings are allowed make it one op."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import Pattern, Rewriter, rewrite, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.spec import Builder
from tessera.ir.base.tape import RECOGNIZED
from tessera.ir.base.types import ValueAttr, attribute_of
from tessera.ir.graph.attention_pattern import Attention, Label, find_attention
from tessera.ir.graph.building import constant
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.types.dim import product
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.shape import ONE, text

_REASON = "not rewritten, as its online softmax rounds otherwise than the ops written: `fast_math=True` allows it"


@frozen
class RecognizeAttention(Pass):
    """Find softmax(q kT * scale + mask) v in the ops of a function, and with `rewrite` make it one `attention`.

    Before: `%0 = tgraph.transpose %k`, `%1 = tgraph.matmul %q, %0`, `%2 = tgraph.mul %1, %scale`, `%3 = tgraph.softmax
    %2`, `%4 = tgraph.matmul %3, %v`. After: `%4 = tgraph.attention %q, %k, %v {scale = 0.125}`. The attribute
    `tessera.recognized` of the function says what was found, and why it stayed as it was. An attention whose scores or
    weights anything else reads stays too, and nothing is said of it.
    """

    rewrite: bool = False

    def run(self, module: ModuleOp) -> None:
        for function in [op for op in module.ops if isinstance(op, SpecOp) and op.name == "tgraph.func"]:
            notes: list[str] = []
            if self.rewrite:
                rewrite_attention(function, notes)
            else:
                found = (find_attention(op) for op in function.walk() if isinstance(op, SpecOp))
                notes += [f"{describe(one)}: {_REASON}" for one in found if one is not None]
            if notes:
                before = function.attributes.get(RECOGNIZED)
                known: tuple[str, ...] = before.data if isinstance(before, ValueAttr) else ()
                function.attributes[RECOGNIZED] = attribute_of("strs", (*known, *notes))


def rewrite_attention(function: SpecOp, notes: list[str]) -> None:
    """Make each attention that a function spells out one op, and note it."""

    def pattern(op: SpecOp, rewriter: Rewriter) -> bool:
        found = find_attention(op)
        if found is None:
            return False
        notes.append(f"{describe(found)}: rewritten as one op, whose softmax is online")
        build = rewriter.build(op)
        replace_results(op, write_attention(build, found), build, rewriter)
        return True

    patterns: Sequence[Pattern] = (pattern,)
    rewrite(
        function, lambda op: patterns if op.name in ("tgraph.matmul", "tgraph.einsum", "tgraph.dot_general") else ()
    )


def lower_flash_attention(function: SpecOp) -> list[str]:
    """Make the attention that a body spells out one op; what was done, or nothing where it spells none out."""
    if any(op.name == "tgraph.attention" for op in function.walk()):
        return ["attention, as the program has it"]
    notes: list[str] = []
    rewrite_attention(function, notes)
    return notes


PATTERNS: Mapping[str, Callable[[SpecOp], list[str]]] = {"flash_attention": lower_flash_attention}
"""What a plan may ask a group to be computed as, by name: each changes a body, and says what it made of it."""


def describe(found: Attention) -> str:
    """What was found, in words."""
    (q, _), (k, _), _ = found.operands
    queries, keys = tensor_value(q), tensor_value(k)
    parts = [
        "causal" if found.causal else "",
        "masked" if found.mask is not None else "",
        f"{found.groups} heads of queries to one of keys" if found.groups > 1 else "",
    ]
    more = "".join(f", {part}" for part in parts if part)
    where = f" at {found.op.span.label}" if found.op.span is not None else ""
    return f"attention of {queries} over {text(keys.shape)}{more}{where}"


def write_attention(b: Builder, found: Attention) -> Any:
    """The result of what was found as one op, in the axes that its last op had."""
    wanted: tuple[tuple[Label, ...], ...] = (
        (*found.batch, found.query, "d"),
        (*found.batch, found.key, "d"),
        (*found.batch, found.key, "e"),
    )
    rows = [_arrange(b, value, labels, axes) for (value, labels), axes in zip(found.operands, wanted, strict=True)]
    shape = b.type_of(rows[0]).shape[:-1]
    operands = [_as_heads(b, row) for row in rows]
    if found.mask is not None:
        operands.append(_mask(b, found))
    made = b.emit("attention", *operands, causal=found.causal, scale=float(found.scale), part=0)
    whole = (*shape, b.type_of(rows[2]).shape[-1])
    made = made if b.type_of(made).shape == whole else b.emit("reshape", made, shape=whole)
    return _arrange(b, made, (*found.batch, found.query, "e"), found.result)


def _arrange(b: Builder, value: Any, labels: tuple[Label, ...], wanted: tuple[Label, ...]) -> Any:
    """A value with its axes in another order."""
    order = tuple(labels.index(label) for label in wanted)
    return value if order == tuple(range(len(order))) else b.emit("transpose", value, axes=order)


def _as_heads(b: Builder, value: Any) -> Any:
    """A value as [batch, heads, length, head dim]: of one batch axis it is that of heads, of several the last."""
    *batch, length, size = b.type_of(value).shape
    heads = batch[-1] if batch else ONE
    shape = (product(batch[:-1]), heads, length, size)
    return value if b.type_of(value).shape == shape else b.emit("reshape", value, shape=shape)


def _mask(b: Builder, found: Attention) -> Any:
    """What is added to scores: the mask, or -inf where a condition hides them."""
    if not found.is_condition:
        return found.mask
    shown, hidden = constant(b, 0.0, f32), constant(b, -math.inf, f32)
    return b.emit("where", found.mask, *((shown, hidden) if found.keeps else (hidden, shown)))
