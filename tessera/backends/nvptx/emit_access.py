"""Loads, stores and fetched indices: 16 bytes at a time where alignment is known, else elements under a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block

from tessera.backends.nvptx import values
from tessera.backends.nvptx.access_groups import (
    WIDEST,
    Strided,
    group_of,
    is_transposing,
    strided_load,
    transposed_layout,
)
from tessera.backends.nvptx.layout import Layout, Tile, skew_of
from tessera.backends.nvptx.neighbours import Neighbours, has_division_of
from tessera.backends.nvptx.row_plan import is_constant
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.limits import fit_words
from tessera.ir.target.llvm import math
from tessera.ir.target.llvm.convert import atomic_instruction
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import FetchOp, IndexOp, LoadOp, LoopOp, ScratchOp, StoreOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

LINE, PAIR = 128, "<2 x i32>"
"""Bytes of a line of L2, and what a thread of a kernel over columns reads at a time."""
MANY = 32
"""Pieces of a load from which on what they share is written once: LLVM takes quadratic time to find it."""


def split_terms(dim: Dim, moving: AbstractSet[str]) -> tuple[Dim, Dim]:
    """The terms of a dim without any of the names, and those with one."""
    with_names = [(term, bool(Dim((term,)).symbols & moving)) for term in dim.terms]
    fixed, varying = (tuple(term for term, moves in with_names if moves is which) for which in (False, True))
    return Dim(fixed), Dim(varying)


@dataclass
class Access:
    """One load or store, with what is known of it before the element is."""

    emitter: Emitter
    op: LoadOp | StoreOp
    layout: Layout
    dtype: DType
    env: dict[str, Index]
    tiles: Sequence[Tile]
    base: Value
    swapped: tuple[str, ...] = ()
    """The axes, where a layout has them in another order than the op."""
    swizzle: int = 0
    """Bytes of the pieces that are swizzled in memory by the number of their `row`, which has so many elements."""
    row: int = 1
    offset: Dim | None = None
    """Where an element is from `base` on, where that is not the buffer's own."""
    ends: tuple[Value | None, ...] = ()
    """Bounds that are computed already, if any are."""
    near: dict[int, Neighbours] = field(default_factory=dict[int, Neighbours])
    """What is known of the first of some neighbours, by their first register."""

    @property
    def f(self) -> FunctionText:
        return self.emitter.f

    @property
    def element(self) -> str:
        return values.memory_type(self.dtype)

    @property
    def tile_names(self) -> frozenset[str]:
        """What the values of index tiles are called."""
        return frozenset(f"t{number}" for number in range(len(self.tiles)))

    def group(self) -> int:
        return group_of(self.op, self.layout, self.dtype.bytes, self.swizzle)

    def here(self, register: int) -> dict[str, Index]:
        """What each name stands for at the element of a register, values of index tiles too."""
        found = self.emitter.coordinates(self.env, self.swapped or self.op.axes, self.layout, register)
        for number, tile in enumerate(self.tiles):
            value = self.emitter.registers(tile)[register]
            found[f"t{number}"] = self.f.cast("sext" if tile.dtype.kind == "int" else "zext", value, "i64")
        return found

    def with_shared_parts(self) -> Access:
        """The same with what does not depend on the element computed here, once."""
        f, op = self.f, self.op
        moving = {*op.axes, *self.tile_names}
        fixed, varying = split_terms(op.offset, moving)
        base = f.gep(self.base, dim_value(f, fixed, self.env), self.element)
        ends = [None if bound.symbols & moving else dim_value(f, bound, self.env) for bound in op.bounds]
        return replace(self, base=base, offset=varying, ends=tuple(ends))

    def mask(
        self,
        here: Mapping[str, Index],
        register: int,
        owner: bool,
        windows: Sequence[tuple[Dim, Dim]] | None = None,
    ) -> Value | None:
        """Whether the element takes part; None where it always does. `windows` stand for the op's own."""
        f, op = self.f, self.op
        at = self.emitter.at(self.layout)
        parts: list[Value | None] = [at.is_owner(register) if owner else at.is_there(register)]
        parts += [] if owner else [self.emitter.is_wanted]
        for number, (axis, bound) in enumerate(zip(op.guarded, op.bounds, strict=True)):
            end = self.ends[number] if self.ends else None
            end = dim_value(f, bound, here) if end is None else end
            if self.emitter.is_elementwise and fit_words(op, (Dim.symbol(axis), bound)):
                parts.append(f.icmp("slt", *(f.cast("trunc", f.index(one), "i32") for one in (here[axis], end))))
                continue
            where = (self.env, self.swapped or op.axes, axis, self.layout, register, end)
            if self.emitter.has_rows:
                parts.append(self.emitter.is_below(*where))
            else:
                known = self.emitter.is_line_below(*where)
                parts.append(f.icmp("slt", here[axis], end) if known is None else known)
        own: tuple[Dim, ...] = op.windows
        for expr, extent in zip(own[::2], own[1::2], strict=True) if windows is None else windows:
            parts.append(self.is_inside(expr, extent, here, register))
        found: Value | None = None
        for part in parts:
            if part is None or part.text == "true":
                continue
            found = part if found is None else f.op("and", found, part)
        return found

    def _near(self, dim: Dim, register: int) -> Neighbours | None:
        """What knows an expression from the first of a thread's neighbours; None where it is computed as it is."""
        inner, last = register % self.layout.vector, self.op.axes[-1] if self.op.axes and not self.swapped else ""
        if not inner or not self.f.divides_words or not has_division_of(dim, last) or dim.symbols & self.tile_names:
            return None
        if register - inner not in self.near:
            first = self.emitter.coordinates(self.env, self.op.axes, self.layout, register - inner)
            self.near[register - inner] = Neighbours(self.f, last, first)
        return self.near[register - inner]

    @property
    def shares_divisions(self) -> bool:
        """Whether where an element is follows from what its neighbours have computed."""
        last = self.op.axes[-1] if self.op.axes else ""
        return self.layout.vector > 1 and self.f.divides_words and has_division_of(self.op.offset, last)

    def value(self, dim: Dim, here: Mapping[str, Index], register: int) -> Value:
        """The value of an expression at the element of a register."""
        # What an index tile holds is each neighbour's own.
        common, own = split_terms(dim, self.tile_names)
        near = self._near(common, register)
        if near is None:
            return dim_value(self.f, dim, here)
        found = near.value(common, register % self.layout.vector)
        return self.f.add(found, dim_value(self.f, own, here)) if own.terms else found

    def is_inside(self, index: Dim, extent: Dim, here: Mapping[str, Index], register: int) -> Value:
        """Whether an index is in `0 <= index < extent` at the element of a register."""
        f, near = self.f, self._near(index, register)
        end = dim_value(f, extent, here)
        if near is not None:
            return f.icmp("ult", near.word(index, register % self.layout.vector), f.cast("trunc", end, "i32"))
        found = dim_value(f, index, here)
        if f.divides_words:
            found, end = (f.cast("trunc", one, "i32") for one in (found, end))
        return f.icmp("ult", found, end)

    def address(self, here: Mapping[str, Index], register: int = 0) -> Value:
        offset: Index = self.value(self.op.offset if self.offset is None else self.offset, here, register)
        if self.swizzle:
            piece = self.swizzle // self.dtype.bytes
            moved = self.f.urem(self.f.udiv(offset, self.row), self.row // piece)
            offset = self.f.op("xor", self.f.index(offset), self.f.mul(moved, piece))
        return self.f.gep(self.base, offset, self.element)


def access_of(emitter: Emitter, op: LoadOp | StoreOp) -> Access:
    """A load or store at the indices that are known now."""
    layout, dtype = emitter.layout(op.block if isinstance(op, StoreOp) else op.result)
    tiles = [emitter.tiles[value] for value in op.at if isinstance(value.type, VectorAttr)]
    env = emitter.index_values(op.coords, op.at)
    base = emitter.buffers.get(op.buffer, Value("ptr", "null"))
    swizzle = op.buffer.owner.swizzle if isinstance(op.buffer.owner, ScratchOp) else 0
    row = shaped_type(op.buffer).shape[-1].value or 1 if swizzle else 1
    return Access(emitter, op, layout, dtype, env, tiles, base, swizzle=swizzle, row=row)


def emit_load(emitter: Emitter, op: LoadOp) -> None:
    """A tile from memory, or from the registers that hold this scratch, or one that was loaded just so before."""
    buffer, access = op.buffer, access_of(emitter, op)
    if emitter.divided is not None and buffer in emitter.divided.totals:
        total = emitter.divided.totals[buffer]
        emitter.tiles[op.result] = Tile(access.layout, access.dtype, [total] * access.layout.registers)
        return
    if buffer in emitter.held:
        emitter.tiles[op.result] = _load_held(access, emitter.held[buffer].tiles[_held_offset(access)])
        return
    if op in emitter.adjacent:
        _load_adjacent(access, emitter.adjacent[op])
        return
    key = None if buffer not in emitter.buffers or buffer in emitter.writes or access.tiles else key_of(access)
    is_invariant = is_constant(emitter.kernel, buffer)
    if key is not None and is_invariant and key in emitter.memo:
        emitter.tiles[op.result] = unpack_here(emitter, emitter.memo[key])
        return
    strided = _strided_rows(access) if key is not None and is_invariant else None
    if strided is not None:
        tile = _load_strided(access, strided)
    elif not access.swizzle and is_transposing(op, access.layout):
        tile = _load_transposed(access, is_invariant)
    else:
        tile = _load(access, is_invariant)
    emitter.tiles[op.result] = tile
    if key is not None and is_invariant:
        emitter.memo[key] = tile


def _load_adjacent(access: Access, ops: Sequence[LoadOp | StoreOp]) -> None:
    """The first of some loads gives the tiles of all of them."""
    if ops[0] is not access.op:
        return
    parts = load_vector(access, access.address(access.here(0)), None, len(ops), is_invariant=False)
    for op, part in zip(ops, parts, strict=True):
        assert isinstance(op, LoadOp)
        access.emitter.tiles[op.result] = Tile(access.layout, access.dtype, [part])


def _store_adjacent(access: Access, ops: Sequence[LoadOp | StoreOp]) -> None:
    """The last of some stores, with what is known of the first, writes the tiles of all of them."""
    tiles = [access.emitter.tiles[op.block] for op in ops if isinstance(op, StoreOp)]
    parts = [values.to_memory(access.f, access.emitter.registers(tile)[0], access.dtype) for tile in tiles]
    whole = values.pack(access.f, parts)
    access.f.store(whole, access.address(access.here(0)), align=len(parts) * access.dtype.bytes)


def load_tile(access: Access) -> Tile:
    """A tile of constant memory."""
    return _load(access, is_invariant=True)


def _load(access: Access, is_invariant: bool) -> Tile:
    """A tile from memory."""
    group = access.group()
    is_symbolic = access.op.offset.symbols & set(access.emitter.kernel.symbols)
    if is_symbolic and access.layout.registers >= MANY * group and not access.swizzle:
        access = access.with_shared_parts()
    emitter = access.emitter
    emitter.words.clear()
    groups: list[list[Value]] = []
    for at in range(0, access.layout.registers, group):
        same = _same_register(access, at)
        if same == at:
            groups.append(_load_group(access, at, group, is_invariant))
            continue
        groups.append(groups[same // group])
        emitter.words += emitter.words[same // group : same // group + 1]
    packed = tuple(emitter.words) if emitter.keeps_words else ()
    return Tile(access.layout, access.dtype, [part for parts in groups for part in parts], packed=packed)


def _same_register(access: Access, register: int) -> int:
    """The first register that holds the same as one, where it is known without a look at the element."""
    op, layout = access.op, access.layout
    if op.windows or len(op.axes) < 2 or layout.grid is not None:
        return register
    if layout.rows > 1:
        # Rows below each other have a mask in common; what index tiles say is another element in each.
        is_repeated = not access.tiles and not op.offset.symbols & set(op.axes[-2:])
        return register - layout.split(register)[1] * layout.vector if is_repeated else register
    # LLVM finds equal loads by itself, unless they are to stay where they are.
    moving = {*op.guarded, *(op.offset.symbols & set(op.axes))} - {op.axes[-1]}
    is_repeated = access.emitter.is_ordered and not moving and not access.tiles and layout.group % layout.shape[-1] == 0
    return register % layout.vector if is_repeated else register


def unpack_here(emitter: Emitter, tile: Tile) -> Tile:
    """A tile that was loaded early, with its elements taken out of words where they are read.

    LLVM has elements of 2 bytes that are taken out in one block and used in another in a register each.
    """
    if not tile.packed or emitter.keeps_words:
        return tile
    f, element = emitter.f, values.memory_type(tile.dtype)
    parts = [part for word, count in tile.packed for part in values.unpack(f, word, element, count)]
    registers = [values.from_memory(f, part, tile.dtype) for part in parts]
    return Tile(tile.layout, tile.dtype, registers, packed=tile.packed)


def _strided_rows(access: Access) -> list[Strided] | None:
    """How each of the rows that a thread has below each other reads vectors; None where one does not."""
    op, is_shifted = access.op, access.op in access.emitter.overlapping
    assert isinstance(op, LoadOp)
    rows = [strided_load(op, access.layout, is_shifted=is_shifted, below=row) for row in range(access.layout.rows)]
    found = [row for row in rows if row is not None]
    return found if len(found) == len(rows) else None


def _load_strided(access: Access, rows: Sequence[Strided]) -> Tile:
    """A tile of elements a few apart, taken out of the vectors that they lie in.

    Rows below each other are found from the first, which has the mask of all: one finds what another has loaded.
    """
    emitter, op, vector = access.emitter, access.op, access.layout.vector
    found: list[Value] = []
    for number in range(access.layout.registers // vector):
        strided, register = rows[number % len(rows)], (number - number % len(rows)) * vector
        here = access.here(register)
        guards = (*op.bounds, *op.windows)
        names = sorted({*strided.start.symbols, *op.axes, *(name for dim in guards for name in dim.symbols)})
        at = tuple((name, str(here[name])) for name in names if name in here)
        for neighbour in range(vector):
            number, inside = strided.position(neighbour)
            windows = strided.windows_at(number)
            key = op.buffer, register, str(strided.start), strided.width, number, str(windows), at, str(op.value("pad"))
            if key not in emitter.memo:
                read = replace(access, offset=strided.start + number * strided.width)
                mask = access.mask(here, register, owner=False, windows=windows)
                parts = load_vector(read, read.address(here, register), mask, strided.width, is_invariant=True)
                emitter.memo[key] = Tile(access.layout, access.dtype, parts)
            found.append(emitter.memo[key].registers[inside])
    return Tile(access.layout, access.dtype, found)


def _load_transposed(access: Access, is_invariant: bool) -> Tile:
    """A tile read along its first axis, then exchanged through shared memory with those who have it along the last."""
    return _exchange_transposed(access, _read_transposed(access, is_invariant))


def _read_transposed(access: Access, is_invariant: bool) -> list[list[Value]]:
    """Groups of neighbours of a tile that is read along its first axis."""
    assert isinstance(access.op, LoadOp)
    transposed = transposed_layout(access.op, access.layout)
    first, last = access.op.axes
    read = replace(access, layout=transposed, swapped=(last, first))
    registers = range(0, transposed.registers, transposed.vector)
    return [_load_group(read, register, transposed.vector, is_invariant) for register in registers]


def _exchange_transposed(access: Access, loaded: Sequence[Sequence[Value]]) -> Tile:
    """What was read along the first axis of a tile, with those who have it along the last."""
    emitter, f, dtype = access.emitter, access.f, access.dtype
    rows, columns = access.layout.shape
    assert isinstance(access.op, LoadOp)
    transposed = transposed_layout(access.op, access.layout)
    group, element = transposed.vector, values.memory_type(dtype)
    vector = access.layout.vector
    skew = skew_of(columns, rows, vector, bytes_of(element))
    start = emitter.exchange((columns * rows + -(-columns // vector) * skew) * bytes_of(element))

    def address(row: Index, column: Index) -> Value:
        free = f.mul(f.udiv(column, vector), skew)
        return f.gep(start, f.add(f.add(f.mul(column, rows), free), row), element)

    emitter.wait()
    for register, parts in zip(range(0, transposed.registers, group), loaded, strict=True):
        column, row = emitter.at(transposed).coordinates(register)
        whole = values.pack(f, [values.to_memory(f, part, dtype) for part in parts])
        f.store(whole, address(row, column), align=min(group * bytes_of(element), WIDEST))
    emitter.wait()
    found: list[Value] = []
    for register in range(access.layout.registers):
        row, column = emitter.at(access.layout).coordinates(register)
        found.append(values.from_memory(f, f.load(address(row, column), element), dtype))
    return Tile(access.layout, dtype, found)


def remember_load(emitter: Emitter, op: LoadOp, load: Callable[[Access], Tile]) -> None:
    """Let loads that are equal to this one have what `load` gives."""
    access = access_of(emitter, op)
    key = key_of(access)
    if key not in emitter.memo:
        emitter.memo[key] = load(access)


def load_early(emitter: Emitter, loop: LoopOp, start: Index) -> None:
    """Loads of an iteration, before what is computed of those of other iterations: so all of them are in flight."""
    block = loop.regions[0].block
    emitter.indices[block.args[0]] = start
    load_first(emitter, block)


def load_first(emitter: Emitter, block: Block, *, is_ordered: bool = False, keeps_halves: bool = False) -> None:
    """Loads of a block whose indices are known at its begin, before what is computed of any of them.

    What is transposed is exchanged when all is on its way: the assembler moves no load up over a barrier. Where they
    are `is_ordered`, LLVM moves none down either. With `keeps_halves` elements of 2 bytes are left in their words: each
    would have a register of its own from here on.
    """
    waiting: list[tuple[LoadOp, Access, list[list[Value]]]] = []
    emitter.is_ordered, keeps_words = is_ordered, emitter.keeps_words
    for op in block.ops:
        if isinstance(op, IndexOp) and all(value in emitter.indices for value in op.at):
            emitter.on_index(op)
        if not isinstance(op, LoadOp) or not is_constant(emitter.kernel, op.buffer):
            continue
        if not all(value in emitter.indices for value in op.at):
            continue
        access = access_of(emitter, op)
        is_halves = op.pattern == "contiguous" and access.dtype.bytes == 2
        emitter.keeps_words = keeps_words or (is_halves and keeps_halves)
        if op.buffer in emitter.buffers and _exchanges(access) and key_of(access) not in emitter.memo:
            waiting.append((op, access, _read_transposed(access, is_invariant=True)))
        else:
            emit_load(emitter, op)
    emitter.is_ordered, emitter.keeps_words = emitter.holds_back, keeps_words
    for op, access, loaded in waiting:
        key = key_of(access)
        if key not in emitter.memo:
            emitter.memo[key] = _exchange_transposed(access, loaded)
        emitter.tiles[op.result] = emitter.memo[key]


def _exchanges(access: Access) -> bool:
    """Whether a load of a whole tile, and no more, is read along its first axis."""
    op = access.op
    assert isinstance(op, LoadOp)
    if access.tiles or access.swizzle or strided_load(op, access.layout) is not None:
        return False
    return is_transposing(op, access.layout)


def key_of(access: Access) -> Any:
    """What a load depends on: equal keys load equal tiles."""
    op = access.op
    dims = (op.offset, *op.bounds, *op.windows)
    used = sorted({*(name for dim in dims for name in dim.symbols), *op.axes})
    indices = tuple((name, str(access.env[name])) for name in used if name in access.env)
    return op.buffer, access.layout, tuple(map(str, dims)), op.axes, str(op.value("pad")), indices


def _held_offset(access: Access) -> int | str:
    """Where a tile is in scratch that registers hold: the number of its first element, or a warp's name for it."""
    if access.emitter.divided is not None:
        return str(access.env[access.op.axes[0]])
    offset = constant_of(dim_value(access.f, access.op.offset, access.env))
    assert offset is not None, "scratch in registers is found by numbers known while emitting"
    return offset


def _load_held(access: Access, tile: Tile) -> Tile:
    """A tile of scratch that registers hold."""
    if not access.op.guarded:
        return tile
    pad = values.constant(access.f, access.dtype, access.op.value("pad"))
    found: list[Value] = []
    for register, value in enumerate(access.emitter.registers(tile)):
        mask = access.mask(access.here(register), register, owner=False)
        found.append(value if mask is None else access.f.select(mask, value, pad))
    return Tile(tile.layout, tile.dtype, found)


def _load_group(access: Access, register: int, group: int, is_invariant: bool) -> list[Value]:
    """Neighbours, loaded in one piece."""
    here = access.here(register)
    mask = access.mask(here, register, owner=False)
    count = 1 if access.op.pattern == "uniform" else group
    return load_vector(access, access.address(here, register), mask, count, is_invariant) * (group // count)


def load_vector(access: Access, address: Value, mask: Value | None, count: int, is_invariant: bool) -> list[Value]:
    """So many elements from an address on, in one instruction."""
    f, dtype, element = access.f, access.dtype, access.element
    if mask is not None and mask.text == "false" and not access.emitter.keeps_words:
        return [values.constant(f, dtype, access.op.value("pad"))] * count
    if mask is not None and is_invariant and (access.emitter.has_rows or access.emitter.is_elementwise):
        pad = values.to_memory(f, values.constant(f, dtype, access.op.value("pad")), dtype)
        loaded = load_where(f, mask, address, values.pack(f, [pad] * count), is_ordered=access.emitter.is_ordered)
        if access.emitter.keeps_words:
            access.emitter.words.append((loaded, count))
            return []
        return [values.from_memory(f, part, dtype) for part in values.unpack(f, loaded, element, count)]
    if mask is not None:
        # Nothing outside is read: the address of something else is, and what it holds is not used.
        address = f.select(mask, address, access.emitter.module.nothing())
    type_ = values.packed_type(element, count)
    tail = ", !invariant.load !1" if is_invariant else ""
    align = min(count * bytes_of(element), WIDEST)
    if mask is None and is_invariant and access.emitter.is_ordered:
        loaded = load_where(f, f.const("i1", True), address, Value(type_, "undef"), is_ordered=True)
    elif is_invariant and type_ == PAIR and _is_part_of_line(access):
        loaded = _load_with_line(f, address)
    else:
        loaded = f.raw(type_, f"load {type_}, ptr {address.text}, align {align}{tail}")
    if mask is None and access.emitter.keeps_words:
        access.emitter.words.append((loaded, count))
        return []
    parts = [values.from_memory(f, part, dtype) for part in values.unpack(f, loaded, element, count)]
    if mask is not None:
        pad = values.constant(f, dtype, access.op.value("pad"))
        parts = [f.select(mask, part, pad) for part in parts]
    return parts


def load_where(f: FunctionText, mask: Value, address: Value, otherwise: Value, *, is_ordered: bool = False) -> Value:
    """What constant memory has at an address, or something else where nothing is to be read: a load under a predicate.

    One address and offsets serve all loads of a row so, where the address of something else is a register of its own.
    One that `is_ordered` stays before the barriers that it is written before, where LLVM would move it to its use.
    """
    size = bytes_of(otherwise.type)
    words = max(1, size // 4)
    part = "i16" if size < 4 else "i32"
    bits = f.bitcast(otherwise, f"i{8 * size}" if words == 1 else f"<{words} x i32>")
    kept = [f.extract(bits, at) for at in range(words)] if words > 1 else [bits]
    kept = [f.cast("zext", one, part) if one.type == "i8" else one for one in kept]
    kind = f"b{min(8 * size, 32)}"
    targets = ", ".join(f"${at}" for at in range(words))
    targets = targets if words == 1 else f"{{{targets}}}"
    text = f"@${words} ld.global.nc.{f'v{words}.' if words > 1 else ''}{kind} {targets}, [${words + 1}];"
    letter = "h" if size < 4 else "r"
    constraints = ",".join([*[f"={letter}"] * words, "b", "l", *map(str, range(words))])
    type_ = part if words == 1 else f"{{ {', '.join([part] * words)} }}"
    given = ", ".join(map(str, [mask, address, *kept]))
    how = "asm sideeffect" if is_ordered else "asm"
    found = f.raw(type_, f'call {type_} {how} "{text}", "{constraints}"({given})')
    if words == 1:
        return f.bitcast(f.cast("trunc", found, "i8") if size == 1 else found, otherwise.type)
    whole = Value(f"<{words} x i32>", "poison")
    for at in range(words):
        whole = f.insert(whole, f.raw("i32", f"extractvalue {type_} {found.text}, {at}"), at)
    return f.bitcast(whole, otherwise.type)


def _is_part_of_line(access: Access) -> bool:
    """Whether a kernel with many loads in flight reads less than a line of each row, and other blocks the remainder."""
    shape = access.layout.shape
    return access.emitter.fetches_lines and len(shape) == 2 and shape[-1] * access.dtype.bytes < LINE


def _load_with_line(f: FunctionText, address: Value) -> Value:
    """Two words, with a hint that brings the whole line to L2: other multiprocessors ask for it next."""
    text = f"ld.global.nc.L2::{LINE}B.v2.b32 {{$0, $1}}, [$2];"
    words = f.raw("{ i32, i32 }", f'call {{ i32, i32 }} asm "{text}", "=r,=r,l"({address})')
    whole = Value(PAIR, "poison")
    for at in range(2):
        whole = f.insert(whole, f.raw("i32", f"extractvalue {{ i32, i32 }} {words.text}, {at}"), at)
    return whole


def emit_store(emitter: Emitter, op: StoreOp) -> None:
    """A tile to memory, each element by the thread that owns it."""
    buffer, access, tile = op.buffer, access_of(emitter, op), emitter.tiles[op.block]
    registers = emitter.registers(tile)
    if buffer in emitter.held:
        emitter.held[buffer].tiles[_held_offset(access)] = tile
        return
    if op in emitter.adjacent:
        first, *_, last = emitter.adjacent[op]
        if op is last:
            _store_adjacent(access_of(emitter, first), emitter.adjacent[op])
        return
    group = 1 if op.mode != "set" or op.pattern == "uniform" else access.group()

    def write() -> None:
        for register in range(0, access.layout.registers, group):
            _store_group(access, register, registers[register : register + group])

    if emitter.divided is None:
        write()
    else:
        first = access.here(0)
        emitter.divided.store(
            op,
            write,
            lambda: (access.address(first), values.to_memory(access.f, registers[0], access.dtype)),
        )


def _store_group(access: Access, register: int, parts: Sequence[Value]) -> None:
    f, dtype = access.f, access.dtype
    here = access.here(register)
    mask = access.mask(here, register, owner=True)
    # Neighbours have masks of their own: what they share is computed in front of all of them.
    shared = access.address(here, register) if access.shares_divisions else None

    def write() -> None:
        address = access.address(here, register) if shared is None else shared
        given = list(parts)
        mode: str = access.op.value("mode")
        if mode == "add" and dtype.is_integer:
            mode = "atomic_add"  # many may add integers to one element, in any order
        if mode.startswith("atomic"):
            f.atomic(atomic_instruction(mode, dtype), address, values.to_memory(f, given[0], dtype))
            return
        if mode == "add":
            given = [_sum(f, address, given[0], dtype)]
        whole = values.pack(f, [values.to_memory(f, part, dtype) for part in given])
        f.store(whole, address, align=min(len(given) * dtype.bytes, WIDEST))

    if mask is None:
        write()
    else:
        f.if_(mask, write)


def _sum(f: FunctionText, address: Value, value: Value, dtype: DType) -> Value:
    """What memory has there, and the value: programs add in order, so that no other thread is there now."""
    before = values.from_memory(f, f.load(address, values.memory_type(dtype)), dtype)
    if not values.is_narrow(dtype):
        return math.emit(f, "add", [before, value], dtype)
    wide = [values.cast(f, [part], dtype, dtype.compute)[0] for part in (before, value)]
    return values.cast(f, [math.emit(f, "add", wide, dtype.compute)], dtype.compute, dtype)[0]


def emit_fetch(emitter: Emitter, op: FetchOp) -> None:
    """An index from memory: a scalar load, made 64 bits wide; every thread does it."""
    f: FunctionText = emitter.f
    dtype = shaped_type(op.buffer).dtype
    element = values.memory_type(dtype)
    offset = dim_value(f, op.offset, emitter.index_values(op.coords, op.at))
    loaded = f.load(f.gep(emitter.buffers[op.buffer], offset, element), element)
    emitter.indices[op.result] = f.cast("sext" if dtype.kind == "int" else "zext", loaded, "i64")
