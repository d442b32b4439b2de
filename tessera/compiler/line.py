"""`Line`: what a target adds to a compilation, its last room, and `Code`, what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from tessera.ir.base.choice import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.pipeline import Stages
from tessera.ir.target.machine_code import CodeTarget
from tessera.types.machine import Machine

Begin: TypeAlias = Callable[[str, CodeTarget], None]
"""Takes a text as soon as it is written, to make its machine code meanwhile."""


class Code(Protocol):
    """A program at its end: kernels of Target IR, all LLVM text, and the machine code on demand."""

    @property
    def targets(self) -> tuple[SpecOp, ...]:
        """Kernels as Target IR."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """Kernels as LLVM text, and what they share."""
        ...

    @property
    def host(self) -> str:
        """The host program as LLVM text."""
        ...

    def objects(self) -> Sequence[bytes]:
        """The machine code: the host program first."""
        ...

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """What the runtime must know beside the code; plain values only."""
        ...

    def facts(self) -> dict[str, Any]:
        """What `explain` says of the machine."""
        ...

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """What kernels compute by functions of the machine's own, by kernel."""
        ...


class Line(Protocol):
    """The end of the line for one machine: tile kernels and a host program in, code out."""

    @property
    def machine(self) -> Machine:
        """What earlier passes may know of the machine."""
        ...

    def finish(
        self, program: SpecOp, kernels: Sequence[SpecOp], stages: Stages, chooser: Chooser, begin: Begin | None
    ) -> Code:
        """The last room, measured stage by stage."""
        ...
