"""The derivative of a kernel that a user wrote: that of the program on whole tensors which it is raised to.

The kernel itself runs forward, so that its bits stay what they were. What its derivative needs of the values between is
computed on whole tensors, by graph ops, whose rules and kernels are those of any other program: a gradient of an
elementwise kernel is a fused kernel, that of rows a row kernel, that of a matmul two matmuls; and all sums are in a
fixed order.

Results of a kernel do not depend on its blocks: that is proved where it is traced (T0504). So it is what it would be if
each block were as large as the dim it is a block of: the grid has one program for each element of its batch axes, a
loop over blocks runs once, and a tile is a whole tensor. Then loads are slices, tile ops are graph ops, `acc + dot`
over the steps of K is one matmul, and an online softmax, which rescales by the maximum so far, subtracts the maximum of
the row. What this does not hold for is refused, with its line: each result element is stored once, at an index that is
an axis of the tile; masks at ragged edges are gone with the edges, and all others become `where`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.diagnostics.error import Span
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import cast, restate
from tessera.ir.graph.derivatives.kernel_access import GATHERED, AccessRaiser, Part, Raised
from tessera.ir.graph.derivatives.shared import Applied
from tessera.ir.graph.transforms.linearize import Dual, DualBuilder, LinearBuilder, Linearizer
from tessera.ir.tile.block_dependence import BlockDependence, describe_dependence
from tessera.ir.tile.block_facts import IDEMPOTENT, TRIP, Coordinate
from tessera.ir.tile.records import Body, KernelProgram, TileOp
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.policy import NEAREST, SILENT
from tessera.types.promotion import promote
from tessera.types.shape import ONE, ZERO

_REFUSED = {
    "per_block": 'it computes on single blocks, by `per_block` or `scope="block"`',
    "shuffle": "`shuffle` exchanges elements of a tile",
    "butterfly": "`butterfly` exchanges elements of a tile",
    "vote": "`vote` exchanges elements of a tile",
    "bitcast": "`bitcast` reads the bits of numbers",
}
_GELU = {"gelu_erf": "none", "gelu_tanh": "tanh"}


@frozen
class Step:
    """An op of a kernel whose loops run once, and the steps of the loops around it."""

    op: TileOp
    loops: tuple[int, ...]


class KernelRaiser(AccessRaiser):
    """Puts a kernel on a tape, op by op."""

    def __init__(self, program: KernelProgram, b: Builder, operands: Sequence[Any], call: Span | None) -> None:
        super().__init__(program, b, operands, call)
        self.loops: dict[int, TileOp] = {}
        self.results = program.buffers[program.inputs :]
        self.stored: dict[int, list[tuple[list[Part], Any]]] = {number: [] for number in self.results}

    def run(self) -> list[Any]:
        """The results of the kernel."""
        if dict(self.program.schedule).get("triangular") is not None:
            raise self.refuse("its schedule computes a triangle alone")
        steps = self._flatten(self.program.body, ())
        live = self._find_live(steps)
        for step in steps:
            self.op = step.op
            if step.op.name in ("index", "program_id", "fetch"):
                self.read_index(step.op)
            elif step.op.name == "load":
                self._note_widths(step.op)
        self._check_loops()
        for step in live:
            self.op = step.op
            self._raise(step)
        return [self._join(number) for number in self.results]

    def _flatten(self, body: Body, loops: tuple[int, ...]) -> list[Step]:
        """The ops in order, each loop as one iteration of it."""
        found: list[Step] = []
        for op in body.ops:
            if op.body is None:
                found.append(Step(op, loops))
                continue
            step, *carried = op.body.arguments
            self.loops[step] = op
            self.index[step] = Dim.symbol(f"%s{step}")
            self.alias.update(zip(carried, op.operands[2:], strict=True))
            found += self._flatten(op.body, (*loops, step))
            self.alias.update(zip(op.results, op.body.results, strict=True))
        return found

    def _find_live(self, steps: Sequence[Step]) -> list[Step]:
        """The ops that what is stored depends on: not those that prefetch blocks for a next iteration."""
        needed = set(self.results)
        kept: list[Step] = []
        for step in reversed(steps):
            op = step.op
            if needed.isdisjoint(op.results) and not (op.name == "store" and self.resolve(op.operands[1]) in needed):
                continue
            needed.update(map(self.resolve, op.operands))
            if op.name not in ("index", "program_id", "fetch", "scratch"):
                kept.append(step)
        return kept[::-1]

    def _note_widths(self, op: TileOp) -> None:
        starts, sizes = self.starts(op, 1), self.tile_type(op.results[0]).shape
        for name, size, bound in zip(op.values["axes"], sizes, op.values["bounds"], strict=True):
            if self.index.get(starts[name]) == ZERO:
                self.widths.setdefault(size.value or 0, set()).add(size if bound.value == -1 else bound)

    # Loops.

    def _check_loops(self) -> None:
        """Refuse a loop that is more than its blocks together: where its step is a number, that is proved here.

        Where the trip count is that of a block's own rows, as under a causal mask, what is left out counts for nothing.
        """
        if not self.loops:
            return
        free: dict[int, Coordinate] = {}
        grid: dict[int, Coordinate] = {}
        for step, op in self.loops.items():
            self.op = op
            extent = self.program.blocks.get(step)
            if extent is None:
                raise self.refuse("a scan runs along a tile")
            size, role = op.values["step"], op.values.get("block", "")
            coordinate = Coordinate(f"%s{step}", role, size, extent, is_loop=True)
            high = self.index[self.resolve(op.operands[1])]
            if not role and not (extent.value is not None and extent.value <= size):
                free[step] = coordinate
            if any(name.startswith("%s") for name in high.symbols):
                grid[step] = coordinate
            elif high != extent or any(name.startswith("%") for name in high.symbols):
                raise self.refuse("how often a loop runs differs from program to program")
        if grid:
            blocks = {n: extent for n, extent in self.program.blocks.items() if n not in self.loops}
            grid |= {n: Coordinate(f"%s{n}", "", 1, extent) for n, extent in blocks.items()}
        walk = BlockDependence(self.program.types, free | grid)
        walk.run(self.program.body)
        names = {coordinate.name for coordinate in free.values()}
        for found in walk.found:
            if found.kind == TRIP or found.coordinate.name in names:
                raise self.refuse(describe_dependence(found), found.cause or found.store)

    # Ops.

    def _raise(self, step: Step) -> None:
        op = step.op
        rule: Callable[[TileOp], Raised] | None = getattr(self, f"_do_{op.name}", None)
        if op.name == "store":
            self._store(step)
        elif op.name == "load":
            self.values[op.results[0]] = self.load(op)
        elif rule is None:
            raise self.refuse(_REFUSED.get(op.name, f"`{op.name}` has no derivative"))
        else:
            self.values[op.results[0]] = rule(op)

    def operands(self, op: TileOp) -> list[Raised]:
        """The tiles that an op takes."""
        return [self.values[self.resolve(number)] for number in op.operands]

    def _do_constant(self, op: TileOp) -> Raised:
        type, value = self.tile_type(op.results[0]), op.values["value"]
        if not isinstance(value, bool | int | float):
            raise self.refuse("a constant is no number")
        return self.number(value, type.dtype, type.rank)

    def _do_broadcast(self, op: TileOp) -> Raised:
        (tile,), axes = self.operands(op), op.values["axes"]
        given, wanted = self.tile_type(self.resolve(op.operands[0])), self.tile_type(op.results[0])
        new = [axis for axis in range(wanted.rank) if axis not in axes]
        uniform = [True] * wanted.rank
        for at, axis in enumerate(axes):
            uniform[axis] = tile.uniform[at] or given.shape[at] != wanted.shape[axis]
            if uniform[axis]:
                self.check_extents([self.extent_along(tile, at), ONE])
        return Raised(self.expand(tile.value, [len(tile.lead) + axis for axis in new]), tile.lead, tuple(uniform),
                      tile.number)  # fmt: skip

    def _do_cast(self, op: TileOp) -> Raised:
        (tile,) = self.operands(op)
        return Raised(cast(self.b, tile.value, self.tile_type(op.results[0]).dtype), tile.lead, tile.uniform)

    def _do_transpose(self, op: TileOp) -> Raised:
        return self.permute(self.operands(op)[0], (1, 0))

    def _do_elementwise(self, op: TileOp) -> Raised:
        return self.apply(op.values["fn"], *self.operands(op))

    def _do_select(self, op: TileOp) -> Raised:
        return self._emit("where", self.operands(op))

    def apply(self, fn: str, *tiles: Raised) -> Raised:
        if fn == "fma":
            return self.apply("add", self.apply("mul", *tiles[:2]), tiles[2])
        folded = self._fold(fn, tiles)
        if folded is not None:
            return folded
        if fn in _GELU:
            return self._emit("gelu", tiles, approximate=_GELU[fn])
        dtype = self.b.type_of(tiles[0].value).dtype.name
        names = [op.name for op in SCALAR_FUNCTIONS[fn].graph_ops if dtype in op.dtypes]
        if not names:
            raise self.refuse(f"`{fn}` of {dtype} has no derivative")
        return self._emit(names[0], tiles)

    def _emit(self, name: str, tiles: Sequence[Raised], **attributes: Any) -> Raised:
        aligned = self.align(tiles)
        for axis in range(len(tiles[0].uniform)):
            self.check_extents([self.extent_along(tile, axis) for tile in tiles if not tile.uniform[axis]])
        uniform = tuple(all(flags) for flags in zip(*(tile.uniform for tile in tiles), strict=True))
        return Raised(self.b.emit(name, *(tile.value for tile in aligned), **attributes), aligned[0].lead, uniform)

    def _fold(self, fn: str, tiles: Sequence[Raised]) -> Raised | None:
        """What a function of what a loop starts from is: the sum or the maximum of nothing, and its weight."""
        dtype, rank = self.b.type_of(tiles[0].value).dtype, len(tiles[0].uniform)
        if not dtype.is_float:
            return None
        if fn == "exp" and tiles[0].number == -inf:
            return self.number(exp(-inf), dtype, rank)
        if len(tiles) != 2:
            return None
        identity = {"add": 0.0, "max": -inf, "min": inf}.get(fn)
        for one, other in (tiles, tiles[::-1]):
            if identity is not None and one.number == identity:
                return other
            if fn == "mul" and one.number == 0.0:
                return one
        return tiles[0] if fn == "sub" and tiles[0].number == -inf else None

    def _do_reduce(self, op: TileOp) -> Raised:
        (tile,), kind, axis = self.operands(op), op.values["kind"], int(op.values["axis"])
        at = len(tile.lead) + axis
        uniform = tile.uniform[:axis] + tile.uniform[axis + 1 :]
        if tile.uniform[axis] and self.tile_type(self.resolve(op.operands[0])).shape[axis].value != 1:
            if kind not in IDEMPOTENT:
                raise self.refuse(f"`{kind}` is of equal elements, as many as a tile has")
            return Raised(self.b.emit("squeeze", tile.value, axes=(at,)), tile.lead, uniform)
        more = {"identity": True} if kind in ("max", "min") else {}
        return Raised(self.b.emit(kind, tile.value, axes=(at,), keepdims=False, **more), tile.lead, uniform)

    def _do_dot(self, op: TileOp) -> Raised:
        left, right, acc = self.operands(op)
        uniform = (left.uniform[0], right.uniform[1])
        if left.uniform[1] and right.uniform[0] and self.tile_type(self.resolve(op.operands[0])).shape[1].value != 1:
            raise self.refuse("`dot` contracts equal elements, as many as a tile has")
        left, right = self.align([left, right])
        if not left.uniform[1] and not right.uniform[0]:
            self.check_extents([self.extent_along(left, 1), self.extent_along(right, 0)])
        dtypes = [self.b.type_of(tile.value).dtype for tile in (left, right)]
        # Cotangents are rounded to the dtype of the operands: that of 8 bits is for operands with scales.
        dtype = f32 if any(one.is_float and one.bits < 16 for one in dtypes) else promote(*dtypes)
        assert dtype is not None
        values = [cast(self.b, tile.value, dtype) for tile in (left, right)]
        shapes = [list(self.b.type_of(value).shape) for value in values]
        if left.uniform[1] != right.uniform[0]:
            shapes[0][-1] = shapes[1][-2] = shapes[1][-2] if left.uniform[1] else shapes[0][-1]
            values = [self.b.emit("broadcast_to", v, shape=tuple(s)) for v, s in zip(values, shapes, strict=True)]
        wanted = self.tile_type(op.results[0]).dtype
        made = Raised(self.b.emit("matmul", *values, accumulate=wanted, dtype=wanted), left.lead, uniform)
        return self.apply("add", acc, made)

    def _do_clip(self, op: TileOp) -> Raised:
        """Elements beyond a bound replaced: all of them are within where it is the extent of the axis."""
        tile, starts, names = self.values[self.resolve(op.operands[0])], self.starts(op, 1), op.values["axes"]
        axis, sizes = int(names.index(op.values["axis"])), self.tile_type(op.results[0]).shape
        at = len(tile.lead) + axis
        if tile.uniform[axis]:
            shape = list(self.b.type_of(tile.value).shape)
            _, shape[at] = self._extent(starts[names[axis]], sizes[axis].value or 0)
            uniform = (*tile.uniform[:axis], False, *tile.uniform[axis + 1 :])
            tile = Raised(self.b.emit("broadcast_to", tile.value, shape=tuple(shape)), tile.lead, uniform)
        outer = {name: number for name, number in starts.items() if name not in names}
        count, bound = self.b.type_of(tile.value).shape[at], self.substitute(op.values["bound"], outer)
        if bound == count or ((bound - count).value or -1) >= 0:
            return tile
        rank = len(sizes)
        axes = {name: (n, *self._extent(starts[name], sizes[n].value or 0)) for n, name in enumerate(names)
                if name in bound.symbols}  # fmt: skip
        along = {"%": (axis, ZERO, count)}
        inside = self.apply("lt", self.position(Dim.symbol("%"), along, rank), self.position(bound, axes, rank))
        dtype = self.b.type_of(tile.value).dtype
        return self._emit("where", [inside, tile, self.number(op.values["identity"], dtype, rank)])

    def _extent(self, number: int, size: int) -> tuple[Dim, Dim]:
        """Where the axis of a tile that was not loaded starts, and how many elements it has."""
        if number in self.program.blocks:
            return ZERO, self.size(self.program.blocks[number], {})
        start = self.size(self.index[number], {})
        found = self.widths.get(size, {Dim.constant(size)}) if start == ZERO else {Dim.constant(size)}
        if len(found) != 1:
            raise self.refuse("an index runs along a tile that holds one of several dims")
        return start, next(iter(found))

    def _do_coordinate(self, op: TileOp) -> Raised:
        starts, names, type = self.starts(op, 0), op.values["axes"], self.tile_type(op.results[0])
        expr = self.substitute(
            op.values["expr"], {name: number for name, number in starts.items() if name not in names}
        )
        axes = {
            name: (n, *self._extent(starts[name], type.shape[n].value or 0))
            for n, name in enumerate(names)
            if name in expr.symbols
        }
        return self.position(expr, axes, type.rank)

    # Results.

    def _store(self, step: Step) -> None:
        op = step.op
        buffer = self.resolve(op.operands[1])
        if buffer not in self.stored:
            self.store_scratch(op)
            return
        if op.values["mode"] != "set":
            raise self.refuse(f"`{op.values['mode']}` combines what programs store")
        number = self.resolve(op.operands[0])
        tile, type = self.values[number], self.program.types[buffer].type
        sizes = [dim.value or 0 for dim in self.tile_type(number).shape]
        parts = self.parts(op, 2, type.shape, sizes)
        self._check_alone(op, parts, step.loops)
        value = self.arrange(self._mask(op, tile), parts, type.shape)
        self.stored[buffer].append((parts, value))

    def _mask(self, op: TileOp, tile: Raised) -> Raised:
        """What is stored where a mask lets it; a result that has one begins as zeros."""
        tiles = op.operands[2 + len(op.values["coords"]) :]
        windows = op.values.get("windows", ())
        for expr, extent in zip(windows[::2], windows[1::2], strict=True):
            found = [number for at, number in enumerate(tiles) if expr == Dim.symbol(f"t{at}")]
            if not found or extent.value != 1:
                raise self.refuse(GATHERED if found else "an index is computed, and may be out of bounds")
            rank = len(tile.uniform)
            flag = self.values[self.resolve(found[0])]
            zero = self.number(0, self.b.type_of(flag.value).dtype, rank)
            nothing = self.number(0, self.b.type_of(tile.value).dtype, rank)
            tile = self._emit("where", [self.apply("eq", flag, zero), tile, nothing])
        return tile

    def _check_alone(self, op: TileOp, parts: Sequence[Part], loops: Sequence[int]) -> None:
        """Refuse where several programs or iterations store to the same elements."""
        starts, axes = self.starts(op, 2), op.values["axes"]
        taken = {starts[axes[part.axis]] for part in parts if part.axis is not None}
        leads = {part.lead for part in parts if part.lead is not None}
        if len(leads) < sum(part.lead is not None for part in parts) or any(part.repeat.value != 1 for part in parts):
            raise self.refuse("programs store to the same elements")
        sizes = self._grid_blocks()
        for axis, count in enumerate(self.program.grid):
            number, size = sizes.get(axis, (-1, 0))
            if count.value in (0, 1) or axis in leads or number in taken:
                continue
            extent = self.program.blocks.get(number)
            if extent is None or not self.is_same(minimum(extent, size), extent):
                raise self.refuse("programs store to the same elements")
        if not set(loops) <= taken:
            raise self.refuse("iterations of a loop store to the same elements")

    def _grid_blocks(self) -> dict[int, tuple[int, int]]:
        """By axis of the grid: the index at which its blocks start, and their size."""
        programs = {op.results[0]: op.values["axis"] for op in self.program.body.ops if op.name == "program_id"}
        found: dict[int, tuple[int, int]] = {}
        for op in self.program.body.ops:
            if op.name == "index" and op.results[0] in self.program.blocks:
                ((_, size),) = op.values["expr"].terms
                found[programs[op.operands[0]]] = (op.results[0], size)
        return found

    def _join(self, number: int) -> Any:
        """A result of what was stored to it: the whole of it, or parts that follow one another along a dim."""
        stored, shape = self.stored[number], self.program.types[number].type.shape
        axes = {
            axis for parts, _ in stored for axis, part in enumerate(parts)
            if part.lead is None and (part.start != ZERO or not self.is_same(part.stop, shape[axis]))
        }  # fmt: skip
        if len(stored) == 1 and not axes:
            return stored[0][1]
        if len(axes) == 1:
            (axis,) = axes
            ordered = sorted(stored, key=lambda item: item[0][axis].start.value or 0)
            ends = [ZERO, *(parts[axis].stop for parts, _ in ordered)]
            is_dense = all(parts[axis].start == end for (parts, _), end in zip(ordered, ends, strict=False))
            if is_dense and self.is_same(ends[-1], shape[axis]):
                return self.b.emit("concat", *(value for _, value in ordered), axis=axis)
        self.op = next((op for op in self.program.body.ops if op.name == "store"), None)
        raise self.refuse("its stores overlap, or leave elements of a result out")


def raise_kernel(program: KernelProgram, b: Builder, operands: Sequence[Any], call: Span | None = None) -> list[Any]:
    """The results of a kernel on whole tensors, as graph ops that a builder emits.

    Raises DifferentiationError (T0306) at the line of the kernel that has no such form.
    """
    return KernelRaiser(program, b, operands, call).run()


def kernel_jvp(b: LinearBuilder, op: Applied) -> list[Any]:
    """The tangents of the kernel's results."""
    name = str(op.attributes["kernel"])
    kernel = KERNELS.get(name)
    if kernel is None:
        raise DifferentiationError(f"there is no kernel `{name.split(':')[0]}` in this process", span=b.span)
    program = kernel.unpadded_program([b.type_of(operand) for operand in op.operands])
    # A kernel says itself what it computes in, and no policy of its caller; that of the function holds for the silent.
    policy, b.policy = b.policy, NEAREST if b.policy else SILENT
    try:
        duals = list(map(Dual, op.operands, op.tangents))
        made = raise_kernel(program, DualBuilder(Linearizer(b)), duals, b.span)
        found = [dual.tangent for dual in made]
        shapes = [b.type_of(result).shape for result in op.results]
        return [one if one is None else restate(b, one, shape) for one, shape in zip(found, shapes, strict=True)]
    finally:
        b.policy = policy
