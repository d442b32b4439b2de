"""Contraction groups: a grid of output blocks, a loop over K with one dot, then the epilogue on the accumulator.

Matmul, `dot_general` and convolution are one kernel: their index maps split `m`, `n` and `k` into the dims of the
operands (a convolution's `k` is channel, row and column of the filter), and tiles are loaded through those maps.
Padding is a window of the map, outside of which a load gives zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, simplify
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.computed_operands import COMPUTED_ROWS, Box, box_read, computed_block, computed_operand
from tessera.ir.schedule.emit.evaluate import (
    Evaluator,
    axes_of,
    join_dims,
    operand_at,
    operand_reads,
    producers,
    spec_of,
    tile_coordinates,
)
from tessera.ir.schedule.emit.request import Request, buffers_of
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.layouts import EPILOGUE, Access, along_rows, operand_accesses
from tessera.ir.schedule.program import ReadMaps, check_epilogue, result_reads
from tessera.ir.tile.facets import Assembly, Contraction, ContractionMaps, Pointwise, View
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, f32, f64, i32, i64
from tessera.types.machine import Machine
from tessera.types.policy import Policy, tf32

BLOCKS = ((64, 128, 64), (128, 128, 64), (64, 64, 64), (128, 256, 64), (32, 64, 64), (96, 256, 128))
"""Candidates (BM, BN, BK) of machines without matrix instructions."""

DEEP_K = 256
"""Elements of K from which on a step is deep for all dtypes."""
UNIT = 256
"""Segments of K have a multiple of so many elements (`docs/guide/numerics.md`), so that steps end where they do."""
NARROW = 64
"""Columns below which a step is so few bytes that more of K are loaded in one."""


def blocks_of(machine: Machine) -> Sequence[tuple[int, int, int]]:
    """Candidates for a machine: those of its best matrix instruction that has any."""
    return next((one.blocks for one in machine.instructions if one.blocks), BLOCKS)


def accumulator(body: Tape, record: Record) -> DType:
    """The accumulator's dtype: what the op asks for; else f32, or f64 beside f64; of integers the result's dtype.

    The low bits of an integer sum do not depend on the high ones: truncated to the result's dtype, it is the sum that
    wraps.
    """
    asked: DType | None = record.attributes.get("accumulate")
    dtypes = [body.types[value].dtype for value in (*record.operands, record.results[0])]
    if asked is not None or any(dtype.is_float for dtype in dtypes):
        return asked or (f64 if f64 in dtypes else f32)
    return dtypes[-1] if dtypes[-1].bits >= 32 else i32


def contraction_in(body: Tape) -> tuple[Record, ContractionMaps]:
    """The only contraction of a body, and its index maps."""
    (record,) = [record for record in body.records if isinstance(spec_of(record).lower, Contraction)]
    types = [body.types[operand] for operand in record.operands]
    return record, spec_of(record).lower.maps(types, record.attributes)


def segment_maps(body: Tape, record: Record) -> ContractionMaps | None:
    """The maps of the segments of K, the first batch axis, that a kernel joins by itself; None where it has none.

    A contraction that says how long its segments are, and not that it gives partial results, gives them joined.
    """
    if record.attributes.get("segment") is None or record.attributes["partial"]:
        return None
    types = [body.types[operand] for operand in record.operands]
    return spec_of(record).lower.maps(types, {**record.attributes, "partial": True})


def layout_of(
    body: Tape, record: Record, maps: ContractionMaps, policy: Policy, makers: Mapping[int, Record] | None = None
) -> dict[str, Any]:
    """What a choice of blocks depends on: the dtype of the operands, and whether they are contiguous in K.

    `lhs_row` and `rhs_row` are elements of a row of each in memory, which may have more of K than is contracted.
    `mode` is `tf32` where they were rounded to that; `is_copied` says that copies read one of them through windows. Who
    asks about many contractions of one tape gives the `makers` of its values.
    """
    asked, makers = record.policy or policy, producers(body) if makers is None else makers
    lhs, rhs = (_row_of(body, makers, *pair) for pair in zip(record.operands, (maps.lhs, maps.rhs), strict=True))
    return {
        "dtype": body.types[record.operands[0]].dtype,
        "accumulator": accumulator(body, record),
        "mode": "tf32" if asked.compute is tf32 else "",
        "is_lhs_m_major": lhs[0],
        "is_rhs_n_major": rhs[0],
        "lhs_row": lhs[1],
        "rhs_row": rhs[1],
        "is_copied": maps.are_copied,
    }


def _row_of(body: Tape, makers: Mapping[int, Record], value: int, map: IndexMap) -> tuple[bool, Dim | None]:
    """Whether an operand is contiguous in M or N, and so strided in K; elements of a row of it in memory."""
    at = tuple(map)
    while (maker := makers.get(value)) is not None:
        if isinstance(spec_of(maker).lower, View):
            ((value, at),) = operand_reads(body, maker, value, at)
        elif len(maker.operands) == 1 and body.types[maker.operands[0]].shape == body.types[value].shape:
            (value,) = maker.operands
        else:
            break
    shape = body.types[value].shape
    return bool(at) and not any(name.startswith("k") for name in at[-1].symbols), shape[-1] if shape else None


class ContractionKernel:
    """The emission of one such kernel; the contraction is the only one in the body."""

    def __init__(self, request: Request) -> None:
        self.request, self.body = request, request.body
        self.record, self.maps = contraction_in(self.body)
        segments = segment_maps(self.body, self.record)
        self.maps, self.joined = (self.maps, 0) if segments is None else (segments, segments.batch[0].value or 0)
        """Segments that are joined here are the first batch axis of the maps, which the grid has not."""
        self.m, self.n, self.k = (product(part) for part in (self.maps.m, self.maps.n, self.maps.k))
        self.where = tile_coordinates(self.maps)
        can_compute = any(one.computes for one in request.machine.instructions[:1])
        self.computed = computed_operand(self.body, self.record) if can_compute else None
        self.axes = ("_n", "_m") if self.computed is not None and self.computed.number == 1 else ("_m", "_n")
        """The rows and columns of the accumulator: a computed operand has the rows."""
        # Where operands end along K: a last segment of it may have less than the others, and reads zeros beyond.
        self.end = axes_of(self.maps, 0)["_k"]

    def emit(self) -> SpecOp:
        request, maps = self.request, self.maps
        layout = KIND.context(self.body, request.policy)
        BM, BN, step_k = self._block(layout)
        first = 1 if self.joined else 0
        grid = [*maps.batch[first:], self.m.ceildiv(BM), self.n.ceildiv(BN)]
        self.tile: TileBuilder = request.builder(grid, "contraction", False)
        tile = self.tile
        count = len(maps.batch) - first
        coords = {f"_b{first + i}": tile.program_id(i) for i in range(count)}
        for offset, (name, size) in enumerate((("_m", BM), ("_n", BN))):
            program = tile.program_id(count + offset)
            coords[name] = tile.index(Dim.symbol(name) * size, {name: program})
        inputs, _ = buffers_of(self.body, tile)
        outputs = [tile.arguments[request.target(number)] for number in range(len(self.body.outputs))]
        evaluator = Evaluator(self.body, tile, inputs, False)
        add_up = self._join if self.joined else self._accumulate
        acc = add_up(evaluator, coords, (BM, BN, step_k))
        sizes = {"_m": BM, "_n": BN}
        bounds = {"_m": self.m, "_n": self.n}
        region = TileRegion(coords, self.axes, tuple(sizes[axis] for axis in self.axes), bounds)
        (result,) = self.record.results
        evaluator.ready[result] = (tile.cast(acc, self.body.types[result].dtype), region.axes)
        letters = {"b": maps.batch, "m": maps.m, "n": maps.n}
        indices = [self.where[f"{letter}{i}"] for letter, extents in letters.items() for i in range(len(extents))]
        at = tuple(indices[first:])
        if request.in_place:
            # An output may be stored over what others are computed from: all are computed first.
            for output in self.body.outputs:
                evaluator.value(output, at, region)
        for output, buffer in zip(self.body.outputs, outputs, strict=True):
            made = evaluator.value(output, at, region)
            tile.span = evaluator.span_of(output)
            tile.store(made, buffer, at, region)
        return tile.finish()

    def _block(self, layout: Mapping[str, Any]) -> tuple[int, int, int]:
        """The rows and columns of a block, and the K of a step."""
        request, dtype = self.request, layout["dtype"]
        if self.computed is not None:
            rows, columns = ((self.m, self.n), (self.n, self.m))[self.computed.number]
            candidates = [(size, -(-(columns.value or 1) // 8) * 8, self.computed.step) for size in COMPUTED_ROWS]
            found = request.choose("contraction.computed", candidates, rows=rows)
            return found if self.computed.number == 0 else (found[1], found[0], found[2])
        BM, BN, BK = request.choose("contraction.block", blocks_of(request.machine), **layout)
        # A row of a step fills a line of shared memory; deep or narrow ones have as many bytes as with two-byte floats.
        lines = request.machine.lines if dtype.bytes == 1 or layout["mode"] == "tf32" else ()
        step = (2 * BK if BK >= DEEP_K or BN < NARROW else lines[0]) // dtype.bytes if lines else BK
        return BM, BN, step if self.maps.cut is None else math.gcd(step, UNIT)

    def _accumulate(
        self, evaluator: Evaluator, coords: Mapping[str, SSAValue], block: tuple[int, int, int]
    ) -> SSAValue:
        tile, BK = self.tile, block[2]
        sizes = {"_m": block[0], "_n": block[1], "_k": BK}
        bounds = {"_m": self.m, "_n": self.n, "_k": self.end}
        dtype = accumulator(self.body, self.record)
        tile.span = self.record.span
        rows, columns = self.axes
        operands = tuple(zip(((rows, "_k"), ("_k", columns)), (0, 1) if rows == "_m" else (1, 0), strict=True))

        def step(box: Box, index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            here = TileRegion({**coords, "_k": index})
            ends = [bounds if box.assembly < 0 or at else {**bounds, "_k": box.high} for at in range(2)]
            pairs = zip(operands, ends, strict=True)
            regions = [here.along(axes, [sizes[axis] for axis in axes], end) for (axes, _), end in pairs]
            with evaluator.scope():
                following = self._keep_scales(evaluator, regions[0], carried[1:])
                pairs = zip(operands, regions, strict=True)
                left, right = (tile.cast(self._operand(evaluator, one, region), dtype) for (_, one), region in pairs)
                return [tile.dot(left, right, carried[0]), *following]

        carried = [tile.full(0, (sizes[rows], sizes[columns]), dtype)]
        boxes: Sequence[Box] = (Box(Dim.constant(0), self.k),)
        if self.computed is not None:
            here = TileRegion({**coords, "_k": tile.index(0)})
            carried += self._load_scales(evaluator, here.along((rows,), (sizes[rows],), {rows: bounds[rows]}))
            boxes = self.computed.boxes
        for box in boxes:
            if box.assembly >= 0:
                maker = evaluator.makers[box.assembly]
                evaluator.boxes[box.assembly] = partial(box_read, self.body, maker, box.number)
            carried = tile.loop(tile.index(box.low), tile.index(box.high), BK, partial(step, box), carried)
        return carried[0]

    def _join(self, evaluator: Evaluator, coords: Mapping[str, SSAValue], block: tuple[int, int, int]) -> SSAValue:
        """Segment after segment, and the tree over them: what waits for its neighbour is carried, one for each level.

        A segment whose number ends in so many ones, in binary, joins what waits on as many levels, the lowest first,
        and then waits itself; the last one joins all that is left.
        """
        tile, count = self.tile, self.joined
        levels = range((count - 1).bit_length())
        sizes = {"_m": block[0], "_n": block[1]}
        shape = tuple(sizes[axis] for axis in self.axes)

        def number_is(segment: SSAValue, remainder: int, of: int) -> SSAValue:
            region = TileRegion({**coords, "_b0": segment}, self.axes, shape, {})
            number = tile.coordinate_of(Dim.symbol("_b0") % of, region)
            return tile.elementwise("eq", number, tile.full(remainder, shape, i64))

        def join(segment: SSAValue, waiting: list[SSAValue]) -> list[SSAValue]:
            with evaluator.scope():
                part = self._accumulate(evaluator, {**coords, "_b0": segment}, block)
            joined, last, kept = part, part, list[SSAValue]()
            for level in levels:
                waits = number_is(segment, (1 << level) - 1, 2 << level)
                kept.append(tile.select(waits, joined, waiting[level]))
                joined = tile.elementwise("add", waiting[level], joined)
                last = tile.elementwise("add", waiting[level], last) if (count - 1) >> level & 1 else last
            is_last = number_is(segment, count - 1, 2 << levels[-1])
            return [tile.select(is_last, last, kept[0]), *kept[1:]]

        nothing = tile.full(0, shape, accumulator(self.body, self.record))
        return tile.loop(tile.index(0), tile.index(count), 1, join, [nothing for _ in levels])[0]

    def _load_scales(self, evaluator: Evaluator, rows: TileRegion) -> list[SSAValue]:
        """What a computed operand reads that is the same along a step, one number for each row."""
        assert self.computed is not None
        return [evaluator.load(value, at, rows) for value, at in self.computed.scales]

    def _keep_scales(self, evaluator: Evaluator, region: TileRegion, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Give a step the scales that the one before has loaded, and load those of the next, which are then there."""
        if self.computed is None:
            return []
        tile, axis, step = self.tile, region.axes[0], region.sizes[1]
        for (value, at), vector in zip(self.computed.scales, carried, strict=True):
            evaluator.keep(value, at, region, tile.broadcast(vector, region.sizes, (0,)))
        after = tile.index((Dim.symbol("_k") + step) % self.k, {"_k": region.coords["_k"]})
        rows = region.with_coords(_k=after).along((axis,), region.sizes[:1], {axis: region.bounds[axis]})
        return self._load_scales(evaluator, rows)

    def _operand(self, evaluator: Evaluator, number: int, region: TileRegion) -> SSAValue:
        """A tile of an operand; zero beyond the edges and outside the windows."""
        value, map = self.record.operands[number], operand_at(self.maps, number)
        windows: list[Dim] = []
        for operand, expr, extent in self.maps.windows:
            if operand == number:
                windows += [simplify(expr.substitute(self.where)), extent]
        if windows:
            return evaluator.load(value, map, region, windows=windows)
        return evaluator.value(value, map, region)


