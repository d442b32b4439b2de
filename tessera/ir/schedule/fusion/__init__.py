"""Fusion rules, one file each; the folder is the list, and `order` says in which order grouping asks them.

`epilogue`: pointwise ops join the contraction or library kernel before them. `row_pointwise`, `row_reduction`:
pointwise ops and reductions join a row group. `map_chain`: pointwise ops and gathers join the map group before them.
`merge_producers`: a group that has grown takes in the map and row groups that it reads element by element.
`inline_producer`: at the end, map groups with one reader are computed there, where that costs no more.
"""

from __future__ import annotations

import importlib
import pkgutil

from tessera.ir.schedule.grouping import FusionRule

_found: list[type[FusionRule]] = [
    importlib.import_module(f"{__name__}.{module.name}").RULE for module in pkgutil.iter_modules(__path__)
]
RULES: tuple[type[FusionRule], ...] = tuple(sorted(_found, key=lambda rule: rule.order))
