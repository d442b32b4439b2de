"""The ops of `tsched`, one file for each family; the folder is the list."""

from __future__ import annotations

import importlib
import pkgutil
from functools import partial

from tessera.ir.base.spec import OpSpec, Registry

host_op = partial(OpSpec, form="host")
"""An op that is written as host programs are; before the families, which declare theirs with it."""

REGISTRY = Registry(
    "tsched",
    (
        spec
        for module in pkgutil.iter_modules(__path__)
        for spec in importlib.import_module(f"{__name__}.{module.name}").SPECS
    ),
)
