"""The kernel library: kernels of ops that loops over elements alone do not make, by the name their op gives."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.index_maps import IndexMap, compose, coordinates
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, producers, spec_of
from tessera.ir.schedule.emit.request import Request, buffers_of
from tessera.ir.tile.facets import Library, View
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.stdlib.kernels.call import Call, Epilogue, LibraryKernel
from tessera.types.dim import Dim

LIBRARY: dict[str, LibraryKernel] = {
    entry.name: entry
    for module in pkgutil.iter_modules(__path__)
    for entry in vars(importlib.import_module(f"{__name__}.{module.name}")).values()
    if isinstance(entry, LibraryKernel)
}


class StandardLibrary:
    """The library as the compiler asks it: by name, for a body of one op and what follows it."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        return LIBRARY[name].write(call_of(request))


def call_of(request: Request) -> Call:
    """The call that the library op of a body stands for."""
    body = request.body
    (record,) = [
        record for record in body.records if (spec := find_spec(record.op)) and isinstance(spec.lower, Library)
    ]

    def choose(knob: str, candidates: Sequence[Any]) -> Any:
        return request.choose(knob, candidates)

    outputs = {value: len(body.inputs) + number for number, value in enumerate(body.outputs)}
    sources = [_source(body, value) for value in record.operands]
    return Call(
        request.name,
        tuple(body.types[value] for value in record.operands),
        tuple(body.types[value] for value in record.results),
        record.attributes,
        tuple(body.inputs.index(value) for value, _ in sources),
        tuple(outputs.get(value) for value in record.results),
        tuple(request.arguments),
        tuple(request.sizes),
        choose,
        request.machine.lanes,
        record.span,
        tuple(map for _, map in sources),
        request.machine,
        request.machine.features,
        _epilogue(request, record),
    )


def _epilogue(request: Request, record: Record) -> Epilogue | None:
    """What a body computes after its library op, None where that is all."""
    body, first = request.body, len(request.body.inputs)
    after = [number for number, value in enumerate(body.outputs) if value not in record.results]
    if not after:
        return None

    def store(builder: TileBuilder, tile: SSAValue, region: TileRegion, at: Sequence[Dim]) -> None:
        inputs, outputs = buffers_of(body, builder)
        evaluator = Evaluator(body, builder, inputs, False)
        evaluator.ready[record.results[0]] = (tile, region.axes)
        for number in after:
            made = evaluator.value(body.outputs[number], tuple(at), region)
            builder.span = evaluator.span_of(body.outputs[number])
            builder.store(made, outputs[number], at, region)

    return Epilogue(tuple(first + number for number in after), store)


def _source(body: Tape, value: int) -> tuple[int, IndexMap | None]:
    """The input that an operand is a view of, and where in it; no map for an input itself."""
    if value in body.inputs:
        return value, None
    makers = producers(body)
    at = coordinates(body.types[value].rank)
    while value not in body.inputs:
        record = makers[value]
        lower = spec_of(record).lower
        assert isinstance(lower, View), f"{record.op} is not read through by a library kernel"
        outs = [body.types[result] for result in record.results]
        maps = lower.maps(body.types[record.operands[0]], outs, record.attributes)
        at = compose(maps[record.results.index(value)], at)
        (value,) = record.operands
    return value, at
