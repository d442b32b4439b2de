"""The `ttarget` dialect: coarse machine ops, one per group of instructions, expanded straight to LLVM text.

Ops of `ops/` are those that more than one backend lowers to; a backend adds its own in its `dialect.py`.
"""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.base.spec import Registry
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.ops import REGISTRY

DIALECT = install(Registry(REGISTRY.dialect, REGISTRY), [VectorAttr])
