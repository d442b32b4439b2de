"""Contraction groups: a grid of output blocks, a loop over K with one dot, then the epilogue on the accumulator.

Matmul, `dot_general` and convolution are one kernel: their index maps split `m`, `n` and `k` into the dims of the
operands (a convolution's `k` is channel, row and column of the filter), and tiles are loaded through those maps.
Padding is a window of the map, outside of which a load gives zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, compose, delinear, simplify
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, join_dims, spec_of
from tessera.ir.schedule.emit.request import Request, buffers_of
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.tile.facets import Contraction, ContractionMaps, View
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, f32, f64, i32
from tessera.types.machine import Machine
from tessera.types.policy import Policy, tf32

BLOCKS = ((64, 128, 64), (128, 128, 64), (64, 64, 64), (128, 256, 64), (32, 64, 64), (96, 256, 128))
"""Candidates (BM, BN, BK) of machines without matrix instructions."""

DEEP_K = 256
"""Elements of K from which on a step is deep for all dtypes."""
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


def layout_of(body: Tape, record: Record, maps: ContractionMaps, policy: Policy) -> dict[str, Any]:
    """What a choice of blocks depends on: the dtype of the operands, and whether they are contiguous in K.

    `mode` is `tf32` where they were rounded to that; `is_windowed` says that one operand is read through windows.
    """
    asked = record.policy or policy
    return {
        "dtype": body.types[record.operands[0]].dtype,
        "mode": "tf32" if asked.compute is tf32 else "",
        "is_lhs_m_major": _is_strided_in_k(body, record.operands[0], maps.lhs),
        "is_rhs_n_major": _is_strided_in_k(body, record.operands[1], maps.rhs),
        "is_windowed": bool(maps.windows),
    }


def _is_strided_in_k(body: Tape, value: int, map: IndexMap) -> bool:
    """Whether an operand is contiguous in M or N, and so strided in K."""
    makers = {result: maker for maker in body.records for result in maker.results}
    at = tuple(map)
    while value in makers:
        maker = makers[value]
        lower, source = spec_of(maker).lower, maker.operands[0]
        if isinstance(lower, View):
            outs = [body.types[result] for result in maker.results]
            found = lower.maps(body.types[source], outs, maker.attributes)
            at = compose(found[maker.results.index(value)], at)
        elif len(maker.operands) != 1 or body.types[source].shape != body.types[value].shape:
            break
        value = source
    return bool(at) and not any(name.startswith("k") for name in at[-1].symbols)


class ContractionKernel:
    """The emission of one such kernel; the contraction is the only one in the body."""

    def __init__(self, request: Request, record: Record) -> None:
        self.request, self.record, self.body = request, record, request.body
        lower = spec_of(record).lower
        assert isinstance(lower, Contraction)
        types = [self.body.types[operand] for operand in record.operands]
        self.maps: ContractionMaps = lower.maps(types, record.attributes)
        self.m, self.n, self.k = (product(part) for part in (self.maps.m, self.maps.n, self.maps.k))

    def _coordinates(self) -> dict[str, Dim]:
        """`b0`, `m0`, `n0`, `k0`, ... from the kernel's own coordinates."""
        maps = self.maps
        found = {f"b{i}": Dim.symbol(f"_b{i}") for i in range(len(maps.batch))}
        for letter, extents in (("m", maps.m), ("n", maps.n), ("k", maps.k)):
            parts = delinear(Dim.symbol(f"_{letter}"), extents)
            found.update({f"{letter}{i}": part for i, part in enumerate(parts)})
        return found

    def emit(self) -> SpecOp:
        request, maps = self.request, self.maps
        layout = layout_of(self.body, self.record, maps, request.policy)
        BM, BN, BK = request.chooser.choose(
            f"contraction.block@{request.name}",
            blocks_of(request.machine),
            {
                "machine": request.machine,
                "m": self.m,
                "n": self.n,
                "k": self.k,
                "batch": product(maps.batch),
                **layout,
            },
        ).value
        dtype: DType = layout["dtype"]
        # A row of a step fills a line of shared memory; deep or narrow ones have as many bytes as with two-byte floats.
        lines = request.machine.lines if dtype.bytes == 1 or layout["mode"] == "tf32" else ()
        step_k = (2 * BK if BK >= DEEP_K or BN < NARROW else lines[0]) // dtype.bytes if lines else BK
        grid = [*maps.batch, self.m.ceildiv(BM), self.n.ceildiv(BN)]
        self.tile: TileBuilder = request.builder(grid, "contraction", False)
        tile = self.tile
        count = len(maps.batch)
        coords = {f"_b{i}": tile.program_id(i) for i in range(count)}
        for offset, (name, size) in enumerate((("_m", BM), ("_n", BN))):
            program = tile.program_id(count + offset)
            coords[name] = tile.index(Dim.symbol(name) * size, {name: program})
        inputs, outputs = buffers_of(self.body, tile)
        evaluator = Evaluator(self.body, tile, inputs, False)
        acc = self._accumulate(evaluator, coords, (BM, BN, step_k))
        place = Place(coords, ("_m", "_n"), (BM, BN), {"_m": self.m, "_n": self.n})
        (result,) = self.record.results
        evaluator.ready[result] = (tile.cast(acc, self.body.types[result].dtype), place.axes)
        at = self._out_at()
        for output, buffer in zip(self.body.outputs, outputs, strict=True):
            made = evaluator.value(output, at, place)
            tile.span = evaluator.span_of(output)
            tile.store(made, buffer, at, place)
        return tile.finish()

    def _out_at(self) -> IndexMap:
        where, maps = self._coordinates(), self.maps
        names = [f"{letter}{i}" for letter in ("b", "m", "n") for i in range(len(self._part(maps, letter)))]
        return tuple(where[name] for name in names)

    @staticmethod
    def _part(maps: ContractionMaps, letter: str) -> Sequence[Dim]:
        return {"b": maps.batch, "m": maps.m, "n": maps.n}[letter]

    def _accumulate(
        self, evaluator: Evaluator, coords: Mapping[str, SSAValue], block: tuple[int, int, int]
    ) -> SSAValue:
        tile, (BM, BN, BK) = self.tile, block
        lhs, rhs = self.record.operands
        dtype = accumulator(self.body, self.record)
        tile.span = self.record.span

        def step(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            here = {**coords, "_k": index}
            with evaluator.scope():
                left = self._operand(
                    evaluator, 0, lhs, Place(here, ("_m", "_k"), (BM, BK), {"_m": self.m, "_k": self.k})
                )
                right = self._operand(
                    evaluator, 1, rhs, Place(here, ("_k", "_n"), (BK, BN), {"_k": self.k, "_n": self.n})
                )
                return [tile.dot(tile.cast(left, dtype), tile.cast(right, dtype), carried[0])]

        start = tile.full(0, (BM, BN), dtype)
        (acc,) = tile.loop(tile.index(0), tile.index(self.k), BK, step, [start])
        return acc

    def _operand(self, evaluator: Evaluator, number: int, value: int, place: Place) -> SSAValue:
        """A tile of an operand; zero beyond the edges and outside the windows."""
        where = self._coordinates()
        map = tuple(simplify(expr.substitute(where)) for expr in (self.maps.lhs if number == 0 else self.maps.rhs))
        windows: list[Dim] = []
        for operand, expr, extent in self.maps.windows:
            if operand == number:
                windows += [simplify(expr.substitute(where)), extent]
        if windows:
            return evaluator.load(value, map, place, windows=windows)
        return evaluator.value(value, map, place)


def emit_contraction(request: Request) -> SpecOp:
    """The kernel of a group around one contraction."""
    (record,) = [record for record in request.body.records if isinstance(spec_of(record).lower, Contraction)]
    made = ContractionKernel(request, record).emit()
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
    models = {"contraction.block": ("static model", contraction_block)}

    def knobs(self, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
        # Only machines that prefetch into shared memory have buffers to count; 0 is as many as fit.
        stages = (("pipeline.stages", (0, 2, 3, 4, 5, 6, 8, 1)),) if machine.copy is not None else ()
        return (("contraction.block", blocks_of(machine)), *stages)

    def context(self, body: Tape, policy: Policy) -> dict[str, Any]:
        """The extents of rows, columns and K, and what the operands are."""
        (record,) = [record for record in body.records if isinstance(spec_of(record).lower, Contraction)]
        maps = spec_of(record).lower.maps([body.types[operand] for operand in record.operands], record.attributes)
        extents = {"m": product(maps.m), "n": product(maps.n), "k": product(maps.k), "batch": product(maps.batch)}
        return {**extents, **layout_of(body, record, maps, policy)}

    def emit(self, request: Request) -> Sequence[SpecOp]:
        return [emit_contraction(request)]


KIND = ContractionKind()
