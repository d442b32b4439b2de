"""Where a kernel touches memory, as expressions: every load and store over programs, loop steps, elements and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, IndexAttr, TileAttr
from tessera.ir.tile.typed_ops import BarrierOp, FetchOp, ForOp, IndexOp, LoadOp, ProgramIdOp, StoreOp
from tessera.types.dim import Atom, Dim
from tessera.types.frozen import frozen


@frozen
class Variable:
    """A number that takes the values `low`, `low + step`, ... below `high`; both are over sizes and variables before.

    `kind` is program, loop or element; an element is an index along an axis of the tile.
    """

    name: str
    kind: str
    low: Dim
    high: Dim
    step: int = 1

    @property
    def dim(self) -> Dim:
        return Dim.symbol(self.name)


@frozen
class Axis:
    """An axis of a tile: the coordinate it starts at, the variable along it, and the bound that cuts it, if any."""

    start: Dim
    element: Variable
    bound: Dim | None

    @property
    def dim(self) -> Dim:
        return self.start + self.element.dim


@frozen
class Site:
    """One load, store or fetch: `indices[d]` is where dim `d` of the buffer is touched.

    `variables` come in the order in which they are bound. `windows` are pairs (e, extent) that hold `0 <= e < extent`.
    `gathered` names what stands for values read from memory, of which nothing is known.
    """

    op: SpecOp
    argument: int | None
    shape: tuple[Dim, ...]
    indices: tuple[Dim, ...]
    variables: tuple[Variable, ...]
    axes: tuple[Axis, ...]
    windows: tuple[tuple[Dim, Dim], ...]
    gathered: tuple[str, ...]

    @property
    def is_store(self) -> bool:
        return self.op.name == "ttile.store"

    @property
    def buffer(self) -> SSAValue:
        return self.op.operands[1 if self.is_store else 0]

    def at_sizes(self, sizes: Mapping[str, int]) -> Site:
        """The site with numbers for sizes, where products and divisions by them are affine."""

        def at(dim: Dim) -> Dim:
            return dim.substitute(sizes)

        variables = {
            variable.name: replace(variable, low=at(variable.low), high=at(variable.high))
            for variable in self.variables
        }
        axes = [Axis(at(axis.start), variables[axis.element.name], axis.bound and at(axis.bound)) for axis in self.axes]
        return replace(
            self,
            shape=tuple(map(at, self.shape)),
            indices=tuple(map(at, self.indices)),
            variables=tuple(variables.values()),
            axes=tuple(axes),
            windows=tuple((at(expr), at(extent)) for expr, extent in self.windows),
        )

    def sizes_behind(self, dim: int) -> frozenset[str]:
        """The sizes on which it depends whether dim `dim` is touched inside."""
        wanted = set(self.indices[dim].symbols | self.shape[dim].symbols)
        ends = {variable.name: variable.low.symbols | variable.high.symbols for variable in self.variables}
        for axis in self.axes:
            ends[axis.element.name] |= axis.bound.symbols if axis.bound is not None else frozenset()
        for expr, extent in self.windows:
            wanted |= expr.symbols | extent.symbols
        while True:
            more = set[str]().union(*(ends.get(name, frozenset()) for name in wanted)) - wanted
            if not more:
                return frozenset(name for name in wanted if not name.startswith("%"))
            wanted |= more

    @property
    def verb(self) -> str:
        return "writes" if self.is_store else "reads"


def sites_of(kernel: SpecOp) -> list[Site]:
    """Every access of a kernel; scratch that is sorted belongs to its program, and is none."""
    return list(_Walk(kernel).block(kernel.regions[0].block))


@frozen
class Timeline:
    """Accesses of a kernel and its barriers, which touch nothing; both come in the order of the text.

    `settled` names what is read from memory once in a program: unknown, and one number for all of its workers.
    """

    sites: tuple[Site, ...]
    barriers: tuple[Site, ...]
    settled: tuple[str, ...]


def timeline_of(kernel: SpecOp) -> Timeline:
    """What a program does to memory, with the barriers where its workers wait."""
    walk = _Walk(kernel)
    sites = tuple(walk.block(kernel.regions[0].block))
    return Timeline(sites, tuple(walk.barriers), tuple(walk.settled))


class _Walk:
    """Gives each index value of a kernel an expression; names start with `%`, which no size does."""

    def __init__(self, kernel: SpecOp) -> None:
        self.grid: tuple[Dim, ...] = kernel.value("grid")
        self.arguments: dict[SSAValue, int] = {argument: argument.index for argument in kernel.regions[0].block.args}
        self.values: dict[SSAValue, Dim] = {}
        self.loops: list[Variable] = []
        self.fetched: list[str] = []
        self.settled: list[str] = []
        self.barriers: list[Site] = []
        self.count = 0

    @property
    def programs(self) -> list[Variable]:
        zero = Dim.constant(0)
        return [Variable(f"%p{axis}", "program", zero, extent) for axis, extent in enumerate(self.grid)]

    def block(self, block: Block) -> Iterator[Site]:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if isinstance(op, ProgramIdOp):
                self.values[op.result] = Dim.symbol(f"%p{op.axis}")
            elif isinstance(op, IndexOp):
                names = dict(zip(op.names, (self.values[value] for value in op.at), strict=True))
                self.values[op.result] = op.expr.substitute(names)
            elif isinstance(op, ForOp):
                yield from self._loop(op)
            elif isinstance(op, FetchOp):
                yield self._fetch(op)
            elif isinstance(op, LoadOp):
                yield self._site(op, op.buffer, op.result)
            elif isinstance(op, StoreOp):
                yield self._site(op, op.buffer, op.tile)
            elif isinstance(op, BarrierOp):
                self.barriers.append(self._with_fetched(Site(op, None, (), (), self._around, (), (), ())))

    def _loop(self, op: ForOp) -> Iterator[Site]:
        self.count += 1
        step = Variable(f"%l{self.count}", "loop", self.values[op.low], self.values[op.high], op.step)
        body = op.body.block
        self.values[body.args[0]] = step.dim
        self.loops.append(step)
        yield from self.block(body)
        self.loops.pop()

    def _fetch(self, op: FetchOp) -> Site:
        """The read itself; what it gives is a name of which nothing is known."""
        buffer = op.buffer
        assert isinstance(buffer.type, BufferAttr)
        names = dict(zip(op.coords, (self.values[value] for value in op.at), strict=True))
        indices = tuple(expr.substitute(names) for expr in op.map)
        self.fetched.append(f"%f{len(self.fetched)}")
        self.values[op.result] = Dim.symbol(self.fetched[-1])
        if not self.loops:
            self.settled.append(self.fetched[-1])
        site = Site(op, self.arguments.get(buffer), buffer.type.shape, indices, self._around, (), (), ())
        return self._with_fetched(site)

    @property
    def _around(self) -> tuple[Variable, ...]:
        return (*self.programs, *self.loops)

    def _with_fetched(self, site: Site) -> Site:
        bounds = [dim for variable in site.variables for dim in (variable.low, variable.high)]
        exprs = (*site.indices, *bounds, *(part for window in site.windows for part in window))
        names = tuple(name for name in self.fetched if any(name in expr.symbols for expr in exprs))
        return replace(site, gathered=(*site.gathered, *names))

    def _site(self, op: LoadOp | StoreOp, buffer: SSAValue, tile: SSAValue) -> Site:
        assert isinstance(tile.type, TileAttr)
        assert isinstance(buffer.type, BufferAttr)
        starts = [self.values[value] for value in op.at if isinstance(value.type, IndexAttr)]
        gathered = tuple(f"%t{number}" for number in range(len(op.at) - len(starts)))
        names = dict(zip(op.coords, starts, strict=True))
        axes: list[Axis] = []
        for number, (name, size) in enumerate(zip(op.axes, tile.type.shape, strict=True)):
            element = Variable(f"%e{number}", "element", Dim.constant(0), size)
            bound = op.bounds[number].substitute(names)
            axes.append(Axis(names[name], element, None if bound.value == -1 else bound))
        names.update({name: axis.dim for name, axis in zip(op.axes, axes, strict=True)})
        names.update({f"t{number}": Dim.symbol(name) for number, name in enumerate(gathered)})
        pairs = [expr.substitute(names) for expr in op.windows]
        site = Site(
            op,
            self.arguments.get(buffer),
            buffer.type.shape,
            tuple(expr.substitute(names) for expr in op.map),
            (*self._around, *(axis.element for axis in axes)),
            tuple(axes),
            tuple(zip(pairs[::2], pairs[1::2], strict=True)),
            gathered,
        )
        return self._with_fetched(site)


# How large an index can get: an interval argument on expressions, which also works where strides are symbolic dims.

ZERO, ONE = Dim.constant(0), Dim.constant(1)


@frozen
class Range:
    """All values of a name: from `low` up to and with `high`, over names bound before it."""

    name: str
    low: Dim
    high: Dim


def is_in_bounds(site: Site, dim: int) -> bool:
    """Whether `0 <= index < extent` follows for one dim of a site; False means that no proof was found."""
    return any(_Proof(site, windows).holds(dim) for windows in ((), site.windows))


class _Proof:
    """Bounds of expressions of one site: variables are replaced by their ends, innermost first.

    A coordinate in one of the `windows` is measured by it rather than by its own range.
    """

    def __init__(self, site: Site, windows: Sequence[tuple[Dim, Dim]]) -> None:
        self.site = site
        self.ranges: list[Range] = []
        self.positive: set[str] = set()
        self.natural: set[str] = set()
        self.coordinates: dict[str, Dim] = {}
        for variable in site.variables:
            if variable.kind != "element":
                self._bind(variable.name, variable.low, variable.high - ONE)
        for axis in site.axes:
            self._axis(axis.start, axis.element.name, axis.element.high, axis.bound)
        self.known = {**self.coordinates}
        for number, (expr, extent) in enumerate(windows):
            self._window(f"%w{number}", expr.substitute(self.coordinates), extent)
        self.unknown = set(site.gathered) - self.known.keys()

    def holds(self, dim: int) -> bool:
        index = self.expand(self.site.indices[dim])
        if index is None:
            return False
        low, high = self.end_of(index, up=False), self.end_of(index, up=True)
        if low is None or high is None:
            return False
        return self.is_not_negative(low) and self.is_not_negative(self.site.shape[dim] - ONE - high)

    def _bind(self, name: str, low: Dim, high: Dim) -> None:
        self.ranges.append(Range(name, low, high))
        if self.is_not_negative(low):
            self.natural.add(name)
            # The site is only reached where there is a value: a size that would leave none is at least 1.
            count = high + ONE
            for symbol in count.symbols - {known.name for known in self.ranges}:
                at_zero = count.substitute({symbol: 0}).value
                if at_zero is not None and at_zero <= 0:
                    self.positive.add(symbol)

    def _axis(self, start: Dim, element: str, size: Dim, bound: Dim | None) -> None:
        """One name for `start + element`, so that a bound on the sum is not lost on its parts."""
        name = f"{element}@"
        low = self.end_of(start, up=False)
        high = self.end_of(start, up=True) if bound is None else bound - size
        if low is None or high is None:
            self._bind(element, ZERO, size - ONE)
            return
        self._bind(name, low, high + size - ONE)
        # `element` stands for the coordinate less its start, wherever an index has both.
        self.coordinates[element] = Dim.symbol(name) - start

    def _window(self, name: str, expr: Dim, extent: Dim) -> None:
        """Put the window's own value in place of one name that the expression counts once."""
        for symbol in sorted(expr.symbols, reverse=True):
            parts = expr.coefficient(symbol)
            if symbol.startswith("%") and symbol not in self.known and parts is not None and parts[0] == ONE:
                self._bind(name, ZERO, extent - ONE)
                self.known[symbol] = Dim.symbol(name) - parts[1]
                return

    def expand(self, expr: Dim) -> Dim | None:
        """The expression over coordinates, with division and remainder as names of their own; None if unknown."""
        expr = expr.substitute(self.coordinates).substitute(self.known)
        if expr.symbols & self.unknown:
            return None
        total = ZERO
        for monomial, coefficient in expr.terms:
            product = Dim.constant(coefficient)
            for atom in monomial:
                factor = self._factor(atom)
                if factor is None:
                    return None
                product = product * factor
            total = total + product
        return total

    def _factor(self, atom: Atom) -> Dim | None:
        whole = Dim((((atom,), 1),))
        names = {known.name for known in self.ranges}
        if atom.kind == "symbol" or not (whole.symbols & names):
            return whole
        first, second = (self.expand(arg) for arg in atom.args)
        if first is None or second is None or atom.kind not in ("floordiv", "mod"):
            return None
        name = f"%a{len(self.ranges)}"
        low, high = self.end_of(first, up=False), self.end_of(first, up=True)
        if atom.kind == "mod":
            self._bind(name, ZERO, second - ONE)
        elif low is None or high is None or not self.is_not_negative(low):
            return None
        else:
            is_whole = ((high + ONE) % second).value == 0
            self._bind(name, ZERO, (high + ONE) // second - ONE if is_whole else high // second)
        return Dim.symbol(name)

    def end_of(self, expr: Dim, *, up: bool) -> Dim | None:
        """The largest or smallest value over all variables; None where the expression is not linear in one."""
        for known in reversed(self.ranges):
            expr = _relax(expr, up=up)
            if known.name not in expr.symbols:
                continue
            parts = expr.coefficient(known.name)
            if parts is None:
                return None
            factor, remainder = parts
            if self.is_not_negative(factor):
                end = known.high if up else known.low
            elif self.is_not_negative(-factor):
                end = known.low if up else known.high
            else:
                return None
            expr = factor * end + remainder
        return expr

    def is_not_negative(self, expr: Dim) -> bool:
        """Whether an expression is at least 0: no term is negative, once sizes count from the least they can be."""
        at_least_one = expr.symbols & self.positive
        if at_least_one:
            expr = expr.substitute({name: Dim.symbol(name) + ONE for name in at_least_one})
        return self._is_natural(expr)

    def _is_natural(self, expr: Dim) -> bool:
        return all(
            coefficient > 0 and all(self._is_natural_atom(atom) for atom in monomial)
            for monomial, coefficient in expr.terms
        )

    def _is_natural_atom(self, atom: Atom) -> bool:
        if atom.kind == "symbol":
            # Sizes are natural numbers; our own names are where their range says so.
            return not atom.name.startswith("%") or atom.name in self.natural
        return all(self._is_natural(arg) for arg in atom.args)


def _relax(expr: Dim, *, up: bool) -> Dim:
    """The expression with `min` (going up; `max` going down) replaced by an argument of it, best one of sizes alone."""
    kind = "min" if up else "max"
    for monomial, coefficient in expr.terms:
        if coefficient > 0 and len(monomial) == 1 and monomial[0].kind == kind:
            ends = sorted(monomial[0].args, key=lambda end: any(name.startswith("%") for name in end.symbols))
            return _relax(expr - Dim(((monomial, coefficient),)) + ends[0] * coefficient, up=up)
    return expr
