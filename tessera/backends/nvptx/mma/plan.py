"""What a kernel asks of tensor cores: the operands of each dot, and what TMA can copy.

Nothing here knows a kernel by its name or its loops: a kernel fits when each of its dots has operands that the tensor
cores take, and everything else it does keeps to the layouts that fragments have. `plan_of` finds all of that;
`read_plan` reads it back from a kernel that has its attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.mma.boxes import Box, box_of, layout_of
from tessera.backends.nvptx.mma.window_boxes import is_windowed, window_box
from tessera.backends.nvptx.tensor_cores import K_BYTES, TENSOR_CORES, WGMMA_ROWS, TensorCores, UnfitError, form_of
from tessera.backends.nvptx.tensor_cores import MmaForm as Form
from tessera.backends.nvptx.types import shaped_type, sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.policies import policies_of
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.choices import REGISTERS, SHARED
from tessera.ir.tile.choices import ROWS as ALONG
from tessera.ir.tile.typed_ops import BroadcastOp, DotOp, LoadOp, ReduceOp, RoundOp, StoreOp
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen
from tessera.types.policy import tf32
from tessera.types.promotion import holds

_ELEMENTS = (
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.broadcast", "ttile.reduce", "ttile.load", "ttile.store", "ttile.transpose"),
)
_OTHERS = ("ttile.program_id", "ttile.index", "ttile.for", "ttile.yield", "ttile.return", "ttile.dot")
_MOST_ACCUMULATORS, _MOST_OF_THREE = 192, 100
"""Accumulators of a thread that leave registers for addresses and a store, and those of three warpgroups, of whose
registers ptxas has 128 for an instruction. What is computed of so many spills: blocks are then chosen smaller."""
_MOST_PROMOTED, _MOST_PROMOTED_OF_THREE = 208, 128
"""The same where some of them are only on their way to others."""
_THREE = 3
"""The most warpgroups of a CTA that multiply."""
_MOST_HELD = 224
"""Registers of a thread of several warpgroups for accumulators of all dots and A operands together: ptxas refuses
more, and would run one dot after the other."""


@frozen
class MmaOperand:
    """One operand of a dot: a value in registers, or one that is copied to shared memory.

    `major` is `k` where K is contiguous in memory, else `mn`.
    """

    value: SSAValue
    major: str
    load: LoadOp | None

    @property
    def dtype(self) -> DType:
        return shaped_type(self.value).dtype


@frozen
class CopiedOperand(MmaOperand):
    """An operand that a load copies in boxes; `rounds` is the format that f32 is rounded to as it is copied."""

    load: LoadOp
    box: Box
    rounds: str = ""


@frozen
class MmaDot:
    """A `ttile.dot` with both operands found."""

    op: DotOp
    lhs: MmaOperand
    rhs: MmaOperand
    instruction: tuple[int, int, int]
    parts: int = 1
    """In how many parts of its columns it is computed, where its accumulators are added up outside of tensor cores."""
    inputs: tuple[CopiedOperand, ...] = ()
    """What an A operand in registers is computed from that is copied to shared memory, from where threads read it."""

    @property
    def operands(self) -> tuple[MmaOperand, ...]:
        """Both operands, then the inputs of the first."""
        return self.lhs, self.rhs, *self.inputs


@frozen
class Plan:
    """A kernel that runs on tensor cores."""

    rows: int
    consumers: int
    dots: Mapping[SpecOp, MmaDot]
    hidden: frozenset[Operation]
    """Loads, casts and transposes that do nothing but take elements from memory to a dot."""
    columns: frozenset[SSAValue]
    """Tiles of one dim that have a number for each column; all others have one for each row."""


def plan_of(kernel: SpecOp, units: TensorCores) -> Plan:
    """How a kernel runs on tensor cores; raises `UnfitError` with the reason where it does not."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    dot_ops = [op for op in ops if isinstance(op, DotOp)]
    if not dot_ops:
        raise UnfitError("it has no dots")
    for op in ops:
        is_fetch = units.cuts and op.name == "ttile.fetch" and op.parent_op() is kernel
        if op.name not in _ELEMENTS and op.name not in _OTHERS and not is_fetch and not _rounds_to(op):
            raise UnfitError(f"`{op.name}` does not keep to fragments")
    rows = sizes_of(dot_ops[0].results[0])[0]
    consumers = _groups(kernel, rows, [sizes_of(op.results[0])[1] for op in dot_ops], units)
    passed: set[Operation] = set()
    forms = units.rounded if units.rounded is not None and is_tf32(kernel) else units.forms
    dots: dict[SpecOp, MmaDot] = {
        op: _plan_dot(op, rows, rows // (WGMMA_ROWS * consumers), passed, units, forms) for op in dot_ops
    }
    dots = _in_same_lines(dots)
    if units.trims and consumers > 1:
        _check_held(dots, rows // (WGMMA_ROWS * consumers))
    hidden = _hidden(ops, passed, set(dot_ops))
    _check_still(kernel, [op for op in ops if op in passed or op.name == "ttile.fetch"])
    _check_tiles(ops, rows, hidden)
    return Plan(rows, consumers, dots, hidden, _columns(ops))


def _in_same_lines(dots: Mapping[SpecOp, MmaDot]) -> dict[SpecOp, MmaDot]:
    """Dots whose loads are copied once: what one reads along k and another across it has the lines of the former.

    Those divide a row, which is whole spans for both then.
    """
    copied = [operand for dot in dots.values() for operand in (dot.lhs, dot.rhs) if isinstance(operand, CopiedOperand)]
    lines = {operand.load: operand.box.sizes[-1] for operand in copied if operand.major == "k"}

    def agree(operand: MmaOperand) -> MmaOperand:
        line = lines.get(operand.load) if isinstance(operand, CopiedOperand) else None
        if not isinstance(operand, CopiedOperand) or line is None or line == operand.box.sizes[-1]:
            return operand
        pieces = sizes_of(operand.value)[operand.box.inner] // line
        return replace(operand, box=replace(operand.box, sizes=(*operand.box.sizes[:-1], line), pieces=pieces))

    return {op: replace(dot, lhs=agree(dot.lhs), rhs=agree(dot.rhs)) for op, dot in dots.items()}


def _check_held(dots: Mapping[SpecOp, MmaDot], blocks: int) -> None:
    """Raises `UnfitError` where accumulators, and A operands in registers, leave no register for anything else."""
    held = sum(sizes_of(op.results[0])[1] // 2 for op in dots)
    held += sum(sizes_of(one.lhs.value)[1] // 4 for one in dots.values() if one.lhs.load is None)
    if held * blocks > _MOST_HELD:
        raise UnfitError(
            f"accumulators and computed A operands take {held * blocks} registers of a thread, and at most "
            f"{_MOST_HELD} are left for them: blocks of 64 rows have more"
        )


def _check_still(kernel: SpecOp, prefetched: Sequence[SpecOp]) -> None:
    """Raises `UnfitError` for what is prefetched from a buffer that the kernel writes."""
    written: set[SSAValue] = {kernel.regions[0].block.args[index] for index in kernel.value("writes")}
    for op in prefetched:
        if op.name in ("ttile.load", "ttile.fetch") and op.operands[0] in written:
            raise UnfitError(f"`{op.name}` is prefetched, and the kernel writes the buffer that it reads")


def read_plan(kernel: SpecOp) -> Plan:
    """The plan of a kernel for which everything was chosen, read from its attributes.

    Raises `UnfitError` for a kernel of which passes that choose before have not been run.
    """
    if not kernel.value("warpgroups"):
        raise UnfitError("nothing says its `warpgroups`: run `nvptx-select-mma` before")
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    passed: set[Operation] = set()
    dots: dict[SpecOp, MmaDot] = {}
    for op in ops:
        if isinstance(op, DotOp):
            if len(op.value("instruction")) != 3 or op.value("unit") not in TENSOR_CORES:
                raise UnfitError("a dot has no `instruction`: run `nvptx-select-mma` before")
            rows, columns, K = op.value("instruction")
            is_whole = len(TENSOR_CORES[op.value("unit")].instruction.columns) > 1
            parts = sizes_of(op.results[0])[1] // columns if is_whole else 1
            rhs = _read_operand(op.operands[1], 0, passed)
            lhs = _read_operand(op.operands[0], 1, passed, rhs.dtype)
            inputs = [_read_input(load) for load in _loads_behind(lhs) if load.space == SHARED]
            dots[op] = MmaDot(op, lhs, rhs, (rows, columns, K), parts, tuple(inputs))
    rows = sizes_of(next(iter(dots)).results[0])[0]
    return Plan(rows, kernel.value("warpgroups"), dots, _hidden(ops, passed, set(dots)), _columns(ops))


def _read_operand(value: SSAValue, summed: int, passed: set[Operation], like: DType | None = None) -> MmaOperand:
    value, summed, rounds = _source(value, summed, passed, like)
    load = _copied_load(value)
    if load is None:
        return MmaOperand(value, "k", None)
    passed.add(load)
    box = _read_box(load)
    return CopiedOperand(value, "k" if box.inner == summed else "mn", load, box, rounds)


def _read_input(load: LoadOp) -> CopiedOperand:
    box = _read_box(load)
    return CopiedOperand(load.result, "k" if box.inner == 1 else "mn", load, box)


def _read_box(load: LoadOp) -> Box:
    box, inner = tuple(load.value("box")), int(load.value("layout") == ALONG)
    if not box or min(box) < 1:
        raise UnfitError(f"`box` of a copied operand is {list(box)}: run `nvptx-swizzle-tiles` before")
    return Box(inner, box, -(-sizes_of(load.result)[inner] // box[-1]))


def _groups(kernel: SpecOp, rows: int, columns: Sequence[int], units: TensorCores) -> int:
    """The groups that a kernel says, else those that the units like."""
    liked, asked = units.groups(rows, columns), kernel.value("warpgroups")
    if asked and (asked > units.most or rows % (WGMMA_ROWS * asked)):
        raise UnfitError(
            f"{rows} rows are not shared by {asked} groups of {WGMMA_ROWS} at a time, at most {units.most}"
        )
    return asked or liked


def is_tf32(kernel: SpecOp) -> bool:
    """Whether a kernel multiplies what its program has rounded to tf32: no other kernel's f32 may lose its low bits."""
    policies = policies_of(kernel)
    return kernel.value("kind") == "contraction" and bool(policies) and all(one.compute is tf32 for one in policies)


def _plan_dot(
    op: DotOp, rows: int, blocks: int, passed: set[Operation], units: TensorCores, forms: Mapping[DType, Form]
) -> MmaDot:
    M, N = sizes_of(op.results[0])
    K = sizes_of(op.operands[0])[1]
    most = _MOST_OF_THREE if rows == _THREE * WGMMA_ROWS else _MOST_ACCUMULATORS
    if rows != M or N % 8 or not 8 <= N <= 256 or N // 2 * blocks > most:
        widest = min(256, 2 * most // blocks)
        raise UnfitError(f"a dot of {M} x {N} is not one of {rows} rows and 8 to {widest} columns")
    rhs = _plan_operand(op.operands[1], 0, passed, units, True)
    lhs = _plan_operand(op.operands[0], 1, passed, units, False, rhs.dtype)
    found, acc = form_of(forms, lhs.dtype, rhs.dtype), shaped_type(op.results[0])
    is_promoted = found is not None and found.is_promoted
    written: Sequence[int] = op.value("instruction")
    most = _MOST_PROMOTED_OF_THREE if rows == _THREE * WGMMA_ROWS else _MOST_PROMOTED
    parts = (N // written[1] if written else _parts_of(N, blocks, most)) if is_promoted else 1
    if is_promoted and (N % (8 * parts) or N // 2 * blocks + N // parts // 2 > most):
        raise UnfitError(f"accumulators of {lhs.dtype} are kept beside partial ones, too many of {M} x {N}")
    if found is None or not found.adds_to(acc.dtype):
        raise UnfitError(f"there is no `{units.name}` of {lhs.dtype} by {rhs.dtype} into {acc.dtype}")
    if not found.has(N // parts):
        raise UnfitError(f"`{units.name}` of {lhs.dtype} takes columns in 16s from 32 on, got {N // parts}")
    if rhs.load is None:
        raise UnfitError(f"the B operand of a dot is computed, and `{units.name}` reads it from shared memory")
    if K * lhs.dtype.bytes % K_BYTES or (not found.is_transposable and "mn" in (lhs.major, rhs.major)):
        raise UnfitError(f"k is {K}, and {lhs.dtype} goes {K_BYTES // lhs.dtype.bytes} at a time, along memory")
    if written and tuple(written) != units.shape_of(N, parts, lhs.dtype):
        wanted = " x ".join(map(str, units.shape_of(N, parts, lhs.dtype)))
        raise UnfitError(f"`instruction` is {' x '.join(map(str, written))}, and for {lhs.dtype} it is {wanted}")
    inputs = [_plan_input(load, op, units) for load in _loads_behind(lhs)] if units.computes else []
    copied = tuple(one for one in inputs if one is not None)
    return MmaDot(op, lhs, rhs, units.shape_of(N, parts, lhs.dtype), parts, copied)


def _loads_behind(operand: MmaOperand) -> list[LoadOp]:
    """The loads of matrices of one-byte elements that an operand in registers is computed from in its block."""
    found: dict[LoadOp, None] = {}
    seen, pending = set[SSAValue](), [operand.value] if operand.load is None else []
    while pending:
        value = pending.pop()
        source = value.owner
        if value in seen or not isinstance(source, SpecOp) or source.parent_block() is not operand.value.owner.parent:
            continue
        seen.add(value)
        if isinstance(source, LoadOp):
            tile = shaped_type(source.result)
            if len(tile.sizes) == 2 and tile.dtype.bytes == 1:
                found[source] = None
        elif source.name in _ELEMENTS:
            pending += source.operands
    return list(found)


def _plan_input(load: LoadOp, dot: DotOp, units: TensorCores) -> CopiedOperand | None:
    """A load that an A operand is computed from, as it is copied; None for one that threads read from memory."""
    if load.space == REGISTERS or load.parent_block() is not dot.parent_block():
        return None
    try:
        box = box_of(load, load.result, 1)
    except UnfitError:
        return None
    box = _in_lines(load, box, units.lines, box.inner == 1)
    if box.remainder:
        return None
    operand = CopiedOperand(load.result, "k" if box.inner == 1 else "mn", load, box)
    return _as_written(operand, operand, False)


def _parts_of(columns: int, blocks: int, most: int) -> int:
    """The fewest parts of the columns of a dot whose accumulators fit beside the partial ones of one part: 1 or 2."""
    is_whole = columns // 2 * blocks + columns // 2 <= most
    return 1 if is_whole else 2


def _plan_operand(
    value: SSAValue,
    summed: int,
    passed: set[Operation],
    units: TensorCores,
    is_right: bool,
    like: DType | None = None,
) -> MmaOperand:
    """One operand, read through conversions that lose nothing and transposes; axis `summed` of `value` is k."""
    value, summed, rounds = _source(value, summed, passed, like)
    load = _copied_load(value)
    if rounds and (rounds not in units.instruction.rounds or load is None):
        raise UnfitError(f"an operand is rounded to {rounds} before a dot, and copies for `{units.name}` do not round")
    if load is not None and units.windows and is_windowed(load):
        passed.add(load)
        box = window_box(load, units.lines)
        operand = CopiedOperand(value, "k" if box.inner == summed else "mn", load, box, rounds)
        return _as_written(operand, operand, False)
    if load is not None:
        box = box_of(load, load.results[0], 1, units.cuts and is_right)
        box = _in_lines(load, box, units.lines, box.inner == summed)
        if box.remainder and box.inner == summed:
            raise UnfitError(f"k is {sizes_of(value)[box.inner]}, and a tile along it is made of whole spans")
        # Across k, what a last span has too much of is copied and not multiplied.
        box = replace(box, pieces=box.pieces + bool(box.remainder), remainder=0)
        passed.add(load)
        operand = CopiedOperand(value, "k" if box.inner == summed else "mn", load, box, rounds)
        return _as_written(operand, _with_rows_there(operand), units.trims and not is_right)
    if summed != 1:
        raise UnfitError("an operand that is computed is transposed, and fragments are not")
    dtype = shaped_type(value).dtype
    if dtype.bytes != 2:
        raise UnfitError(f"an operand that is computed is {dtype}, and only 2-byte floats stay in registers")
    return MmaOperand(value, "k", None)


def _in_lines(load: LoadOp, box: Box, lines: Sequence[int], is_along: bool) -> Box:
    """The boxes of an operand in lines that are swizzled: those that its load asks for, else those that waste nothing.

    Along k those are the widest that rows are made of; across k the narrowest that hold a whole row.
    """
    tile = shaped_type(load.results[0])
    size, each = tile.sizes[box.inner], tile.dtype.bytes
    width, asked = size * each, load.value("swizzle") or (load.value("box") or (0,))[-1] * each
    if asked and asked not in lines:
        raise UnfitError(f"`swizzle` is {asked}, and lines there are of {' or '.join(map(str, lines))} bytes")
    fitting = [line for line in lines if (width % line == 0 if is_along else line >= width)]
    line = (asked or (fitting[0 if is_along else -1] if fitting else lines[0])) // each
    return Box(box.inner, (*box.sizes[:-1], line), size // line, size % line)


def _source(
    value: SSAValue, summed: int, passed: set[Operation], like: DType | None = None
) -> tuple[SSAValue, int, str]:
    """What an operand is made of, before conversions that lose nothing and transposes, and which of its axes is k.

    The last is the format that it is rounded to before the dot, which is none for most. An A operand that is converted
    to the dtype of 2 bytes that the other is `like` is computed in it.
    """
    rounds = ""
    while isinstance(source := value.owner, SpecOp):
        if source.name == "ttile.transpose":
            summed = 1 - summed
        elif like is not None and like.bytes == 2 and shaped_type(value).dtype is like:
            break
        elif _rounds_to(source):
            rounds = _rounds_to(source)
        elif source.name != "ttile.cast" or not _widens(source):
            break
        elif (dtype := shaped_type(source.operands[0]).dtype).is_float and dtype.bytes <= 2:
            # tf32 has all floats of two bytes or one as they are.
            rounds = ""
        passed.add(source)
        value = source.operands[0]
    return value, summed, rounds


def _rounds_to(op: SpecOp) -> str:
    """The format that an op rounds f32 in memory to, plainly, as copies can; none where it does anything else."""
    if not isinstance(op, RoundOp) or len(op.operands) != 1:
        return ""
    is_plain = (op.rounding, op.saturation, op.denormals) == ("nearest_even", "", "keep")
    is_copied = is_plain and shaped_type(op.operands[0]).dtype is f32 and op.format == tf32.name
    return op.format if is_copied else ""


def _copied_load(value: SSAValue) -> LoadOp | None:
    """The load that an operand comes from, unless that goes to registers."""
    source = value.owner
    return source if isinstance(source, LoadOp) and source.space != REGISTERS else None


def _as_written(whole: CopiedOperand, trimmed: CopiedOperand, trims: bool) -> CopiedOperand:
    """An operand as its load asks that it is copied, else as tensor cores like it."""
    box, layout = tuple(whole.load.value("box")), whole.load.value("layout")
    if layout not in ("", layout_of(whole.box)):
        raise UnfitError(f"`layout` is {layout}, and {layout_of(whole.box)} of the tile are contiguous in memory")
    if box not in ((), whole.box.sizes, trimmed.box.sizes):
        raise UnfitError(f"`box` is {list(box)}, and what is copied at a time is {list(trimmed.box.sizes)}")
    is_trimmed = box == trimmed.box.sizes if box else trims
    return trimmed if is_trimmed else whole


def _with_rows_there(operand: CopiedOperand) -> CopiedOperand:
    """An A operand of which no more rows are copied than its buffer has: those beyond give rows that nobody stores."""
    if operand.major != "k":
        return operand
    buffer, sizes = shaped_type(operand.load.operands[0]), list(operand.box.sizes)
    for dim, extent in enumerate(buffer.shape[:-1]):
        if extent.value is not None and sizes[dim] > 1:
            sizes[dim] = min(sizes[dim], -(-extent.value // 8) * 8)
    return replace(operand, box=replace(operand.box, sizes=tuple(sizes)))


def _widens(op: SpecOp) -> bool:
    source, target = shaped_type(op.operands[0]).dtype, shaped_type(op.results[0]).dtype
    return source.bits < target.bits and holds(target, source)


def _hidden(ops: Sequence[SpecOp], passed: set[Operation], dots: set[SpecOp]) -> frozenset[Operation]:
    """Of the ops that dots read through, those that nothing else reads."""
    found: set[Operation] = set()
    for op in reversed(ops):
        users = [use.operation for result in op.results for use in result.uses]
        if op in passed and all(user in found or user in dots for user in users):
            found.add(op)
    return frozenset(found)


def _check_tiles(ops: Sequence[SpecOp], rows: int, hidden: frozenset[Operation]) -> None:
    for op in ops:
        if op in hidden:
            continue
        if op.name == "ttile.transpose":
            raise UnfitError("a fragment is transposed, and fragments have one layout")
        if op.name == "ttile.round":
            raise UnfitError("a fragment is rounded, and only what is copied for a dot alone is")
        if isinstance(op, ReduceOp) and op.axis != 1:
            raise UnfitError("columns are reduced, and they are distributed over warps")
        if isinstance(op, LoadOp | StoreOp) and len(op.at) != len(op.coords):
            raise UnfitError("index tiles are not fragments")
        if isinstance(op, StoreOp) and op.mode != "set":
            raise UnfitError(f"a store in mode `{op.mode}` is not one of fragments")
        for value in (*op.operands, *op.results):
            if isinstance(value.type, TileAttr):
                _check_shape(op, value, rows)


def _check_shape(op: SpecOp, value: SSAValue, rows: int) -> None:
    sizes = sizes_of(value)
    if op.name == "ttile.dot":
        return
    if len(sizes) == 2 and (sizes[0] != rows or sizes[1] % 8):
        raise UnfitError(f"`{op.name}` has a tile of {sizes[0]} x {sizes[1]}, and fragments have {rows} rows")
    if len(sizes) not in (1, 2):
        raise UnfitError(f"`{op.name}` has a tile of {len(sizes)} dims")


_LOOPS = ("ttile.for", "ttile.yield")


def _columns(ops: Sequence[SpecOp]) -> frozenset[SSAValue]:
    """Vectors along columns: those broadcast along them, and whatever they are computed from."""
    found: set[SSAValue] = set()
    grown = True
    while grown:
        before = len(found)
        for op in ops:
            vectors = [v for v in (*op.operands, *op.results) if _is_vector(v)]
            is_broadcast = isinstance(op, BroadcastOp) and op.axes == (1,)
            is_tied = op.name not in (*_LOOPS, "ttile.broadcast", "ttile.reduce") and found.intersection(vectors)
            if is_broadcast or is_tied:
                found.update(vectors)
        grown = len(found) > before
    for op in ops:
        if op.name in _LOOPS and found.intersection(op.operands):
            raise UnfitError("a loop carries a number for each column")
        is_of_rows = isinstance(op, BroadcastOp) and op.axes == (0,)
        if (is_of_rows and op.operands[0] in found) or (isinstance(op, ReduceOp) and op.results[0] in found):
            raise UnfitError("a number for each row is one for each column too, which other threads have")
    return frozenset(found)


def _is_vector(value: SSAValue) -> bool:
    return isinstance(value.type, TileAttr) and len(value.type.shape) == 1
