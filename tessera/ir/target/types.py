"""The types of `ttarget`: blocks of vector registers."""

from __future__ import annotations

from tessera.ir.base.types import ShapedAttr


class VectorAttr(ShapedAttr):
    """A block held in vector registers; its last axis lies along lanes."""

    name = "ttarget.vector"
