"""The ops of `tsched`, one file for each family; the folder is the list."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from typing import Any

from tessera.ir.base.spec import Attribute, OpSpec, Registry
from tessera.types.shape import ZERO

COST = (
    Attribute("flops", "dim", None, "floating-point operations of one run, where they are known"),
    Attribute("bytes", "dim", None, "bytes that one run reads and writes"),
    Attribute("time", "dim", None, "nanoseconds of one core, by the static model"),
)
"""What an op that does something costs: written by the passes that know, and checked where they are done."""
IN_PLACE = Attribute("in_place", "ints", (), "the operand that each result is written over; -1, or none, for its own")


def host_op(*, attributes: tuple[Attribute, ...] = (), **fields: Any) -> OpSpec:
    """An op that is written as host programs are; its cost is nothing unless it declares `COST`.

    Before the families, which declare theirs with it.
    """
    has_cost = any(attribute.name == "flops" for attribute in attributes)
    free = () if has_cost else tuple(replace(part, default=ZERO) for part in COST)
    return OpSpec(attributes=(*attributes, *free), form="host", **fields)


REGISTRY = Registry(
    "tsched",
    (
        spec
        for module in pkgutil.iter_modules(__path__)
        for spec in importlib.import_module(f"{__name__}.{module.name}").SPECS
    ),
)
