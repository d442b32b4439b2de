"""Attention whose scores functions change and hide: `Attention` with score programs, over the keys that are seen.

With a score function queries are scaled without log2(e), so that the function gets scores as they are; what it gives is
multiplied by log2(e) then. A mask alone leaves the arithmetic of `attention` as it is, and its bits with it. Where the
keys that a block of queries sees begin and end comes in a table (`ir/graph/score_blocks.py`), of which a program takes
the least and the largest of its rows; blocks of keys stay where they are, so that what is skipped changes no bit.
"""

from __future__ import annotations

import math
from dataclasses import replace

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.graph.score_blocks import BLOCK
from tessera.ir.graph.score_programs import SCORE, Lines, derive
from tessera.ir.tile.language import TileRegion, tile_type
from tessera.stdlib.kernels.attention import NARROW_HEAD, Attention, Extent, NarrowAttention, is_narrow
from tessera.stdlib.kernels.attention_backward import (
    DELTA,
    KEY,
    QUERY,
    VALUE,
    Axis,
    BackwardPass,
    NarrowBackward,
    are_together,
    has_tensor_cores,
)
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.stdlib.kernels.score_tiles import TileArithmetic, direct_index
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.shape import TensorType

_LOG2E = math.log2(math.e)
_LOW = float("-inf")


