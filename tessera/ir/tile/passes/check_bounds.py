"""Prove that every access of a kernel stays inside its buffer, or show sizes and a program for which it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.tile.indexing import Affine, alike, evaluate_at, isl_set, point_of, size_conditions
from tessera.ir.tile.sites import Site, is_in_bounds, sites_of
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

PROVEN, REFUTED, UNKNOWN = "proven", "refuted", "unknown"


@frozen
class Finding:
    """What is known of one dim of one access; `sizes` and `values` are a counterexample, by symbol."""

    site: Site
    dim: int
    verdict: str
    values: tuple[tuple[str, int], ...] = ()

    def at(self, name: str) -> int:
        return dict(self.values)[name]


@frozen
class CheckBounds(KernelPass):
    """Check that no load or store can leave its buffer (T0502); before and after are the same text.

    First an interval argument on the index's own expression, then integer sets where it is affine. What neither
    decides (an index read from memory, a stride that is a product of sizes) passes, unless `strict`. `guards` are
    pairs of dims that callers make equal.
    """

    strict: bool = False
    guards: tuple[tuple[Dim, Dim], ...] = ()

    def run_kernel(self, kernel: SpecOp) -> None:
        for finding in examine(kernel, self.guards):
            self._refuse(kernel, finding)

    def _refuse(self, kernel: SpecOp, finding: Finding) -> None:
        site, dim = finding.site, finding.dim
        index, extent = site.op.value("map")[dim], site.shape[dim]
        what = f"`@{kernel.value('symbol')}` {site.verb} dim {dim} at `{index}`"
        if finding.verdict == REFUTED:
            raise BoundsError(
                f"{what}, which leaves 0..{extent - 1}", span=site.op.span, notes=(_example(kernel, finding),)
            )
        if finding.verdict == UNKNOWN and self.strict:
            raise BoundsError(
                f"{what}, and nothing proves that it stays in 0..{extent - 1}",
                span=site.op.span,
                fix="bound the axis, or give the access a window",
            )


def examine(kernel: SpecOp, guards: Sequence[tuple[Dim, Dim]] = ()) -> list[Finding]:
    """What is known of every dim of every access of a kernel."""
    sizes = sorted(kernel.value("symbols"))
    return [_examine(site, dim, sizes, guards) for site in sites_of(kernel) for dim in range(len(site.shape))]


def _examine(site: Site, dim: int, sizes: Sequence[str], guards: Sequence[tuple[Dim, Dim]]) -> Finding:
    if is_in_bounds(site, dim):
        return Finding(site, dim, PROVEN)
    writer = Affine(sizes)
    writer.domain(site)
    index, extent = writer.text(site.indices[dim]), writer.text(site.shape[dim])
    facts = [*size_conditions(sizes, guards), *writer.conditions]
    names = writer.inner_names
    outside = isl_set(writer.parameters, names, [*facts, f"({index} < 0 or {index} >= {extent})"])
    if outside.is_empty():
        return Finding(site, dim, PROVEN)
    real = outside.intersect(isl_set(writer.parameters, names, alike(sizes)))
    if not writer.exact or not _is_mistake(site, dim, real, writer, names):
        return Finding(site, dim, UNKNOWN)
    point = point_of(real, sizes, names)
    values = {name: point[name] for name in sizes}
    for variable in site.variables:
        values[variable.name] = point[writer.variable(variable.name)]
    values["index"] = evaluate_at(point, site.indices[dim], writer)
    return Finding(site, dim, REFUTED, tuple(values.items()))


_LARGE = 1 << 20


def _is_mistake(site: Site, dim: int, outside: Any, writer: Affine, names: Sequence[str]) -> bool:
    """Whether points outside show a mistake, and not sizes that no caller gives.

    Callers keep facts that a kernel does not know: that two sizes fit, or that one is at least what is cut from it. So
    a mistake is one where the sizes alone do not decide, or only one of them does, however large it is.
    """
    behind = site.sizes_behind(dim)
    if not behind:
        return not outside.is_empty()
    large = [f"{writer.name(size)} >= {_LARGE}" for size in behind]
    return len(behind) == 1 and not outside.intersect(isl_set(writer.parameters, names, large)).is_empty()


def _example(kernel: SpecOp, finding: Finding) -> str:
    values, site = dict(finding.values), finding.site
    program = [values[variable.name] for variable in site.variables if variable.kind == "program"]
    element = [values[variable.name] for variable in site.variables if variable.kind == "element"]
    sizes = ", ".join(f"{name} = {values[name]}" for name in sorted(kernel.value("symbols")))
    return f"index {values['index']} at element {element} of the tile, in program {program}" + (sizes and f", {sizes}")
