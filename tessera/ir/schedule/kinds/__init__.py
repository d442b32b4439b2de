"""Kinds of fusion groups, one file each: what starts a group, what may be fused with it, its knobs and its kernels.

The folder is the list: a module of this package has its `KIND`. In IR a kind is written by its name
(`tsched.fuse {kind = "row"}`); everything else asks the object.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tessera.ir.base.compilation import Model
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.policy import Policy

if TYPE_CHECKING:
    from tessera.ir.schedule.emit.request import Request
    from tessera.ir.schedule.grouping import Group, Groups
    from tessera.ir.schedule.layouts import Access
    from tessera.ir.schedule.program import Program, RowSpace


class GroupKind:
    """A kind of group, as a subclass describes it: fusion rules read the attributes, passes call the methods."""

    name = ""
    facets: tuple[type, ...] = ()
    """Ops with one of these facets start a group of the kind, where no rule lets them join another."""
    takes: tuple[type, ...] = ()
    """Facets of other ops that its kernel may compute, beside pointwise ops, views and gathers."""
    is_kernel = False
    """Whether kernels compute it; what does not is control flow and effects, written into the host program."""
    takes_epilogue = False
    """Whether its kernel computes pointwise ops on the result block before it is stored."""
    is_only_promised = False
    """Whether its epilogue is what the user promised to be one kernel with it, and nothing else."""
    merges = False
    """Whether groups of one shape are merged where one reads the other element by element."""
    can_inline = False
    """Whether its records may be computed by the group that reads them, wherever that reads."""
    reads_once = False
    """Whether it reads each element of its operands once, so that computing what it reads there costs nothing."""
    computes_once = False
    """Whether it computes each element of a result once, so that values of its size are computed as often as before."""
    has_axes = False
    """Whether it reduces over `axes`."""
    models: Mapping[str, tuple[str, Model]] = {}
    """Static models behind the default choices, by knob, each with the name written down as the choice's source."""

    def shape(self, program: Program, record: Record) -> tuple[Dim, ...]:
        """The iteration space of a group that starts with a record."""
        return program.type(record.results[0]).shape if record.results else ()

    def row_space(self, program: Program, record: Record) -> RowSpace | None:
        """The reduced space of a group that starts with a record."""
        return None

    def take(self, groups: Groups, group: Group, number: int) -> None:
        """Note what the kind has to know of a record that has become part of a group."""

    def check(self, body: Tape, axes: tuple[int, ...]) -> None:
        """Raise ValueError where the kernel of a group of this kind would not compute its body.

        A kernel has some values at one index only (a reduction at its row, a contraction at its block), whatever index
        they are asked for. Asked when groups are formed, so that a rule that fuses too much is named there.
        """

    def knobs(self, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
        """The choices of a group of this kind, each with its candidates in order of preference."""
        return ()

    def read_choices(self, body: Tape) -> Sequence[tuple[str, Any]]:
        """Choices that were made before: the schedule that its author gave a kernel."""
        return ()

    def context(self, body: Tape, policy: Policy) -> dict[str, Any]:
        """What models of those choices may look at, beside machine, flops and bytes."""
        return {}

    def accesses(self, body: Tape, axes: tuple[int, ...]) -> Mapping[int, Sequence[Access]]:
        """How the kernel of a body reads its inputs, by their number: those that an order of dims may suit better."""
        return {}


class KernelKind(GroupKind, ABC):
    """A kind whose groups are computed by kernels; one that does not say how cannot be made."""

    is_kernel = True

    @abstractmethod
    def emit(self, request: Request) -> Sequence[SpecOp]:
        """The tile kernels of a body, in the order they run."""


@cache
def all_kinds() -> Mapping[str, GroupKind]:
    """Every kind by its name, imported at the first use: most of them bring their kernel's emitter along."""
    found = [importlib.import_module(f"{__name__}.{module.name}").KIND for module in pkgutil.iter_modules(__path__)]
    return {kind.name: kind for kind in found}


@cache
def kind_for(facet: type) -> GroupKind:
    """The kind of the group that an op with such a facet starts; of those that no kernel computes for any other."""
    return next(
        (kind for kind in all_kinds().values() if kind.is_kernel and issubclass(facet, kind.facets)),
        next(kind for kind in all_kinds().values() if not kind.is_kernel),
    )


def kernel_kinds() -> Mapping[str, KernelKind]:
    """The kinds that a `tsched.fuse` can be of."""
    return {name: kind for name, kind in all_kinds().items() if isinstance(kind, KernelKind)}


def all_models() -> dict[str, tuple[str, Model]]:
    """The static models of every kind, by knob."""
    return {knob: model for kind in all_kinds().values() for knob, model in kind.models.items()}
