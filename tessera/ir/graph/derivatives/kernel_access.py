"""Loads and stores of a kernel as slices of whole tensors, and its indices as tensors of integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.diagnostics.error import Span
from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import restate, size_value
from tessera.ir.tile.records import KernelProgram, TileOp
from tessera.types.dim import Atom, Dim, minimum
from tessera.types.dtype import DType, i64
from tessera.types.frozen import frozen
from tessera.types.shape import ONE, ZERO, TensorType

COMPUTED = "an index is computed"
GATHERED = "an index is read from memory"
RULE = (
    "rule: derived are kernels of elementwise functions, whole rows, dots and online softmax, of which each program "
    "stores its own elements"
)


@frozen
class Raised:
    """A tile of all programs and iterations together: `lead` are the axes of the grid of its first dims.

    The dims behind them are those of the tile; where `uniform` says that all elements along one are equal, it is 1.
    `number` is the constant that all elements are, where they are one.
    """

    value: Any
    lead: tuple[int, ...] = ()
    uniform: tuple[bool, ...] = ()
    number: float | None = None


@frozen
class Part:
    """What an access takes of one dim of a buffer: `start` to `stop`, along an axis of the tile or of the grid.

    Along an axis of the grid each element is that of `repeat` programs.
    """

    start: Dim
    stop: Dim
    axis: int | None = None
    lead: int | None = None
    repeat: Dim = ONE


def name_program(axis: int) -> str:
    """The symbol of a program's index along an axis of the grid."""
    return f"%p{axis}"


