"""The `ttile` dialect: kernels as programs over tiles, with no machine in them."""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.base.types import BufferAttr, IndexAttr, TileAttr
from tessera.ir.tile.ops import REGISTRY

DIALECT = install(REGISTRY, [TileAttr, BufferAttr, IndexAttr])
