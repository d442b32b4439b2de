"""Loads and stores of blocks: addresses, masks at ragged edges, gathers where lanes are not contiguous.

How a vector is accessed follows from how its offset grows from lane to lane: by one (a vector load), by nothing (a
scalar, broadcast), by a few elements (vectors, of which lanes are picked by shuffles), or in any other way (a gather).
An offset with quotients and remainders (`roll`, `tile`, reshapes of views) grows evenly between the multiples of their
divisors: a branch takes vectors that lie between two of them like any other, and gathers those that reach over one;
where divisors are short, vectors that begin at a multiple of them are shuffled from neighbours (`lane_offsets.py`).
Where lanes are strided but the axis before them is contiguous, squares of vectors are loaded along that one and
transposed in registers. Edges are masks: a count of lanes along the last axis, and whole vectors that are in or out for
all other axes, so that most loops pay one comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.backends.cpu.lane_offsets import are_near, can_pick, find_run, load_near
from tessera.backends.cpu.registers import (
    LaneCoordinate,
    Layout,
    Vectors,
    can_transpose,
    lane_values,
    register_type,
    transpose,
)
from tessera.ir.target.limits import LINE, index_multiple
from tessera.ir.target.llvm.convert import atomic_instruction, narrow, storage_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value, mangle, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import LoadOp, StoreOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# Loads of lanes a few elements apart or in reverse order, and gathers of elements narrower than 32 bits.


def load_strided(
    f: FunctionText, first: Value, stored: str, lanes: int, step: int, mask: Value | None, pad: Value | None
) -> Value:
    """Elements `step` apart from the address of lane 0 on; lanes that `mask` leaves out read `pad` (zero).

    Nothing is touched beyond the range from the first lane to the last, and under a mask nothing but its lanes.
    """
    apart, back = abs(step), min(step, 0) * (lanes - 1)
    begin = f.gep(first, f.const_i(back), stored) if back else first
    offsets = [step * lane - back for lane in range(lanes)]
    starts = [part * lanes for part in range(apart - 1)] + [(apart - 1) * (lanes - 1)]
    found: Value | None = None
    done: dict[int, int] = {}
    for start in starts:
        here = {lane: at - start for lane, at in enumerate(offsets) if lane not in done and at < start + lanes}
        address = f.gep(begin, f.const_i(start), stored) if start else begin
        part = _load(f, address, vector(stored, lanes), {at: lane for lane, at in here.items()}, mask, pad)
        if found is None:
            found = f.shuffle(part, None, [here.get(lane, -1) for lane in range(lanes)])
        else:
            picked = {**done, **{lane: lanes + at for lane, at in here.items()}}
            found = f.shuffle(found, part, [picked.get(lane, -1) for lane in range(lanes)])
        done.update({lane: lane for lane in here})
    assert found is not None
    return found


def _load(
    f: FunctionText, address: Value, type_: str, lanes: dict[int, int], mask: Value | None, pad: Value | None
) -> Value:
    """A vector of neighbours, of which those are read that a lane inside wants."""
    if mask is None:
        return f.load(address, type_)
    count = mask.lanes
    none = f.lane_mask(0, count)
    wanted = f.shuffle(mask, none, [lanes.get(element, count) for element in range(count)])
    return f.masked_load(address, type_, wanted, pad)


def gather_narrow(f: FunctionText, pointers: Value, stored: str, mask: Value, pad: Value) -> Value:
    """Elements of one or two bytes from any addresses, each taken from the aligned word around it.

    The machine gathers words: of anything narrower LLVM makes a branch and a load for each lane, which takes long to
    compile and to run. A word that holds an element is in the page of that element, so nothing is read that is not
    there, and lanes that the mask leaves out are not read.
    """
    at = f.cast("ptrtoint", pointers, "i64")
    words = f.cast("inttoptr", f.op("and", at, f.const("i64", -4, mask.lanes)), "ptr")
    zero = f.const("i32", 0, mask.lanes)
    found = f.gather(words, vector("i32", mask.lanes), mask, zero, 4)
    bits = f.op(
        "shl", f.op("and", f.cast("trunc", at, "i32"), f.const("i32", 3, mask.lanes)), f.const("i32", 3, mask.lanes)
    )
    whole = f.cast("trunc", f.op("lshr", found, bits), f"i{8 * bytes_of(stored)}")
    return f.select(mask, f.bitcast(whole, vector(stored, mask.lanes)), pad)


@frozen
class _Point:
    """The coordinates of one vector: scalars by name, the one along lanes, and the vectors of index tiles."""

    env: Mapping[str, Index]
    along: LaneCoordinate | None
    tiles: Mapping[str, Value]

    def scalars(self, f: FunctionText, lane: int = 0) -> dict[str, Index]:
        """The coordinates with the index tiles of one lane."""
        return {**self.env, **{name: f.extract(tile, lane) for name, tile in self.tiles.items()}}


def _step_along(offset: Dim, axis: str) -> int | None:
    """By how much an offset grows with an axis, where it does so evenly and by a known number."""
    parts = offset.coefficient(axis)
    return None if parts is None else parts[0].value


def _both(f: FunctionText, mask: Value | None, other: Value) -> Value:
    """Where both hold; no mask holds everywhere."""
    return other if mask is None else f.op("and", mask, other)


@frozen
class Access:
    """One load or store of a block, with everything about it that is known before the vector is."""

    f: FunctionText
    op: LoadOp | StoreOp
    base: Value
    dtype: DType
    layout: Layout
    env: Mapping[str, Index]
    indices: Sequence[Vectors]
    is_inside: bool = False
    is_transposed: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The coordinates along the block, outermost first; lanes go along the last."""
        axes = self.op.axes
        return (*axes[:-2], axes[-1], axes[-2]) if self.is_transposed else axes

    @property
    def pattern(self) -> str:
        """How lanes access memory."""
        if not self.is_transposed:
            return self.op.pattern
        return "contiguous" if _step_along(self.op.offset, self.axes[-1]) == 1 else "strided"

    @property
    def is_transposable(self) -> bool:
        """Whether lanes are strided but would be near along the axis before the last, in squares of lanes."""
        layout, axes = self.layout, self.axes
        if self.pattern != "strided" or len(axes) < 2 or self.indices or self.dtype.is_bool or self.op.windows:
            return False
        is_near = can_pick(_step_along(self.op.offset, axes[-2]), layout.lanes)
        return is_near and can_transpose(layout.lanes, self.dtype.bytes) and layout.sizes[-2:] == (layout.lanes,) * 2

    @property
    def transposed(self) -> Access:
        """The same elements with lanes along the axis before the last."""
        return replace(self, is_transposed=not self.is_transposed)

    @property
    def _guards(self) -> list[tuple[str, Dim]]:
        """The axes that may reach beyond their bound, with their extents."""
        return [] if self.is_inside else list(zip(self.op.guarded, self.op.bounds, strict=True))

    @property
    def _stored(self) -> str:
        """The LLVM type of an element in memory."""
        return storage_type(self.dtype)

    def _at(self, number: int) -> _Point:
        outer, first = self.layout.position(number)
        axes, env = self.axes, dict(self.env)
        for axis, index in zip(axes[:-1], outer, strict=True):
            env[axis] = self.f.add(env[axis], index)
        tiles = {f"t{i}": self._index(block, number) for i, block in enumerate(self.indices)}
        if not axes:
            return _Point(env, None, tiles)
        start = env[axes[-1]] = self.f.add(env[axes[-1]], first)
        multiple = index_multiple(self.op.at[self.op.coords.index(axes[-1])])
        return _Point(env, LaneCoordinate(axes[-1], start, self.layout.lanes, first, multiple), tiles)

    def _index(self, block: Vectors, number: int) -> Value:
        """An index vector as i64."""
        return self.f.cast("sext" if block.dtype.kind == "int" else "zext", block[number], "i64")

    def _mask(self, at: _Point) -> Value | None:
        """The lanes inside all bounds and windows; None when that is all of them."""
        f, lanes, env, along = self.f, self.layout.lanes, at.env, at.along
        count: Value | None = None
        inside: Value | None = None
        mask = self._windows(at)
        for axis, bound in self._guards:
            if along is not None and along.name in bound.symbols and lanes > 1:
                ok = f.icmp("slt", f.splat(f.index(env[axis]), lanes), lane_values(f, bound, env, along, {}))
                mask = _both(f, mask, ok)
                continue
            left = f.sub(dim_value(f, bound, env), env[axis])
            if along is not None and axis == along.name:
                count = left
            else:
                inside = _both(f, inside, f.icmp("sgt", left, 0))
        if inside is not None:
            count = f.select(inside, f.const_i(lanes) if count is None else count, f.const_i(0))
        if count is None:
            return mask
        return _both(f, mask, f.lane_mask(count, lanes) if lanes > 1 else f.icmp("sgt", count, 0))

    @property
    def _window_pairs(self) -> list[tuple[Dim, Dim]]:
        """The coordinates that must be inside their extents."""
        return list(zip(self.op.windows[::2], self.op.windows[1::2], strict=True))

    def _windows(self, at: _Point) -> Value | None:
        f, lanes = self.f, self.layout.lanes
        mask: Value | None = None
        for expr, extent in self._window_pairs:
            value = lane_values(f, expr, at.env, at.along, at.tiles)
            limit = dim_value(f, extent, at.env)
            if value.lanes != lanes:
                value = f.splat(value, lanes)
            mask = _both(f, mask, f.icmp("ult", value, f.splat(limit, lanes)))
        return mask

    @property
    def _pad_value(self) -> Any:
        """What an element out of bounds is loaded as."""
        assert isinstance(self.op, LoadOp)
        return self.op.pad

    @property
    def _mode(self) -> str:
        """What a store does to what is in memory: set, add, or an atomic operation."""
        assert isinstance(self.op, StoreOp)
        return self.op.mode

    # Loads.

    def load(self, number: int) -> Value:
        f, lanes, stored, pattern = self.f, self.layout.lanes, self._stored, self.pattern
        at = self._at(number)
        mask = self._mask(at)
        if lanes > 1 and pattern == "uniform":
            return self._load_for_all(at, mask)
        if lanes == 1:
            return self._in_register(self._load_scalar(at.scalars(f), mask))
        pad = self._pad(lanes) if mask is not None and self._pad_value else None
        step = self._step
        if pattern != "contiguous" and step is None:
            return self._in_register(self._load_runs(at, mask, pad))
        address, type_ = self._address(at.env), vector(stored, lanes)
        if isinstance(self.op, LoadOp) and self.op.prefetch and not number * lanes * self.dtype.bytes % LINE:
            f.prefetch(f.gep(address, self.op.prefetch, "i8"))
        if pattern != "contiguous" and step is not None:
            value = load_strided(f, address, stored, lanes, step, mask, pad)
        else:
            value = f.load(address, type_) if mask is None else f.masked_load(address, type_, mask, pad)
        return self._in_register(value)

    def _load_runs(self, at: _Point, mask: Value | None, pad: Value | None) -> Value:
        """Elements anywhere, which may be neighbours but for the vectors that reach over a multiple of a divisor."""
        f, along, lanes, stored = self.f, at.along, self.layout.lanes, self._stored
        apart = None if along is None or at.tiles or mask is not None else along.apart(self.op.offset)
        if apart is not None and are_near(apart):
            return load_near(f, self._address(at.env), stored, apart)
        run = None if along is None or at.tiles else find_run(self.op.offset, along.name, lanes)
        if run is None or along is None:
            return self._gather(at, mask, pad)
        is_even = Value("i1", "true")
        for remainder, divisor, slope in run.remainders:
            # Below 0 is far above any divisor, unsigned.
            last = f.add(dim_value(f, remainder, at.env), slope * (lanes - 1))
            is_even = f.op("and", is_even, f.icmp("ult", last, dim_value(f, divisor, at.env)))

        def load_even() -> Value:
            if run.step:
                return load_strided(f, self._address(at.env), stored, lanes, run.step, mask, pad)
            one = f.splat(self._load_scalar(at.env, None if mask is None else self._any_lane(mask)), lanes)
            return one if mask is None else f.select(mask, one, pad or Value(one.type, "zeroinitializer"))

        return f.if_(is_even, load_even, lambda: self._gather(at, mask, pad))[0]

    def load_transposed(self) -> list[Value]:
        """All vectors: squares of them are read along the other axis, which is contiguous, and transposed."""
        lanes, other = self.layout.lanes, self.transposed
        squares = range(0, self.layout.count, lanes)
        return [v for start in squares for v in transpose(self.f, [other.load(start + row) for row in range(lanes)])]

    @property
    def _step(self) -> int | None:
        """Elements from lane to lane, where they are few enough to be picked from vectors."""
        if self.pattern != "strided":
            return None
        step = _step_along(self.op.offset, self.axes[-1])
        return step if can_pick(step, self.layout.lanes) else None

    def _pad(self, lanes: int) -> Value:
        """What an element out of bounds reads as, in memory's type."""
        value = constant_in_register(self.f, self.dtype, self._pad_value, lanes)
        return self._to_store(value)

    def _in_register(self, value: Value) -> Value:
        return self.f.icmp("ne", value, self.f.const_like(value, 0)) if self.dtype.is_bool else value

    def _address(self, env: Mapping[str, Index]) -> Value:
        """The address of an element, or of a vector's first one."""
        return self.f.gep(self.base, dim_value(self.f, self.op.offset, env), self._stored)

    def _load_for_all(self, at: _Point, mask: Value | None) -> Value:
        """One element in every lane that is inside, read only if its address is in bounds."""
        f, lanes = self.f, self.layout.lanes
        is_there = None if mask is None else self._address_mask(at.env, mask)
        value = f.splat(self._in_register(self._load_scalar(at.env, is_there)), lanes)
        if mask is None:
            return value
        return f.select(mask, value, constant_in_register(f, self.dtype, self._pad_value, lanes))

    def _address_mask(self, env: Mapping[str, Index], mask: Value) -> Value | None:
        """Whether the one element is there: by what reaches its address, or where lanes differ, by any lane inside."""
        f, last, pairs = self.f, self.op.axes[-1], self._window_pairs
        guards = [(axis, bound) for axis, bound in self._guards if axis in self.op.offset.symbols]
        if any(last in bound.symbols for _, bound in guards) or any(last in expr.symbols for expr, _ in pairs):
            return self._any_lane(mask)
        found: Value | None = None
        for axis, bound in guards:
            found = _both(f, found, f.icmp("sgt", f.sub(dim_value(f, bound, env), env[axis]), 0))
        for expr, extent in pairs:
            found = _both(f, found, f.icmp("ult", dim_value(f, expr, env), dim_value(f, extent, env)))
        return found

    def _any_lane(self, mask: Value) -> Value:
        bits = f"i{self.layout.lanes}"
        return self.f.icmp("ne", self.f.bitcast(mask, bits), Value(bits, "0"))

    def _load_scalar(self, env: Mapping[str, Index], mask: Value | None) -> Value:
        f, address = self.f, self._address(env)
        if mask is None:
            return f.load(address, self._stored)
        pad = self._pad(1)
        (found,) = f.if_(mask, lambda: f.load(address, self._stored), lambda: pad)
        return found

    def _pointers(self, at: _Point) -> Value:
        f, lanes = self.f, self.layout.lanes
        offsets = lane_values(f, self.op.offset, at.env, at.along, at.tiles)
        if offsets.lanes != lanes:
            offsets = f.splat(offsets, lanes)
        return f.raw(vector("ptr", lanes), f"getelementptr {self._stored}, ptr {self.base.text}, {offsets}")

    def _gather(self, at: _Point, mask: Value | None, pad: Value | None) -> Value:
        f, lanes, stored = self.f, self.layout.lanes, self._stored
        pointers, type_ = self._pointers(at), vector(stored, lanes)
        every = mask or f.lane_mask(lanes, lanes)
        other = pad or Value(type_, "zeroinitializer")
        if f.target.has_narrow_masks and lanes == f.target.lanes and bytes_of(stored) < 4:
            return gather_narrow(f, pointers, stored, every, other)
        return f.gather(pointers, type_, every, other, self.op.align)

    # Stores.

    def store(self, block: Vectors, number: int) -> None:
        f, op, lanes = self.f, self.op, self.layout.lanes
        at = self._at(number)
        mask = self._mask(at)
        value = self._to_store(block[number])
        if lanes == 1:
            self._store_scalar(value, {**at.env, **at.tiles}, mask)
        elif op.pattern == "uniform":
            # All lanes have one address, and the verifier has seen to it that only the first can be inside.
            first = None if mask is None else f.extract(mask, 0)
            self._store_scalar(f.extract(value, 0), at.env, first)
        elif self._mode.startswith("atomic") or (self._mode == "add" and op.pattern != "contiguous"):
            self._add_by_lane(value, at, mask)
        elif op.pattern != "contiguous":
            self._scatter(value, at, mask)
        else:
            address = self._address(at.env)
            if self._mode == "add":
                old = f.load(address, value.type) if mask is None else f.masked_load(address, value.type, mask)
                value = self._add(old, value)
            if mask is None:
                f.store(value, address)
            else:
                f.masked_store(value, address, mask)

    def _to_store(self, value: Value) -> Value:
        return self.f.cast("zext", value, "i8") if self.dtype.is_bool else value

    def _add(self, old: Value, value: Value) -> Value:
        if self.dtype.is_float and self.dtype.compute is not self.dtype:
            from tessera.ir.target.llvm.convert import widen  # noqa: PLC0415 - for additions of narrow floats only

            total = self.f.op("fadd", widen(self.f, old, self.dtype), widen(self.f, value, self.dtype))
            return narrow(self.f, total, self.dtype)
        return self.f.op("fadd" if self.dtype.is_float else "add", old, value)

    def _store_scalar(self, value: Value, env: Mapping[str, Index], mask: Value | None) -> None:
        f, address = self.f, self._address(env)

        def write() -> None:
            if self._mode.startswith("atomic"):
                f.atomic(atomic_instruction(self._mode, self.dtype), address, value)
                return
            total = self._add(f.load(address, value.type), value) if self._mode == "add" else value
            f.store(total, address)

        if mask is None:
            write()
        else:
            f.if_(mask, write)

    def _add_by_lane(self, value: Value, at: _Point, mask: Value | None) -> None:
        """One lane after the other: two of them may add to one element."""
        f, axis = self.f, self.op.axes[-1]
        for lane in range(self.layout.lanes):
            start = f.add(at.env[axis], lane)
            here = {**at.scalars(f, lane), axis: start}
            inside = None if mask is None else f.extract(mask, lane)
            self._store_scalar(f.extract(value, lane), here, inside)

    def _scatter(self, value: Value, at: _Point, mask: Value | None) -> None:
        f, lanes = self.f, self.layout.lanes
        pointers = self._pointers(at)
        every = mask or f.lane_mask(lanes, lanes)
        name = f"llvm.masked.scatter.{mangle(value.type)}.v{lanes}p0"
        f.declare(name, "void", [value.type, pointers.type, every.type])
        align = self.op.align
        f.line(f"call void @{name}({value}, {pointers.type} align {align} {pointers.text}, {every})")


def constant_in_register(f: FunctionText, dtype: DType, value: Any, lanes: int) -> Value:
    """A number as lanes of a block of a dtype."""
    if dtype.is_float and dtype.compute is not dtype:
        return narrow(f, f.const("float", value, lanes), dtype)
    return f.const(register_type(dtype), value, lanes)