class ScoredAttention(Attention):
    """Emits one kernel, as `Attention` does."""

    @property
    def is_cached(self) -> bool:
        return bool(self.call.attributes["cached"])

    @property
    def is_causal(self) -> bool:
        """A causal mask is part of the program."""
        return False

    @property
    def _masks(self) -> tuple[TensorType, ...]:
        return ()

    @property
    def _ranges(self) -> int | None:
        """The operand that says where keys begin; the next one says where they end."""
        return 3 + self.is_cached if self.call.attributes["ranges"] else None

    _least: tuple[str, ...] = ()
    """Axes of a value that depends on none."""

    def _make_factor(self) -> float | SSAValue:
        if not self.call.attributes["score"]:
            return super()._make_factor()
        return self._make_scale(1.0)

    def _coordinates(self) -> dict[str, SSAValue]:
        found = super()._coordinates()
        if self._ranges is None:
            return found
        ends = [fetch_range(self, found, self._ranges + at, self.rows, is_end=bool(at)) for at in range(2)]
        return {**found, "_first": ends[0], "_last": ends[1]}

    @property
    def _end(self) -> Dim:
        if self._ranges is None:
            return self._filled
        return minimum(self._filled, Dim.symbol("_last"))

    def _make_keys_region(self, other: Extent, **coords: SSAValue) -> TileRegion:
        region = self._make_region(self.keys, other, **coords)
        is_bounded = self.is_cached or self._ranges is not None
        bounds = {**region.bounds, "_j": self._end} if is_bounded else region.bounds
        return region.along(region.axes, region.sizes, bounds)

    def _attend_all(self, first: SSAValue | None) -> list[SSAValue]:
        b, end = self.b, self._round_up(self._end, self.width)
        start = b.index(0)
        if self._ranges is not None:
            start = b.index(Dim.symbol("_first") // self.width * self.width, self.coords)
        return self._attend(first, start, b.index(end, self.coords))

    def _mask(self, scores: SSAValue, j: SSAValue) -> SSAValue:
        b, region = self.b, self._make_region(self.rows, self.keys, _j=j)
        arithmetic = TileArithmetic(b, self.call, first_capture(self.call), region, _extents(self.call), self._least)
        score, mask = self.call.attributes["score"], self.call.attributes["mask"]
        if score:
            changed = arithmetic.run(score, scores)
            scores = b.elementwise("mul", changed, b.full(_LOG2E, region.sizes, self.dtype))
        if mask:
            scores = b.select(arithmetic.run(mask, None), scores, b.full(_LOW, region.sizes, self.dtype))
        seen = self._filled if self.is_cached else region.bounds.get("_j")
        if seen is None:
            return scores
        return b.clip(scores, "_j", _LOW, region.along(region.axes, region.sizes, {"_j": seen}))


def first_capture(call: Call) -> int:
    """The operand of the first captured tensor."""
    return 3 + bool(call.attributes["cached"]) + (2 if call.attributes["ranges"] else 0)


def _extents(call: Call) -> dict[str, Dim]:
    q, k = call.operands[:2]
    return {"_b": q.shape[0], "_h": q.shape[1], "_i": q.shape[2], "_j": k.shape[2]}


def fetch_range(
    kernel: Attention | BackwardPass, coords: dict[str, SSAValue], number: int, rows: Extent | Axis, *, is_end: bool
) -> SSAValue:
    """Where a range begins or ends: the least or the largest of the blocks that the rows of a program are in."""
    b, table = kernel.b, kernel.call.operands[number].shape
    last = maximum(table[2] - 1, 0)
    lead = [
        Dim.constant(0) if size.value == 1 else Dim.symbol(name)
        for size, name in zip(table[:2], ("_b", "_h"), strict=True)
    ]
    found: dict[str, SSAValue] = {}
    for at in range(-(-rows.tile // BLOCK)):
        place = [*lead, minimum(rows.at // BLOCK + at, last)]
        found[f"_r{at}"] = b.fetch(kernel.call.input(b, number), kernel.call.at(number, place), coords)
    limit = Dim.symbol("_r0")
    for name in list(found)[1:]:
        limit = maximum(limit, Dim.symbol(name)) if is_end else minimum(limit, Dim.symbol(name))
    return b.index(limit, found)


class NarrowScored(ScoredAttention, NarrowAttention):
    """The same on tensor cores: scores are scaled before a function changes them, and copies take whole blocks of keys.

    A mask alone hides scores that are not scaled yet, as `causal` does, so that their scale is part of the exponent.
    """

    _least = ("_i",)

    @property
    def _candidates(self) -> tuple[int, ...]:
        # Registers of two warpgroups hold no accumulators of wide heads beside what functions compute.
        return (64,) if self._head_size > NARROW_HEAD else super()._candidates

    @property
    def _is_masked(self) -> bool:
        return bool(self.call.attributes["score"])

    def _make_keys_region(self, other: Extent, **coords: SSAValue) -> TileRegion:
        return NarrowAttention._make_keys_region(self, other, **coords)

    def _mask(self, scores: SSAValue, j: SSAValue) -> SSAValue:
        if self._is_masked:
            scores = self.b.elementwise("mul", scores, self._scale(self._make_region(self.rows, self.keys, _j=j)))
        return ScoredAttention._mask(self, scores, j)


def _reads_directly(call: Call, first: int) -> bool:
    """Whether functions read captured tensors, from operand `first` on, at the indices of scores alone."""
    lines: Lines = (*call.attributes["score"], *call.attributes["mask"])
    for function, operands, detail in lines:
        shape = call.operands[first + int(detail)].shape if function == "load" else ()
        pairs = zip(operands, shape, strict=False)
        if any(direct_index(source, size, _extents(call)) is None for source, size in pairs):
            return False
    return True


def _is_narrow(call: Call) -> bool:
    """Whether the call runs on tensor cores; what comes after `v` says nothing about that, except for a cache."""
    others = call.operands[3:4] if call.attributes["cached"] else ()
    # Fragments are read where they are, and not at indices that are computed.
    return _reads_directly(call, first_capture(call)) and is_narrow(
        replace(call, operands=(*call.operands[:3], *others))
    )


SCORED_ATTENTION = LibraryKernel(
    "scored_attention",
    "Attention whose scores functions change and hide, over the keys that are seen.",
    lambda call: [(NarrowScored if _is_narrow(call) else ScoredAttention)(call).write()],
)


# Gradients.


class ScoredBackward(BackwardPass):
    """Emits one kernel of the gradient, as `BackwardPass` does.

    What a function makes of scores is differentiated as lines: gradients of scores are multiplied by its slope, which
    is 0 where scores are hidden.
    """

    @property
    def is_causal(self) -> bool:
        """A causal mask is part of the program."""
        return False

    @property
    def _has_ranges(self) -> bool:
        return bool(self.call.attributes["ranges"])

    @property
    def _base(self) -> float:
        return 1.0 if self.call.attributes["score"] else _LOG2E

    def _loop_limits(self, own: dict[str, SSAValue]) -> tuple[SSAValue, SSAValue]:
        if not self._has_ranges:
            return super()._loop_limits(own)
        b, coords, number = self.b, {**self.coords, **own}, DELTA + (3 if self.is_by_keys else 1)
        first, last = (fetch_range(self, coords, number + at, self.rows, is_end=bool(at)) for at in range(2))
        tile = self.columns.tile
        end = self._round_up(minimum(self.columns.size, Dim.symbol("_last")), tile)
        start = b.index(Dim.symbol("_first") // tile * tile, {"_first": first})
        return start, b.index(end, {"_last": last})

    def _arithmetic(self, region: TileRegion) -> TileArithmetic:
        q, k = self.call.operands[QUERY], self.call.operands[KEY]
        extents = {"_b": self.batch, "_h": self.heads, "_i": q.shape[2], "_j": k.shape[2]}
        return TileArithmetic(self.b, self.call, DELTA + (5 if self._has_ranges else 1), region, extents, self._least)

    @property
    def _least(self) -> tuple[str, ...]:
        """Axes of a value that depends on none."""
        return ()

    def _mask(self, scores: SSAValue, region: TileRegion) -> SSAValue:
        """Scores as functions make them; -inf for hidden ones, and for columns that are out of bounds."""
        b, arithmetic = self.b, self._arithmetic(region)
        score, mask = self.call.attributes["score"], self.call.attributes["mask"]
        self._slope = self._make_slope(arithmetic, scores) if score else None
        if score:
            scores = b.elementwise("mul", arithmetic.run(score, scores), b.full(_LOG2E, region.sizes, self.dtype))
        if mask:
            seen = arithmetic.run(mask, None)
            scores = b.select(seen, scores, b.full(_LOW, region.sizes, self.dtype))
            if self._slope is not None:
                self._slope = b.select(seen, self._slope, b.full(0.0, region.sizes, self.dtype))
        # Queries that are out of bounds are zeros, as what is captured there: a function may make anything of them.
        if self._slope is not None:
            self._slope = b.clip(self._slope, self.columns.name, 0.0, region)
        return b.clip(scores, self.columns.name, _LOW, region)

    def _make_slope(self, arithmetic: TileArithmetic, scores: SSAValue) -> SSAValue:
        captures = self.call.operands[arithmetic.first :]
        lines = derive(self.call.attributes["score"], SCORE, self.dtype, captures)
        if lines is None:
            return self.b.full(0.0, arithmetic.region.sizes, self.dtype)
        return arithmetic.run(lines, scores)

    def _change(self, weights: SSAValue, by_weights: SSAValue, delta: SSAValue) -> SSAValue:
        made = super()._change(weights, by_weights, delta)
        return made if self._slope is None else self.b.elementwise("mul", made, self._slope)


class NarrowScoredBackward(ScoredBackward, NarrowBackward):
    """The same on tensor cores: scores are scaled before functions get them."""

    @property
    def _least(self) -> tuple[str, ...]:
        return (self.rows.name,)

    def _weigh(self, scores: SSAValue, lse: SSAValue, at: dict[str, SSAValue]) -> SSAValue:
        b, region = self.b, self._region(self.rows, self.columns, **at)
        lowered = self._across(b.elementwise("mul", lse, b.full(-_LOG2E, tile_type(lse).shape, self.dtype)))
        scores = self._mask(b.elementwise("mul", scores, self._fill(self.factor, region.sizes)), region)
        return b.elementwise("exp2", b.elementwise("add", scores, lowered))


def _write_backward(call: Call) -> list[SpecOp]:
    """A kernel for queries, and one or two for keys and values."""
    plain = replace(call, operands=call.operands[: DELTA + 1])
    first = DELTA + (5 if call.attributes["ranges"] else 1)
    is_on_tensor_cores = _reads_directly(call, first) and has_tensor_cores(plain)
    kind = NarrowScoredBackward if is_on_tensor_cores else ScoredBackward
    together = are_together(plain)
    made: list[SpecOp] = []
    for group in ((QUERY,), (KEY, VALUE)) if together else ((QUERY,), (KEY,), (VALUE,)):
        wanted = [one for one in group if call.outputs[one] is not None]
        outputs = tuple(buffer if number in wanted else None for number, buffer in enumerate(call.outputs))
        if wanted:
            made.append(kind(replace(call, outputs=outputs), wanted).write())
    return made


SCORED_BACKWARD = LibraryKernel(
    "scored_attention_backward",
    "The gradient of attention with functions by queries, keys and values.",
    _write_backward,
)
