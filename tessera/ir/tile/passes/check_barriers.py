"""Find two workers of a program that touch one cell of shared memory with no barrier between, when one writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.tile.choices import is_shared
from tessera.ir.tile.indexing import Affine, alike, isl_set, point_of, size_conditions
from tessera.ir.tile.sampled_run import (
    AT_ODDS,
    Touch,
    WorkerRace,
    access_kind,
    collides_with_itself,
    loops_around,
    sampled_worker_race,
)
from tessera.ir.tile.sites import Site, Timeline, timeline_of
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

UNKNOWN = "unknown"
NEVER = "1 = 0"


@frozen
class CheckBarriers(KernelPass):
    """Check that a barrier separates accesses of shared scratch by two workers of a program, one a store (T0503).

    The error has both source lines, the cell and both elements; before and after are the same text.

    Accesses and barriers in loops are taken in the order in which they run, around the back edge too. Affine indices
    are decided for all sizes by integer sets; a kernel with others is run at small sizes. `guards` are dims
    that callers make equal.
    """

    guards: tuple[tuple[Dim, Dim], ...] = ()

    def run_kernel(self, kernel: SpecOp) -> None:
        race = find_worker_race(kernel, self.guards)
        if race is not None:
            raise race.error(kernel)


def find_worker_race(kernel: SpecOp, guards: Sequence[tuple[Dim, Dim]] = ()) -> WorkerRace | None:
    """The first race that is found; None where there is none, or none shows."""
    timeline = timeline_of(kernel)
    is_decided = True
    for first, second in _pairs(timeline):
        verdict = _AccessPair(kernel, timeline, first, second, guards).decide()
        if isinstance(verdict, WorkerRace):
            return verdict
        is_decided = is_decided and verdict is None
    return None if is_decided else sampled_worker_race(kernel)


def _pairs(timeline: Timeline) -> Iterator[tuple[Site, Site]]:
    """Accesses of one buffer whose order matters: those that follow in the text, then those around a loop."""
    sites = [site for site in timeline.sites if is_shared(site.buffer)]
    numbers = range(len(sites))
    forward = [(a, b) for a in numbers for b in numbers if a <= b]
    back = [(a, b) for a in numbers for b in numbers if a > b]
    for a, b in (*forward, *back):
        first, second = sites[a], sites[b]
        clash = access_kind(second.op) in AT_ODDS[access_kind(first.op)]
        if first.buffer is second.buffer and clash and not _is_one_worker(first, second):
            yield first, second


def _is_one_worker(first: Site, second: Site) -> bool:
    """Whether both are done by the owner of a tile's only element; an index is fetched by all."""
    return "ttile.fetch" not in (first.op.name, second.op.name) and not first.axes and not second.axes


@dataclass
class _Instant(Affine):
    """An access or barrier in one program, whose index in the grid is a size here.

    What depends on sizes alone is one number for all instants, so it is `given` one name for all of them, and what is
    said about instants is as true as it would be of a size.
    """

    given: dict[Dim, str] = field(default_factory=dict[Dim, str])

    def _unknown(self, dim: Dim) -> str:
        if not dim.symbols <= set(self.sizes):
            return super()._unknown(dim)
        self.exact = False
        return self.given.setdefault(dim, f"U{len(self.given)}")

    def moment(self, site: Site) -> list[int | str]:
        """When it happens: positions in the blocks around it and steps of the loops, compared in that order."""
        found: list[int | str] = []
        loops = [variable.name for variable in site.variables if variable.kind == "loop"]
        for op, name in zip([*loops_around(site.op), site.op], [*loops, None], strict=True):
            block = op.parent_block()
            assert block is not None
            found.append(block.get_operation_index(op))
            if name is not None:
                found.append(self.name(name))
        return found


def _before(left: Sequence[int | str], right: Sequence[int | str], *, or_same: bool = False) -> str:
    """The condition that one moment comes before another."""
    cases: list[list[str]] = []
    same: list[str] = []
    for a, b in zip(left, right, strict=False):
        if isinstance(a, int):
            assert isinstance(b, int), "in the same loops positions stand beside positions"
            cases += [same] if a < b else []
            if a != b:
                break
        else:
            cases.append([*same, f"{a} < {b}"])
            same = [*same, f"{a} = {b}"]
    else:
        cases += [same] if or_same else []
    return "(" + " or ".join(" and ".join(["1 = 1", *case]) for case in cases) + ")" if cases else NEVER


