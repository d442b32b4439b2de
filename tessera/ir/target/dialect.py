"""The `ttarget` dialect: coarse machine ops, one per group of instructions, expanded straight to LLVM text."""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.target.blackwell_types import TYPES as TENSOR_TYPES
from tessera.ir.target.hopper_types import TYPES as MATRIX_TYPES
from tessera.ir.target.ops import REGISTRY
from tessera.ir.target.types import VectorAttr

DIALECT = install(REGISTRY, [VectorAttr, *MATRIX_TYPES, *TENSOR_TYPES])
