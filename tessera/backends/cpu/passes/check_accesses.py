"""Prove that every access of a kernel of Target IR stays inside its buffer, whatever the sizes.

Accesses are those of `ir/tile/sites.py`, with addresses made linear. Names are those of the tile kernel: `%p0` is a
program id, `%l1` the index of the first loop (of its whole steps and of its tail alike), `%e0` an index along the first
axis of a tile, which in a kernel that goes by rows is the loop over them. The row and column of an epilogue are `%row`
and `%col`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr, IndexAttr, VectorAttr
from tessera.ir.target import typed_ops as ttarget
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.indexing import Affine, isl_set
from tessera.ir.tile.sites import Axis, Site, Variable, is_in_bounds
from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.frozen import frozen

ZERO = Dim.constant(0)


@frozen
class Loop:
    """A loop or tail: which loop of the tile kernel it is, and how it runs."""

    op: SpecOp
    number: int
    low: Dim
    high: Dim
    step: int


@frozen
class TargetSite:
    """One access: `part` is load, store, fetch, or an operand of a dot; the site has one index, the linear one."""

    site: Site
    part: str
    coordinates: tuple[Dim, ...] = ()
    """What the coordinates of a load or store are, in their order."""

    @property
    def op(self) -> SpecOp:
        return self.site.op

    @property
    def buffer(self) -> SSAValue:
        return self.op.operands[{"store": 1, "rhs": 1, "out": 2}.get(self.part, 0)]

    @property
    def index(self) -> Dim:
        return self.site.indices[0]


@frozen
class Accesses:
    """All of a kernel."""

    sites: tuple[TargetSite, ...]
    loops: tuple[Loop, ...]


def accesses_of(kernel: SpecOp, has_rows: bool = False) -> Accesses:
    """The accesses and loops of a `ttarget.kernel`; `has_rows` says that it goes over its tiles row by row."""
    walk = _Walk(kernel, has_rows)
    return Accesses(tuple(walk.block(kernel.regions[0].block)), tuple(walk.found))


class _Walk:
    """Gives each index value an expression, as the walk over tiles does."""

    def __init__(self, kernel: SpecOp, has_rows: bool) -> None:
        self.arguments: dict[SSAValue, int] = {argument: argument.index for argument in kernel.regions[0].block.args}
        self.values: dict[SSAValue, Dim] = {}
        self.variables: list[Variable] = []
        self.found: list[Loop] = []
        self.fetched: list[str] = []
        self.count = 0
        self.has_rows = has_rows
        self.in_row = False

    def block(self, block: Block) -> Iterator[TargetSite]:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if isinstance(op, ttarget.IndexOp):
                self.values[op.result] = op.expr.substitute(self._names(op, op.names, 0))
            elif isinstance(op, ttarget.LoopOp | ttarget.TailOp):
                yield from self._loop(op)
            elif isinstance(op, ttarget.ProgramsOp):
                yield from self._programs(op)
            elif isinstance(op, ttarget.GemmOp):
                yield from self._gemm(op)
            elif isinstance(op, ttarget.BlockDotOp):
                yield from self._block_dot(op)
            elif isinstance(op, ttarget.LoadOp):
                yield self._access(op, "load", 0, op.result)
            elif isinstance(op, ttarget.StoreOp):
                yield self._access(op, "store", 1, op.block)
            elif isinstance(op, ttarget.FetchOp):
                yield self._fetch(op)

    def _names(self, op: SpecOp, names: Sequence[str], first: int) -> dict[str, Dim]:
        indices = [value for value in op.operands[first:] if isinstance(value.type, IndexAttr)]
        return {name: self.values[value] for name, value in zip(names, indices, strict=True)}

    def _programs(self, op: ttarget.ProgramsOp) -> Iterator[TargetSite]:
        for axis, (extent, program_id) in enumerate(zip(op.grid, op.body.block.args, strict=True)):
            self.variables.append(Variable(f"%p{axis}", "program", ZERO, extent))
            self.values[program_id] = self.variables[-1].dim
        yield from self.block(op.regions[0].block)

    def _loop(self, op: ttarget.LoopOp | ttarget.TailOp) -> Iterator[TargetSite]:
        low, high = (self.values[value] for value in op.operands[:2])
        step, is_tail = op.step, isinstance(op, ttarget.TailOp)
        is_row = self.has_rows and not is_tail and not op.is_partial
        outer = self.count
        if is_tail:
            # The tail of the loop before it, whose inner loops are copied too.
            self.count = self.found[-1].number if self.found[-1].op.next_op is op else self._before(op)
        elif not is_row:
            self.count += 1
        name = "%e0" if is_row else f"%l{self.count}"
        is_whole = not is_tail and (not op.is_partial or is_multiple(high - low, step))
        last = high - step + 1 if is_whole else high
        loop = Loop(op, self.count, low, high, step)
        if not is_row:
            self.found.append(loop)
        self.values[op.regions[0].block.args[0]] = Dim.symbol(name)
        self.variables.append(Variable(name, "loop", low, last, step))
        was, self.in_row = self.in_row, self.in_row or is_row
        yield from self.block(op.regions[0].block)
        self.in_row = was
        self.variables.pop()
        self.count = max(self.count, outer)

    def _before(self, op: SpecOp) -> int:
        """The number of the loop before a tail."""
        return next(loop.number for loop in reversed(self.found) if loop.op.next_op is op)

    def _site(
        self,
        op: SpecOp,
        buffer: SSAValue,
        index: Dim,
        *,
        variables: Sequence[Variable] = (),
        axes: Sequence[Axis] = (),
        windows: Sequence[tuple[Dim, Dim]] = (),
        gathered: Sequence[str] = (),
    ) -> Site:
        assert isinstance(buffer.type, BufferAttr)
        known = (*self.variables, *variables)
        exprs = (index, *(dim for variable in known for dim in (variable.low, variable.high)))
        read = [name for name in self.fetched if any(name in expr.symbols for expr in exprs)]
        size = (buffer.type.data.size,)
        unknown = (*gathered, *read)
        return Site(op, self.arguments.get(buffer), size, (index,), known, tuple(axes), tuple(windows), unknown)

    def _access(self, op: ttarget.LoadOp | ttarget.StoreOp, part: str, buffer_at: int, block: SSAValue) -> TargetSite:
        assert isinstance(block.type, VectorAttr)
        names = self._names(op, op.coords, buffer_at + 1)
        coordinates = tuple(names[name] for name in op.coords)
        bounds = dict(zip(op.guarded, op.bounds, strict=True))
        axes: list[Axis] = []
        for number, (name, size) in enumerate(zip(op.axes, block.type.shape, strict=True)):
            element = Variable(f"%e{number + self.in_row}", "element", ZERO, size)
            bound = bounds[name].substitute(names) if name in bounds else None
            axes.append(Axis(names[name], element, bound))
        tiles = [value for value in op.operands[buffer_at + 1 :] if isinstance(value.type, VectorAttr)]
        gathered = [f"%t{number}" for number in range(len(tiles))]
        names.update({name: axis.dim for name, axis in zip(op.axes, axes, strict=True)})
        names.update({f"t{number}": Dim.symbol(name) for number, name in enumerate(gathered)})
        pairs = [expr.substitute(names) for expr in op.windows]
        index = op.offset.substitute(names)
        elements = [axis.element for axis in axes]
        windows = list(zip(pairs[::2], pairs[1::2], strict=True))
        buffer = op.operands[buffer_at]
        site = self._site(op, buffer, index, variables=elements, axes=axes, windows=windows, gathered=gathered)
        return TargetSite(site, part, coordinates)

    def _fetch(self, op: ttarget.FetchOp) -> TargetSite:
        index = op.offset.substitute(self._names(op, op.coords, 1))
        site = self._site(op, op.operands[0], index)
        self.fetched.append(f"%f{len(self.fetched)}")
        self.values[op.result] = Dim.symbol(self.fetched[-1])
        return TargetSite(site, "fetch")

    def _gemm(self, op: ttarget.GemmOp) -> Iterator[TargetSite]:
        block, count = op.regions[0].block, len(op.batch)
        batch = {f"_b{axis}": Dim.symbol(f"%p{axis}") for axis in range(count)}
        programs = [Variable(f"%p{axis}", "program", ZERO, extent) for axis, extent in enumerate(op.batch)]
        for name, names in (("lhs", ("_m", "_k")), ("rhs", ("_k", "_n"))):
            extents = {"_m": op.m, "_n": op.n, "_k": op.k.substitute(batch)}
            elements = [Variable(f"%e{n}", "loop", ZERO, extents[axis]) for n, axis in enumerate(names)]
            scope = {**batch, **{axis: element.dim for axis, element in zip(names, elements, strict=True)}}
            yield self._operand(op, name, scope, [*programs, *elements])
        self.count += 1  # the loop over k
        rows = [Variable("%row", "loop", ZERO, op.m), Variable("%col", "loop", ZERO, op.n)]
        self.variables += [*programs, *rows]
        for argument, variable in zip(block.args, [*programs, *rows], strict=False):
            self.values[argument] = variable.dim
        yield from self.block(block)

    def _operand(
        self, op: ttarget.GemmOp, name: str, scope: Mapping[str, Dim], variables: Sequence[Variable]
    ) -> TargetSite:
        windows = [expr.substitute(scope) for expr in op.value(f"{name}_windows")]
        pairs = list(zip(windows[::2], windows[1::2], strict=True))
        index = op.value(f"{name}_offset").substitute(scope)
        buffer = op.operands[0 if name == "lhs" else 1]
        return TargetSite(self._site(op, buffer, index, variables=variables, windows=pairs), name)

    def _block_dot(self, op: ttarget.BlockDotOp) -> Iterator[TargetSite]:
        names = self._names(op, op.names, 4)
        axes = {"_row": "m", "_inner_k": "k", "_col": "n"}
        extents = {name: op.value(extent).substitute(names) for name, extent in axes.items()}
        inner = {name: Variable(f"%{name}", "loop", ZERO, extent) for name, extent in extents.items()}
        scope = {**names, **{name: variable.dim for name, variable in inner.items()}}
        out = Dim.symbol("_row") * op.out_stride + Dim.symbol("_col")
        offsets = {"lhs": op.lhs_offset, "rhs": op.rhs_offset, "out": out}
        for buffer_at, (part, offset) in enumerate(offsets.items()):
            variables = [variable for name, variable in inner.items() if name in offset.symbols]
            site = self._site(op, op.operands[buffer_at], offset.substitute(scope), variables=variables)
            yield TargetSite(site, part)


PROVEN, REFUTED, UNKNOWN = "proven", "refuted", "unknown"

MOST_VARIANTS = 128
"""Simpler forms of an access that are tried at most."""
TRIED = (1, 2, 3, 33)
"""Sizes at which an access that no argument settles is looked at exactly; all of them equal, then each beside 1."""


@frozen
class Finding:
    """What is known of an access, and sizes for which it leaves its buffer, where there are any."""

    site: TargetSite
    verdict: str
    sizes: tuple[tuple[str, int], ...] = ()


@frozen
class CheckAccesses(Pass):
    """Check that no vector access of Target IR leaves its buffer (T0502); before and after are the same text.

    An interval argument proves most for all sizes together; the others are decided exactly at some sizes. What neither
    refutes (an index read from memory) passes, unless `strict`.
    """

    strict: bool = False

    def run(self, module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, ttarget.KernelOp):
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
    """The site with larger ends of its variables or smaller extents, simpler ones: what holds there holds of it too."""
    (size,) = site.shape
    ends = [
        [variable, *(replace(variable, high=_last_step(variable, end)) for end in _ends(variable.high))]
        for variable in site.variables
    ]
    for extent, *variables in islice(product([size, *_parts_of("max", size)], *ends), MOST_VARIANTS):
        yield replace(site, shape=(extent,), variables=tuple(variables))


def _ends(high: Dim) -> Sequence[Dim]:
    """What is at least an end: one of those it is the least of, or the whole of what it is rounded down from."""
    for atoms, times in high.terms:
        if len(atoms) == 1 and atoms[0].kind == "floordiv" and times > 0 and atoms[0].args[1].value == times:
            whole, divisor = atoms[0].args
            return [high - times * (whole // divisor) + whole]
    most = _most(high)
    return [*_parts_of("min", high), *([] if most is None else [Dim.constant(most)])]


def _most(dim: Dim) -> int | None:
    """A number that a dim never exceeds, as minima of others and numbers say; None where they do not."""
    total = 0
    for atoms, times in dim.terms:
        if not atoms:
            total += times
            continue
        most = _most_of_atom(atoms[0]) if len(atoms) == 1 and times > 0 else None
        if most is None:
            return None
        total += times * most
    return total


def _most_of_atom(atom: Atom) -> int | None:
    found = [_most(arg) for arg in atom.args]
    known = [number for number in found if number is not None]
    if atom.kind == "min":
        return min(known, default=None)
    return max(known) if atom.kind == "max" and len(known) == len(found) else None


def _last_step(variable: Variable, end: Dim) -> Dim:
    """The same end, or the one just behind the last step before it, where numbers say which that is."""
    if end.value is None or variable.low.value is None or end.value <= variable.low.value:
        return end
    return Dim.constant(end.value - 1 - (end.value - 1 - variable.low.value) % variable.step + 1)


def _parts_of(kind: str, dim: Dim) -> Sequence[Dim]:
    """A dim with each of the operands of a minimum or maximum in place of it."""
    join = minimum if kind == "min" else maximum
    for atoms, times in dim.terms:
        if times > 0 and [atom.kind for atom in atoms] == [kind]:
            others = dim - times * join(*atoms[0].args)
            return [times * part + others for part in atoms[0].args]
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