class _AccessPair:
    """Whether an access and one not before it may touch one cell; `decide` says so."""

    def __init__(
        self, kernel: SpecOp, timeline: Timeline, first: Site, second: Site, guards: Sequence[tuple[Dim, Dim]]
    ) -> None:
        self.first, self.second, self.barriers = first, second, timeline.barriers
        self.symbols: list[str] = sorted(kernel.value("symbols"))
        self.programs = [variable.name for variable in first.variables if variable.kind == "program"]
        self.sizes = [*self.symbols, *self.programs, *timeline.settled]
        self.facts = size_conditions(self.symbols, guards)
        self.given: dict[Dim, str] = {}
        self.left, self.right = self._instant("a"), self._instant("b")
        self.is_each_barrier_known = True

    def _instant(self, suffix: str) -> _Instant:
        return _Instant(self.sizes, suffix, given=self.given)

    def decide(self) -> WorkerRace | str | None:
        """A race, None where there is none, `UNKNOWN` where sets do not tell."""
        moments = [writer.moment(site) for writer, site in self._accesses]
        # Only an access and itself are at one moment.
        order = _before(*moments, or_same=collides_with_itself(self.first.op))
        if order == NEVER:
            return None
        self._require_one_cell()
        self.facts.append(order)
        waits = list(self._between(moments))
        names = [*self.left.inner_names, *self.right.inner_names, *(f"c{dim}" for dim in self._dims)]
        found = isl_set(self._parameters, names, self.facts)
        for own, conditions in waits:
            found = found.subtract(self._project(names, own, conditions))
        if found.is_empty():
            return None
        real = found.intersect(isl_set(self._parameters, names, alike(self.symbols)))
        if not (self.left.exact and self.right.exact and self.is_each_barrier_known) or real.is_empty():
            return UNKNOWN
        return self._race(self._smallest(real, names), names)

    @property
    def _accesses(self) -> tuple[tuple[_Instant, Site], tuple[_Instant, Site]]:
        return (self.left, self.first), (self.right, self.second)

    @property
    def _dims(self) -> range:
        return range(len(self.first.shape))

    @property
    def _parameters(self) -> str:
        names = [f"S{number}" for number in range(len(self.sizes))]
        return "[" + ", ".join([*names, *self.given.values()]) + "]"

    def _require_one_cell(self) -> None:
        """One cell, and different workers: indices differ, or tiles have different shapes, or it is everybody."""
        for writer, site in self._accesses:
            writer.domain(site)
            self.facts += [f"c{dim} = {writer.text(index)}" for dim, index in enumerate(site.indices)]
            self.facts += writer.conditions
        first, second = ([axis.element.high for axis in site.axes] for site in (self.first, self.second))
        if first == second and first:
            indices = [[writer.name(axis.element.name) for axis in site.axes] for writer, site in self._accesses]
            self.facts.append("(" + " or ".join(f"{a} != {b}" for a, b in zip(*indices, strict=True)) + ")")

    def _between(self, moments: Sequence[list[int | str]]) -> Iterator[tuple[list[str], list[str]]]:
        """Each barrier that may stand after the one and before the other: its names, and when it does."""
        for number, barrier in enumerate(self.barriers):
            writer = self._instant(f"w{number}")
            order = [_before(moments[0], writer.moment(barrier)), _before(writer.moment(barrier), moments[1])]
            if NEVER in order:
                continue
            writer.domain(barrier)
            self.is_each_barrier_known = self.is_each_barrier_known and writer.exact
            # One of which it is not known how often it comes may not be there at all.
            if not writer.extra and set(barrier.gathered) <= set(self.sizes):
                yield writer.inner_names, [*writer.conditions, *order]

    def _project(self, names: Sequence[str], own: Sequence[str], conditions: Sequence[str]) -> Any:
        """The points between which a barrier stands, whichever of its steps it is."""
        import islpy  # noqa: PLC0415 - large, and only debug builds and tests ask

        whole = isl_set(self._parameters, [*names, *own], conditions)
        return whole.project_out(islpy.dim_type.set, len(names), len(own))

    def _smallest(self, found: Any, names: Sequence[str]) -> Any:
        """The part of a set with small sizes, which are easier to follow."""
        part, limit = found, 1
        while self.symbols:
            small = [f"S{number} <= {limit}" for number in range(len(self.symbols))]
            part = found.intersect(isl_set(self._parameters, names, small))
            if not part.is_empty():
                break
            limit *= 2
        return part

    def _race(self, found: Any, names: Sequence[str]) -> WorkerRace:
        point = point_of(found, self.sizes, names)
        return WorkerRace(
            self._touch(self.left, self.first, point),
            self._touch(self.right, self.second, point),
            tuple(point[f"c{dim}"] for dim in self._dims),
            tuple(point[name] for name in self.programs),
            tuple((name, point[name]) for name in self.symbols),
        )

    def _touch(self, writer: _Instant, site: Site, point: dict[str, int]) -> Touch:
        of_kind = {
            kind: tuple(point[writer.name(variable.name)] for variable in site.variables if variable.kind == kind)
            for kind in ("element", "loop")
        }
        element = None if site.op.name == "ttile.fetch" else of_kind["element"]
        return Touch(site.op, element, of_kind["loop"])
