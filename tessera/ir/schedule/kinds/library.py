"""Groups of a library op: its kernels are written in the kernel language, and found by name in the `KernelLibrary`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import Request
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.program import check_epilogue
from tessera.ir.tile.facets import Library


class LibraryKind(KernelKind):
    """One library op, and what was promised to be one kernel with it."""

    name = "library"
    facets = (Library,)
    takes_epilogue = is_only_promised = True

    def check(self, body: Tape, axes: tuple[int, ...]) -> None:
        check_epilogue(body, Library)

    def read_choices(self, body: Tape) -> Sequence[tuple[str, Any]]:
        called = [KERNELS.get(str(record.attributes.get("kernel", ""))) for record in body.records]
        chosen = [schedule for one in called if one is not None and (schedule := one.given_schedule)]
        return [("kernel.schedule", schedule) for schedule in chosen]

    def emit(self, request: Request) -> Sequence[SpecOp]:
        facets = [spec_of(record).lower for record in request.body.records]
        (name,) = [facet.kernel for facet in facets if isinstance(facet, Library)]
        if request.library is None:
            raise KeyError(f"there is no library to take kernel `{name}` from")
        return request.library.emit(name, request)


KIND = LibraryKind()