def emit_contraction(request: Request) -> SpecOp:
    """The kernel of a group around one contraction."""
    made = ContractionKernel(request).emit()
    if request.machine.instructions:
        # TMA goes along single dims, and rows of several are still one after the other.
        join_dims(made)
    return made


_TYPICAL = 512
"""What a symbolic dim is taken to be by the model: large enough that edges do not decide."""


def contraction_block(candidates: Sequence[Any], context: Mapping[str, Any]) -> Any:
    """The block that moves the fewest bytes per useful multiply-add, among those whose operands fit the L2 cache.

    A block of BM x BN reads `BM + BN` elements for every `BM * BN` multiply-adds; what reaches over the edges of the
    result is computed for nothing.
    """
    machine: Machine = context["machine"]
    m, n, k = (_size(context.get(name)) for name in ("m", "n", "k"))

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, BK = block
        done = _round_up(m, BM) * _round_up(n, BN) * _round_up(k, BK)
        waste = done / max(1, m * n * k)
        traffic = (BM + BN) / (BM * BN)
        resident = 4 * (BM * BK + BK * BN + BM * BN)
        return waste * (1 + 64 * traffic) * (1 if resident <= machine.l2 else resident / machine.l2)

    return min(candidates, key=cost)


def _size(dim: Any) -> int:
    value = dim.value if isinstance(dim, Dim) else None
    return _TYPICAL if value is None else max(1, value)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


