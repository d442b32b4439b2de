"""The `tsched` dialect: the plan of a program, and the host program that runs its kernels."""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.schedule.ops import REGISTRY

DIALECT = install(REGISTRY)
