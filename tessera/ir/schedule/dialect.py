"""The `tsched` dialect: the plan of a program, and the host program that runs its kernels."""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.schedule import text
from tessera.ir.schedule.ops import REGISTRY
from tessera.ir.schedule.types import FunctionAttr, UntypedAttr

assert text.FORMS.keys() >= {spec.form for spec in REGISTRY}, "an op is of a form that no one writes"

DIALECT = install(REGISTRY, [UntypedAttr, FunctionAttr])