class ContractionKind(KernelKind):
    """One contraction, what is computed of its operands as they are loaded, and its epilogue."""

    name = "contraction"
    facets = (Contraction,)
    takes_epilogue = True
    takes = (Assembly,)
    models = {
        "contraction.block": ("static model", contraction_block),
        "contraction.computed": ("static model", computed_block),
    }

    def check(self, body: Tape, axes: tuple[int, ...]) -> None:
        check_epilogue(body, Contraction)
        if any(isinstance(spec_of(record).lower, Assembly) for record in body.records):
            found = computed_operand(body, contraction_in(body)[0])
            if found is None or found.boxes[0].assembly < 0:
                raise ValueError("a contraction computes an operand from boxes along K, and this one has others")

    def knobs(self, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
        # Only machines that prefetch into shared memory have buffers to count; 0 is as many as fit.
        stages = (("pipeline.stages", (0, 2, 3, 4, 5, 6, 8, 1)),) if machine.copy is not None else ()
        return (("contraction.block", blocks_of(machine)), *stages)

    def context(self, body: Tape, policy: Policy) -> dict[str, Any]:
        """The extents, what operands and result are, how many other ops there are, and how many are computed of it."""
        record, maps = contraction_in(body)
        extents = {"m": product(maps.m), "n": product(maps.n), "k": product(maps.k), "batch": product(maps.batch)}
        parts = segment_maps(body, record)
        after = body.records[body.records.index(record) + 1 :]
        more = {"others": len(body.records) - 1, "is_matrix": bool(maps.m and maps.n)}
        more |= {"followers": sum(isinstance(spec_of(one).lower, Pointwise) for one in after)}
        more |= {"stored_bytes": body.types[record.results[0]].dtype.bytes}
        more |= {} if parts is None else {"segments": parts.batch[0].value}
        return {**extents, **layout_of(body, record, maps, policy), **more}

    def accesses(self, body: Tape, axes: tuple[int, ...]) -> Mapping[int, Sequence[Access]]:
        record, maps = contraction_in(body)
        found = along_rows(body, result_reads(body), body.types[record.results[0]].shape, EPILOGUE)
        for operand, at in zip(record.operands, (maps.lhs, maps.rhs), strict=True):
            reads = ReadMaps(body)
            reads.visit(operand, tuple(at))
            for number, more in operand_accesses(body, reads.found, maps).items():
                found.setdefault(number, []).extend(more)
        return found

    def emit(self, request: Request) -> Sequence[SpecOp]:
        return [emit_contraction(request)]


KIND = ContractionKind()
