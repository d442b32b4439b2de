"""The kernel library: kernels of ops that loops over elements alone do not make, by the name their op gives."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.frame import Request
from tessera.ir.tile.facets import Library
from tessera.stdlib.kernels.call import Call, LibraryKernel

LIBRARY: dict[str, LibraryKernel] = {
    found.name: found
    for module in pkgutil.iter_modules(__path__)
    if (found := getattr(importlib.import_module(f"{__name__}.{module.name}"), "KERNEL", None)) is not None
}


class StandardLibrary:
    """The library as the compiler asks it: by name, for a body of one op."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        return LIBRARY[name].write(call_of(request))


def call_of(request: Request) -> Call:
    """The call that a body of one library op stands for."""
    body = request.body
    (record,) = [
        record for record in body.records if (spec := find_spec(record.op)) and isinstance(spec.lower, Library)
    ]

    def choose(knob: str, candidates: Sequence[Any]) -> Any:
        return request.choose(knob, candidates)

    outputs = {value: len(body.inputs) + place for place, value in enumerate(body.outputs)}
    return Call(
        request.name,
        tuple(body.types[value] for value in record.operands),
        tuple(body.types[value] for value in record.results),
        record.attributes,
        tuple(body.inputs.index(value) for value in record.operands),
        tuple(outputs.get(value) for value in record.results),
        tuple(request.arguments),
        tuple(request.sizes),
        choose,
        request.machine.lanes,
        record.span,
    )
