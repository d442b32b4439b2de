"""The ops that NVIDIA GPUs add to `ttarget`, by family; the folder is the list."""

from __future__ import annotations

import importlib
import pkgutil

from tessera.ir.base.spec import Registry

REGISTRY = Registry(
    "ttarget",
    (
        spec
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name)
        for spec in importlib.import_module(f"{__name__}.{module.name}").SPECS
    ),
)
