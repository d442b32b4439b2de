"""Where a kernel touches memory, as expressions: every load and store over programs, loop steps, elements and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, IndexAttr, TileAttr
from tessera.types.dim import Dim


@dataclass(frozen=True)
class Variable:
    """A number that takes the values `low`, `low + step`, ... below `high`; both are over sizes and variables before.

    `kind` is program, loop or element; an element is a place along an axis of the tile.
    """

    name: str
    kind: str
    low: Dim
    high: Dim
    step: int = 1

    @property
    def dim(self) -> Dim:
        return Dim.symbol(self.name)


@dataclass(frozen=True)
class Axis:
    """An axis of a tile: the coordinate it starts at, the variable along it, and the bound that cuts it, if any."""

    start: Dim
    element: Variable
    bound: Dim | None

    @property
    def dim(self) -> Dim:
        return self.start + self.element.dim


@dataclass(frozen=True)
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

        def fixed(dim: Dim) -> Dim:
            return dim.substitute(sizes)

        variables = {
            variable.name: replace(variable, low=fixed(variable.low), high=fixed(variable.high))
            for variable in self.variables
        }
        axes = [
            Axis(fixed(axis.start), variables[axis.element.name], axis.bound and fixed(axis.bound))
            for axis in self.axes
        ]
        return replace(
            self,
            shape=tuple(map(fixed, self.shape)),
            indices=tuple(map(fixed, self.indices)),
            variables=tuple(variables.values()),
            axes=tuple(axes),
            windows=tuple((fixed(expr), fixed(extent)) for expr, extent in self.windows),
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


@dataclass(frozen=True)
class Timeline:
    """Accesses of a kernel and its barriers, which touch nothing; both come in the order of the text.

    `settled` names what is read from memory once in a program: unknown, and one number for all of its workers.
    """

    sites: tuple[Site, ...]
    barriers: tuple[Site, ...]
    settled: tuple[str, ...]


def timeline_of(kernel: SpecOp) -> Timeline:
    """What a program does to memory, with the places where its workers wait."""
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
            if op.name == "ttile.program_id":
                self.values[op.result] = Dim.symbol(f"%p{op.value('axis')}")
            elif op.name == "ttile.index":
                names = dict(zip(op.value("names"), (self.values[value] for value in op.operands), strict=True))
                self.values[op.result] = op.value("expr").substitute(names)
            elif op.name == "ttile.for":
                yield from self._loop(op)
            elif op.name == "ttile.fetch":
                yield self._fetch(op)
            elif op.name == "ttile.load":
                yield self._site(op, 1, op.results[0])
            elif op.name == "ttile.store":
                yield self._site(op, 2, op.operands[0])
            elif op.name == "ttile.barrier":
                self.barriers.append(self._with_fetched(Site(op, None, (), (), self._around, (), (), ())))

    def _loop(self, op: SpecOp) -> Iterator[Site]:
        self.count += 1
        low, high = (self.values[value] for value in op.operands[:2])
        step = Variable(f"%l{self.count}", "loop", low, high, op.value("step"))
        body = op.regions[0].block
        self.values[body.args[0]] = step.dim
        self.loops.append(step)
        yield from self.block(body)
        self.loops.pop()

    def _fetch(self, op: SpecOp) -> Site:
        """The read itself; what it gives is a name of which nothing is known."""
        buffer = op.operands[0]
        assert isinstance(buffer.type, BufferAttr)
        names = dict(zip(op.value("coords"), (self.values[value] for value in op.operands[1:]), strict=True))
        indices = tuple(expr.substitute(names) for expr in op.value("map"))
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

    def _site(self, op: SpecOp, first: int, tile: SSAValue) -> Site:
        buffer = op.operands[first - 1]
        assert isinstance(tile.type, TileAttr)
        assert isinstance(buffer.type, BufferAttr)
        rest = op.operands[first:]
        starts = [self.values[value] for value in rest if isinstance(value.type, IndexAttr)]
        gathered = tuple(f"%t{number}" for number in range(len(rest) - len(starts)))
        names = dict(zip(op.value("coords"), starts, strict=True))
        axes: list[Axis] = []
        for number, (name, size) in enumerate(zip(op.value("axes"), tile.type.shape, strict=True)):
            element = Variable(f"%e{number}", "element", Dim.constant(0), size)
            bound = op.value("bounds")[number].substitute(names)
            axes.append(Axis(names[name], element, None if bound.value == -1 else bound))
        names.update({name: axis.dim for name, axis in zip(op.value("axes"), axes, strict=True)})
        names.update({f"t{number}": Dim.symbol(name) for number, name in enumerate(gathered)})
        pairs = [expr.substitute(names) for expr in op.value("windows")]
        site = Site(
            op,
            self.arguments.get(buffer),
            buffer.type.shape,
            tuple(expr.substitute(names) for expr in op.value("map")),
            (*self._around, *(axis.element for axis in axes)),
            tuple(axes),
            tuple(zip(pairs[::2], pairs[1::2], strict=True)),
            gathered,
        )
        return self._with_fetched(site)
