"""Every op of `tgraph`: each file of this folder declares some in `SPECS`, and the folder is the registry."""

from __future__ import annotations

import importlib
import pkgutil

from tessera.ir.base.spec import Registry


def _found() -> Registry:
    registry = Registry("tgraph")
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        for spec in getattr(importlib.import_module(f"{__name__}.{module.name}"), "SPECS", ()):
            registry.add(spec)
    return registry


REGISTRY = _found()