class AccessRaiser(ABC):
    """Indices, loads and stores of one kernel whose blocks are as large as what they are blocks of."""

    def __init__(self, program: KernelProgram, b: Builder, operands: Sequence[Any], call: Span | None) -> None:
        self.program, self.b, self.call = program, b, call
        self.inputs = dict(zip(program.buffers, operands, strict=False))
        self.op: TileOp | None = None
        self.index: dict[int, Dim] = {}
        """Indices by value: over programs of the grid `%p`, starts of blocks `%s`, and what is fetched `%f`."""
        self.alias: dict[int, int] = {}
        """Values of loops, which run once: what is carried in, and what comes out."""
        self.values: dict[int, Raised] = {}
        self.scratch: dict[int, Raised] = {}
        self.widths: dict[int, set[Dim]] = {}
        """The whole dims that tiles with so many elements along an axis hold."""

    def refuse(self, why: str, op: TileOp | None = None) -> DifferentiationError:
        """The error (T0306) at the line of the kernel that has no derivative, to raise."""
        name, found = self.program.name, op or self.op
        return DifferentiationError(
            f"kernel `{name}` cannot be differentiated: {why}",
            span=found.span if found is not None else None,
            notes=(*(() if self.call is None else (f"it is called at {self.call}",)), RULE),
            fix=f"give its derivative, with `@{name}.defvjp`, or wrap its operands in `tessera.stop_gradient`",
        )

    def resolve(self, number: int) -> int:
        """The value that a value of a loop is."""
        while number in self.alias:
            number = self.alias[number]
        return number

    def tile_type(self, number: int) -> TensorType:
        return self.program.types[number]

    # Indices.

    def read_index(self, op: TileOp) -> None:
        """Note what an index is."""
        (result,) = op.results
        if result in self.program.blocks:
            self.index[result] = Dim.symbol(f"%s{result}")
        elif op.name == "program_id":
            self.index[result] = Dim.symbol(name_program(op.values["axis"]))
        elif op.name == "fetch":
            self.index[result] = Dim.symbol(f"%f{result}")
        else:
            at = (self.index[self.resolve(operand)] for operand in op.operands)
            self.index[result] = op.values["expr"].substitute(dict(zip(op.values["names"], at, strict=True)))

    def starts(self, op: TileOp, first: int) -> dict[str, int]:
        """The coordinates of an access by name: the values that they start at."""
        names = op.values["coords"]
        return dict(zip(names, map(self.resolve, op.operands[first : first + len(names)]), strict=True))

    def substitute(self, expr: Dim, starts: Mapping[str, int]) -> Dim:
        """An expression over sizes and programs; refused where it is of a block's start, or read from memory."""
        found = expr.substitute({name: self.index[number] for name, number in starts.items()})
        if any(name.startswith("%f") for name in found.symbols):
            raise self.refuse(GATHERED)
        if any(name.startswith("%s") for name in found.symbols):
            raise self.refuse("the start of a block is a number in it")
        return found

    def size(self, expr: Dim, starts: Mapping[str, int]) -> Dim:
        """An extent; refused where it differs from program to program."""
        found = self.substitute(expr, starts)
        if any(name.startswith("%") for name in found.symbols):
            raise self.refuse("an extent differs from program to program")
        return found

    def range_of(self, number: int, size: int, bound: Dim) -> tuple[Dim, Dim]:
        """The elements of a dim that all blocks of an axis have together; a bound of -1 never cuts."""
        is_open = bound.value == -1
        if number in self.program.blocks:
            return ZERO, self.size(self.program.blocks[number], {}) if is_open else bound
        start = self.index[number]
        if any(name.startswith("%") for name in start.symbols):
            raise self.refuse(COMPUTED)
        end = start + size
        stop = end if is_open else minimum(end, bound)
        if stop not in (end, bound):
            if not self.is_same(stop, bound):
                raise self.refuse(f"a slice to {end} may end at {bound}")
            stop = bound
        return start, stop

    def parts(self, op: TileOp, first: int, shape: Sequence[Dim], sizes: Sequence[int]) -> list[Part]:
        """What an access takes of each dim of a buffer."""
        starts, axes, bounds = self.starts(op, first), op.values["axes"], op.values["bounds"]
        blocks = self.program.blocks
        outer = {name: number for name, number in starts.items() if name not in axes}
        found: list[Part] = []
        for expr in op.values["map"]:
            along = [axis for axis, name in enumerate(axes) if expr == Dim.symbol(name)]
            if not along:
                found.append(self._element(expr, axes, outer, shape[len(found)]))
                continue
            (axis,) = along
            own = starts[axes[axis]]
            if any(part.axis is not None and starts[axes[part.axis]] == own for part in found) and own in blocks:
                raise self.refuse("blocks along two dims are those with the same index")
            bound = self.size(bounds[axis], outer) if bounds[axis].value != -1 else bounds[axis]
            start, stop = self.range_of(starts[axes[axis]], sizes[axis], bound)
            found.append(Part(start, stop, axis=axis))
        return found

    def _element(self, expr: Dim, axes: Sequence[str], outer: Mapping[str, int], dim: Dim) -> Part:
        """One element of a dim: the same for all programs, or that of a program."""
        if any(name.startswith("t") and name[1:].isdigit() for name in expr.symbols):
            raise self.refuse(GATHERED)
        if expr.symbols & set(axes):
            raise self.refuse(COMPUTED)
        at = self.substitute(expr, outer)
        if not any(name.startswith("%") for name in at.symbols):
            return Part(at, at + 1)
        for axis in range(len(self.program.grid)):
            program = Dim.symbol(name_program(axis))
            if at == program:
                return Part(ZERO, dim, lead=axis)
            atoms = at.terms[0][0] if len(at.terms) == 1 and at.terms[0][1] == 1 else ()
            if len(atoms) == 1 and atoms[0].kind == "floordiv" and atoms[0].args[0] == program:
                return Part(ZERO, dim, lead=axis, repeat=atoms[0].args[1])
        raise self.refuse(COMPUTED)

    # Memory.

    def load(self, op: TileOp) -> Raised:
        """A tile of a buffer."""
        buffer = self.resolve(op.operands[0])
        if buffer not in self.inputs:
            return self._load_scratch(op, buffer)
        sizes = [int(dim.value or 0) for dim in self.tile_type(op.results[0]).shape]
        type = self.b.type_of(self.inputs[buffer])
        parts = self.parts(op, 1, type.shape, sizes)
        if op.values.get("windows"):
            raise self.refuse(COMPUTED)
        value = self._take(self.inputs[buffer], parts)
        kept = [(part.lead, part.axis) for part in parts if part.lead is not None or part.axis is not None]
        lead = tuple(sorted(own for own, _ in kept if own is not None))
        axes = [axis for axis in range(len(sizes)) if any(part.axis == axis for part in parts)]
        order = [kept.index((own, None)) for own in lead] + [kept.index((None, axis)) for axis in axes]
        value = self.transpose(value, order)
        missing = [len(lead) + axis for axis in range(len(sizes)) if axis not in axes]
        return Raised(self.expand(value, missing), lead, tuple(axis not in axes for axis in range(len(sizes))))

    def _take(self, value: Any, parts: Sequence[Part]) -> Any:
        """The parts of a tensor, without dims of which one element is taken."""
        b, shape = self.b, self.b.type_of(value).shape
        if any((part.start, part.stop) != (ZERO, dim) for part, dim in zip(parts, shape, strict=True)):
            start, stop = tuple(part.start for part in parts), tuple(part.stop for part in parts)
            value = b.emit("slice", value, start=start, stop=stop, step=(1,) * len(parts))
        dropped = tuple(at for at, part in enumerate(parts) if part.lead is None and part.axis is None)
        value = b.emit("squeeze", value, axes=dropped) if dropped else value
        kept = [part for at, part in enumerate(parts) if at not in dropped]
        for at, part in enumerate(kept):
            if part.lead is not None and part.repeat != ONE:
                shape = b.type_of(value).shape
                value = b.emit("expand_dims", value, axes=(at + 1,))
                value = b.emit("broadcast_to", value, shape=(*shape[: at + 1], part.repeat, *shape[at + 1 :]))
                value = b.emit("reshape", value, shape=(*shape[:at], self.program.grid[part.lead], *shape[at + 1 :]))
        return value

    def _load_scratch(self, op: TileOp, buffer: int) -> Raised:
        held = self.scratch.get(buffer)
        if held is None:
            raise self.refuse("it reads what another iteration wrote, as a scan does")
        order = [op.values["map"].index(Dim.symbol(name)) for name in op.values["axes"]]
        return self.permute(held, order)

    def store_scratch(self, op: TileOp) -> None:
        """Keep what goes through memory of a program: a tile that is transposed."""
        buffer, names = self.resolve(op.operands[1]), op.values["axes"]
        is_whole = len(names) == len(op.values["map"]) and op.values["mode"] == "set"
        if not is_whole or buffer in self.scratch or any(self.index[n] != ZERO for n in self.starts(op, 2).values()):
            raise self.refuse("it writes memory step by step, as a scan does")
        order = [names.index(expr.symbol_name) for expr in op.values["map"]]
        self.scratch[buffer] = self.permute(self.values[self.resolve(op.operands[0])], order)

    def permute(self, tile: Raised, order: Sequence[int]) -> Raised:
        """A tile with its axes in another order."""
        count = len(tile.lead)
        axes = [*range(count), *(count + axis for axis in order)]
        uniform = tuple(tile.uniform[axis] for axis in order)
        return Raised(self.transpose(tile.value, axes), tile.lead, uniform, tile.number)

    def arrange(self, tile: Raised, parts: Sequence[Part], shape: Sequence[Dim]) -> Any:
        """A stored tile in the order of a result's dims, as large as what it is stored to."""
        lead = [part.lead for part in parts if part.lead is not None]
        if not set(tile.lead) <= set(lead):
            raise self.refuse("programs store to the same elements")
        tile = self.with_lead(tile, tuple(sorted(lead)))
        places = [
            tile.lead.index(part.lead) if part.lead is not None else len(tile.lead) + (part.axis or 0)
            for part in parts
            if part.lead is not None or part.axis is not None
        ]
        if sorted(places) != list(range(len(tile.lead) + len(tile.uniform))):
            raise self.refuse("elements of a tile are stored to the same place")
        for part in parts:
            if part.axis is not None and not tile.uniform[part.axis]:
                self.check_extents([self.extent_along(tile, part.axis), part.stop - part.start])
        value = self.transpose(tile.value, places)
        value = self.expand(value, [at for at, part in enumerate(parts) if part.lead is None and part.axis is None])
        wanted = tuple(
            dim if part.lead is not None else part.stop - part.start for part, dim in zip(parts, shape, strict=True)
        )
        return restate(self.b, value, wanted)

    # Tensors of integers.

    def position(self, expr: Dim, axes: Mapping[str, Any], rank: int) -> Raised:
        """An expression over axes of a tile, programs and sizes at every element; `axes` are by name."""
        total: Raised | None = None
        plain = ZERO
        for monomial, coefficient in expr.terms:
            term = Dim(((monomial, coefficient),))
            if not any(name.startswith("%") or name in axes for name in term.symbols):
                plain = plain + term
                continue
            part: Raised | None = None if coefficient == 1 else self.number(coefficient, i64, rank)
            for atom in monomial:
                factor = self._atom(atom, axes, rank)
                part = factor if part is None else self.apply("mul", part, factor)
            assert part is not None
            total = part if total is None else self.apply("add", total, part)
        if total is not None and plain == ZERO:
            return total
        value = size_value(self.b, plain)
        value = self.b.emit("reshape", value, shape=(ONE,) * rank) if rank else value
        scalar = Raised(value, (), (True,) * rank)
        return scalar if total is None else self.apply("add", total, scalar)

    def _atom(self, atom: Atom, axes: Mapping[str, Any], rank: int) -> Raised:
        if atom.kind != "symbol":
            first, second = (self.position(argument, axes, rank) for argument in atom.args)
            return self.apply(atom.kind, first, second)
        if atom.name in axes:
            axis, start, count = axes[atom.name]
            shape = tuple(count if at == axis else ONE for at in range(rank))
            made = self.b.emit("iota", shape=shape, axis=axis, dtype=i64)
            if start != ZERO:
                made = self.b.emit("add", made, size_value(self.b, start))
            return Raised(made, (), tuple(at != axis for at in range(rank)))
        if atom.name.startswith("%p"):
            lead = int(atom.name[2:])
            shape = (self.program.grid[lead], *(ONE,) * rank)
            return Raised(self.b.emit("iota", shape=shape, axis=0, dtype=i64), (lead,), (True,) * rank)
        return self.position(Dim.symbol(atom.name), {}, rank)

    # Values.

    def number(self, value: Any, dtype: DType, rank: int) -> Raised:
        """A constant tile."""
        made = self.b.emit("full", shape=(ONE,) * rank, value=value, dtype=dtype)
        return Raised(made, (), (True,) * rank, float(value))

    def with_lead(self, tile: Raised, lead: tuple[int, ...]) -> Raised:
        """A tile with dims for more axes of the grid, along which it is the same."""
        missing = [at for at, axis in enumerate(lead) if axis not in tile.lead]
        return Raised(self.expand(tile.value, missing), lead, tile.uniform, tile.number)

    def align(self, tiles: Sequence[Raised]) -> list[Raised]:
        """Tiles with dims for the same axes of the grid."""
        lead = tuple(sorted(set[int]().union(*(tile.lead for tile in tiles))))
        return [self.with_lead(tile, lead) for tile in tiles]

    def extent_along(self, tile: Raised, axis: int) -> Dim:
        """How many elements all blocks of a tile have together along an axis."""
        return self.b.type_of(tile.value).shape[len(tile.lead) + axis]

    def is_same(self, left: Dim, right: Dim) -> bool:
        """Whether two sizes are equal, by algebra or by what the kernel requires of a call."""
        reached = {left}
        for _ in self.program.equalities:
            pairs = [{one, other} for one, other, _ in self.program.equalities]
            reached = reached.union(*(pair for pair in pairs if pair & reached))
        return right in reached

    def check_extents(self, extents: Sequence[Dim]) -> None:
        """Refuse tiles that hold more or fewer elements along an axis: what one of them lacks is `pad` in a kernel."""
        for one in extents[1:]:
            if not self.is_same(one, extents[0]):
                raise self.refuse(f"tiles with {extents[0]} and {one} elements along an axis meet")

    def transpose(self, value: Any, axes: Sequence[int]) -> Any:
        return value if list(axes) == sorted(axes) else self.b.emit("transpose", value, axes=tuple(axes))

    def expand(self, value: Any, axes: Sequence[int]) -> Any:
        return self.b.emit("expand_dims", value, axes=tuple(axes)) if axes else value

    @abstractmethod
    def apply(self, fn: str, *tiles: Raised) -> Raised:
        """A scalar function at every element."""
