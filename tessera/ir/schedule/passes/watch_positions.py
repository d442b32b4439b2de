"""Check indices that kernels read from memory before the kernels run: all in debug builds, else where that is asked."""

from __future__ import annotations

import json
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.dialect_of import make
from tessera.ir.base.effects import declare_effects, declared_effects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.plan import kernel_of, programs_in
from tessera.ir.schedule.typed_ops import CallOp
from tessera.ir.tile.language import buffer_type
from tessera.ir.tile.watch import Site, Watch, watch
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO, TensorType


@frozen
class WatchPositions(Pass):
    """Before each call of a kernel with data-dependent indices, call a kernel that checks those indices.

    Before: `tsched.call @rows(%x, %i, %y)`, whose load is `checked`. After: a buffer of records, `tsched.call
    @rows_begin` and `tsched.call @rows_watch(%i, %records)`, a callback that ends the run where a record says that a
    index is out of bounds, and the call. A kernel with an out-of-bounds index never runs. Unless `every` access that is
    `checked` counts, as in a debug build, those of the mode `error` do.
    """

    every: bool = True

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        watched: dict[str, Watch | None] = {}
        for program in programs_in(module):
            for call in [op for op in program.walk() if isinstance(op, CallOp)]:
                name, called = call.kernel, kernel_of(call, kernels)
                if name not in watched:
                    watched[name] = found = watch(called, every=self.every)
                    for kernel in (found.begin, found.look) if found is not None else ():
                        module.body.block.insert_op_before(kernel, called)
                found = watched[name]
                if found is not None:
                    _insert_check(call, called, found)
                    _declare(program)


def _insert_check(call: CallOp, kernel: SpecOp, found: Watch) -> None:
    block = call.parent
    assert block is not None

    def put(name: str, operands: Any, values: Any = None, types: Any = ()) -> SpecOp:
        op = make(DIALECT[name], list(operands), values, types=types, span=call.span)
        block.insert_op_before(op, call)
        return op

    sizes = call.sizes
    known: dict[str, Dim] = dict(zip(kernel.value("symbols"), sizes, strict=True))
    own = buffer_type(found.look.regions[0].block.args[-1])
    type = TensorType(tuple(dim.substitute(known) for dim in own.shape), own.dtype)
    records = put("alloc", (), {"output": -1}, [BufferAttr.of(type)]).result
    read = [call.operands[number] for number in found.arguments]
    for watcher, operands in ((found.begin, [records]), (found.look, [*read, records])):
        moved = sum((buffer_type(value).bytes for value in operands), ZERO)
        cost = {"flops": ZERO, "bytes": moved, "part": -1}
        put("call", operands, {"kernel": watcher.value("symbol"), "sizes": sizes, **cost})
    sources = sorted({site.source for site in found.sites if site.source is not None})
    sites = [_fields_of(site, kernel.value("symbol"), sources) for site in found.sites]
    values = {"call": "check_positions", "text": json.dumps(sites), "outputs": 0}
    put("callback", [records, *(call.operands[number] for number in sources)], values)
    put("free", [records])


def _fields_of(site: Site, kernel: str, sources: list[int]) -> dict[str, Any]:
    """What an error reports of an index, as JSON holds it."""
    span = site.span
    location = None if span is None else (span.file, span.line, span.column, span.end_line, span.end_column)
    source = None if site.source is None else sources.index(site.source)
    return {"kernel": kernel, "location": location, **site.facts, "source": source}


def _declare(program: SpecOp) -> None:
    declared = declared_effects(program)
    if declared is not None:
        declare_effects(program, declared.join(["io"]))
