"""Find two programs of a kernel that touch one cell of memory when at least one of them writes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.tile.indexing import Affine, alike, isl_set, point_of, size_conditions
from tessera.ir.tile.sampled_run import are_atomic, grown_sizes, sampled_conflict
from tessera.ir.tile.sites import Site, sites_of
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

UNKNOWN = "unknown"


@frozen
class Race:
    """Two accesses that may touch one cell of an argument in two programs, which run in no order."""

    first: SpecOp
    second: SpecOp
    argument: int
    programs: tuple[tuple[int, ...], tuple[int, ...]]


@frozen
class CheckRaces(KernelPass):
    """Check that no two programs of a grid touch one element, one of them by a store (T0503); the text stays the same.

    Pairs of accesses whose indices are affine are decided for all sizes by integer sets, others at small sizes;
    a kernel that reads indices from memory is also run, addresses only. `guards` are dims that callers make equal.
    """

    guards: tuple[tuple[Dim, Dim], ...] = ()

    def run_kernel(self, kernel: SpecOp) -> None:
        race = find_race(kernel, self.guards)
        if race is not None:
            raise _error(kernel, race)


def find_race(kernel: SpecOp, guards: Sequence[tuple[Dim, Dim]] = ()) -> Race | None:
    """The first race that is found; None where there is none, or none shows."""
    if not kernel.value("grid"):
        return None
    sites = [site for site in sites_of(kernel) if site.argument is not None]
    pairs = [
        (first, second)
        for first, second in combinations_with_replacement(sites, 2)
        if first.argument == second.argument
        and (first.is_store or second.is_store)
        and not are_atomic(first.op, second.op)
    ]
    sizes = sorted(kernel.value("symbols"))
    is_decided = True
    for first, second in pairs:
        verdict = _overlap(first, second, sizes, guards)
        if verdict == UNKNOWN:
            # A stride that is a symbolic dim is affine once it has a value.
            small = grown_sizes(kernel)
            verdict = _overlap(first.at_sizes(small), second.at_sizes(small), (), ())
        if isinstance(verdict, Race):
            return verdict
        is_decided = is_decided and verdict is None
    return None if is_decided else _sample(kernel)


def _overlap(first: Site, second: Site, sizes: Sequence[str], guards: Sequence[tuple[Dim, Dim]]) -> Race | str | None:
    """A race between two sites, None where there is none, `UNKNOWN` where sets do not tell."""
    writers = (Affine(sizes, "a"), Affine(sizes, "b"))
    facts = size_conditions(sizes, guards)
    for writer, site in zip(writers, (first, second), strict=True):
        writer.domain(site)
        cells = [writer.text(index) for index in site.indices]
        facts += [f"c{dim} = {cell}" for dim, cell in enumerate(cells)] + writer.conditions
    left, right = writers
    assert first.argument is not None
    programs = [variable.name for variable in first.variables if variable.kind == "program"]
    ids = [[writer.name(name) for name in programs] for writer in writers]
    facts.append("(" + " or ".join(f"{a} != {b}" for a, b in zip(*ids, strict=True)) + ")")
    names = list(dict.fromkeys([*ids[0], *ids[1], *left.inner_names, *right.inner_names]))
    names += [f"c{dim}" for dim in range(len(first.shape))]
    shared = isl_set(left.parameters, names, facts)
    if shared.is_empty():
        return None
    real = shared.intersect(isl_set(left.parameters, names, alike(sizes)))
    if not (left.exact and right.exact) or real.is_empty():
        return UNKNOWN
    point = point_of(real, sizes, names)
    at = tuple(tuple(point[name] for name in own) for own in ids)
    return Race(first.op, second.op, first.argument, (at[0], at[1]))


def _sample(kernel: SpecOp) -> Race | None:
    found = sampled_conflict(kernel)
    if found is None:
        return None
    assert found.first.argument is not None
    return Race(found.first.op, found.second.op, found.first.argument, (found.first.program, found.second.program))


def _error(kernel: SpecOp, race: Race) -> RaceError:
    words = {"ttile.store": "write", "ttile.load": "read", "ttile.fetch": "read"}
    left, right = (list(program) for program in race.programs)
    ops = (race.first, race.second)
    if race.first.name == race.second.name:
        did = f"both {words[race.first.name]}"
    else:
        did = f"{words[race.first.name]} and {words[race.second.name]}"
    store = race.first if race.first.name == "ttile.store" else race.second
    other = race.second if store is race.first else race.first
    index = ", ".join(map(str, store.value("map")))
    lines = " and ".join(str(op.span) for op in dict.fromkeys(ops) if op.span is not None)
    return RaceError(
        f"programs {left} and {right} of `@{kernel.value('symbol')}` {did} one cell of argument {race.argument}",
        span=store.span,
        notes=(
            f"the cell written is `[{index}]`",
            *((f"the lines are {lines}",) if lines and other is not store else ()),
        ),
        fix="let every program write cells of its own, by its index in the grid",
    )
