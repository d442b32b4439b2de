"""Fusion rules, one file each; the folder is the list, and `order` says in which order grouping asks them.

Each file opens with what its rule fuses, and the docstring of the rule has a program before and after.
"""

from __future__ import annotations

import importlib
import pkgutil

from tessera.ir.schedule.grouping import FusionRule

_found: list[type[FusionRule]] = [
    importlib.import_module(f"{__name__}.{module.name}").RULE for module in pkgutil.iter_modules(__path__)
]
RULES: tuple[type[FusionRule], ...] = tuple(sorted(_found, key=lambda rule: rule.order))
