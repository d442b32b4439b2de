"""Prove that every access of a kernel of Target IR stays inside its buffer, whatever the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.cpu.target_sites import TargetSite, accesses_of
from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.affine import Affine, isl_set
from tessera.ir.tile.ranges import is_in_bounds
from tessera.ir.tile.sites import Site
from tessera.types.dim import Dim, minimum

PROVEN, REFUTED, UNKNOWN = "proven", "refuted", "unknown"

TRIED = (1, 2, 3, 33)
"""Sizes at which an access that no argument settles is looked at exactly; all of them equal, then each beside 1."""


@dataclass(frozen=True)
class Finding:
    """What is known of an access, and sizes for which it leaves its buffer, where there are any."""

    site: TargetSite
    verdict: str
    sizes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CheckAccesses(Pass):
    """Raise BoundsError (T0502) for an access that leaves its buffer; before and after are the same text.

    An interval argument proves most for all sizes at once; the rest is decided exactly at some sizes. What neither
    refutes (an index read from memory) passes, unless `strict`.
    """

    strict: bool = False

    def run(self, module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, SpecOp) and op.name == "ttarget.kernel":
                for finding in examine(op):
                    self._refuse(op, finding)

    def _refuse(self, kernel: SpecOp, finding: Finding) -> None:
        site = finding.site
        (extent,) = site.site.shape
        what = f"`@{kernel.value('symbol')}` has a {site.part} at `{site.index}`"
        if finding.verdict == REFUTED:
            sizes = ", ".join(f"{name} = {size}" for name, size in finding.sizes) or "every call"
            raise BoundsError(f"{what}, which leaves 0..{extent - 1}", span=site.op.span, notes=(f"with {sizes}",))
        if finding.verdict == UNKNOWN and self.strict:
            raise BoundsError(f"{what}, and nothing proves that it stays in 0..{extent - 1}", span=site.op.span)


def examine(kernel: SpecOp) -> list[Finding]:
    """What is known of every access of a `ttarget.kernel`."""
    sizes = sorted(kernel.value("symbols"))
    return [_examine(site, sizes) for site in accesses_of(kernel).sites]


def _examine(site: TargetSite, sizes: Sequence[str]) -> Finding:
    if any(is_in_bounds(variant, 0) for variant in _variants(site.site)):
        return Finding(site, PROVEN)
    for chosen in _samples(sizes):
        found = _leaves(site, chosen)
        if found:
            return Finding(site, REFUTED, tuple(chosen.items()))
    return Finding(site, UNKNOWN)


def _variants(site: Site) -> Iterator[Site]:
    """The site with one of the ends instead of the least of several, for each: what holds for one of them holds."""
    yield site
    for at, variable in enumerate(site.variables):
        for end in _ends(variable.high):
            changed = (*site.variables[:at], replace(variable, high=end), *site.variables[at + 1 :])
            yield replace(site, variables=changed)


def _ends(high: Dim) -> Sequence[Dim]:
    """What stands for an end that is the least of several, and perhaps a number more or less."""
    for atoms, times in high.terms:
        if times == 1 and [atom.kind for atom in atoms] == ["min"]:
            rest = high - minimum(*atoms[0].args)
            return [end + rest for end in atoms[0].args]
    return ()


def _samples(sizes: Sequence[str]) -> list[dict[str, int]]:
    found = [dict.fromkeys(sizes, size) for size in TRIED]
    for name, size in product(sizes, TRIED[1:]):
        found.append({**dict.fromkeys(sizes, 1), name: size})
    return found if sizes else [{}]


def _leaves(site: TargetSite, sizes: dict[str, int]) -> bool:
    """Whether an access at these sizes touches what is not there, and nothing about it is guessed."""
    fixed = site.site.at_sizes(sizes)
    writer = Affine([])
    writer.domain(fixed)
    index, extent = writer.text(fixed.indices[0]), writer.text(fixed.shape[0])
    outside = [*writer.conditions, f"({index} < 0 or {index} >= {extent})"]
    return writer.exact and not isl_set("[]", writer.inner_names, outside).is_empty()
