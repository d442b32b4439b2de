"""The ops of Graph IR: every module of this package gives `SPECS`, and they are all here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from tessera.ir.base.spec import OpSpec, Registry


def _specs() -> Iterator[OpSpec]:
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        yield from getattr(importlib.import_module(f"{__name__}.{module.name}"), "SPECS", ())


REGISTRY = Registry("tgraph", _specs())
"""Every op that a program may call, by name."""
