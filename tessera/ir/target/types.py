"""The types of `ttarget`: blocks of vector registers."""

from __future__ import annotations

from tessera.ir.base.types import ShapedAttr


class VectorAttr(ShapedAttr):
    """A block held in vector registers; lanes run along its last axis."""

    name = "ttarget.vector"
