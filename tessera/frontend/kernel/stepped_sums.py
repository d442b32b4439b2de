"""Whether the depth of a kernel's steps is part of what it computes: where each step's product is used by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.tile.records import Body, TileOp

DEPTH = "k"


def uses_parts(body: Body) -> bool:
    """Whether a loop over k does more with the product of a step than add it to those before.

    A sum of products is the same in steps of any depth. One that is scaled, or rounded, step by step is not.
    """
    return any(_uses_parts(loop.body) for loop in _loops(body) if loop.body is not None)


def _loops(body: Body) -> Iterator[TileOp]:
    for op in body.ops:
        if op.body is not None:
            yield op
            yield from _loops(op.body)


def _uses_parts(body: Body) -> bool:
    if DEPTH not in _walked(body):
        return False
    sums = dict(zip(body.arguments[1:], body.results, strict=True))
    return any(op.name == "dot" and sums.get(op.operands[2]) != op.results[0] for op in body.ops)


def _walked(body: Body) -> set[str]:
    """The names of what loads of a loop go along with it."""
    loads = [op for op in body.ops if op.name == "load"]
    return {
        name.lstrip("_")
        for op in loads
        for name, index in zip(op.values["coords"], op.operands[1:], strict=False)
        if index == body.arguments[0]
    }
