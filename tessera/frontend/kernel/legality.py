"""What a machine can run: schedules by their resources, blocks that a model prefers, and rows that fit registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from tessera.diagnostics.codes import KernelError, ScheduleError
from tessera.diagnostics.error import Span
from tessera.ir.tile.records import INDEX, Body, KernelProgram, TileOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine, Usage
from tessera.types.machine import occupancy as occupancy_of
from tessera.types.promotion import reduction_identity
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType

WARP = 32
MOST_THREADS = 1024
WIDEST = 16
"""Bytes of the widest access of one thread (128-bit loads and stores)."""
SPARE = 40
"""Registers of a thread for addresses, masks and loop counters."""
TRIED = 400
"""The most schedules that are tried to find the nearest legal one."""

HALVINGS = 9
"""How often blocks are halved at most until they compile."""

Build = Callable[[Schedule], KernelProgram]
Compile = Callable[[KernelProgram], str]


def _accept(program: KernelProgram) -> str:
    """No check beyond the resources."""
    return ""


@frozen
class Staged:
    """A tile staged in shared memory: its tensor, its type, and its number of stages."""

    name: str
    type: TensorType
    copies: int

    @property
    def bytes(self) -> int:
        return (self.type.bytes.value or 0) * self.copies

    def __str__(self) -> str:
        each = self.type.bytes.value or 0
        return f"{self.name}: {self.type} x {self.copies} stages = {each} x {self.copies} = {self.bytes} bytes"


@frozen
class Footprint:
    """The resources that one program of a kernel needs."""

    staged: tuple[Staged, ...]
    held: tuple[TensorType, ...]
    tiles: int
    has_dots: bool

    @property
    def shared(self) -> int:
        return sum(buffer.bytes for buffer in self.staged)

    @property
    def usual_warps(self) -> int:
        """The default warps of a program."""
        return 8 if self.has_dots else 4

    def registers(self, threads: int) -> int:
        """Registers of one thread, with carried values distributed over all threads."""
        words = sum((type.size.value or 0) * max(1, type.dtype.bytes // 4) for type in self.held)
        return -(-words // threads) + SPARE


def footprint_of(program: KernelProgram, schedule: Schedule) -> Footprint:
    """The resources of a program: operands of dots are in shared memory, values carried by loops in registers."""
    stages = schedule.stages or 1
    staged: list[Staged] = []
    held: list[TensorType] = []
    fed = _dot_operands(program.body)
    total = 0
    for op, level in walk(program.body):
        for result in op.results:
            type = program.types[result]
            total += (type.bytes.value or 0) if isinstance(type, TensorType) else 0
        if op.name == "load" and op.results[0] in fed:
            name = (
                f"argument {program.buffers.index(op.operands[0])}" if op.operands[0] in program.buffers else "scratch"
            )
            staged.append(Staged(name, program.types[op.results[0]], stages if level else 1))
        if op.name == "for":
            held += [program.types[value] for value in op.results]
        if op.name == "dot" and level and op.operands[2] not in _loop_arguments(program.body):
            held.append(program.types[op.results[0]])
    return Footprint(tuple(staged), tuple(held), total, bool(fed))


def walk(body: Body, level: int = 0) -> Iterator[tuple[TileOp, int]]:
    """All ops of a body, each with the number of loops around it."""
    for op in body.ops:
        yield op, level
        if op.body is not None:
            yield from walk(op.body, level + 1)


def _dot_operands(body: Body) -> set[int]:
    """Operands of dots, and what they are transposed or cast from."""
    ops = [op for op, _ in walk(body)]
    found = {value for op in ops if op.name == "dot" for value in op.operands[:2]}
    for op in reversed(ops):
        if op.name in ("transpose", "cast") and op.results[0] in found:
            found.add(op.operands[0])
    return found


def _loop_arguments(body: Body) -> set[int]:
    return {value for op, _ in walk(body) if op.body is not None for value in op.body.arguments}


def violations(program: KernelProgram, schedule: Schedule, machine: Machine) -> list[tuple[str, tuple[str, ...]]]:
    """Why a machine cannot run a schedule: sentences with numbers, each with its details."""
    need = footprint_of(program, schedule)
    if not machine.is_gpu:
        if need.tiles > machine.max_scratch:
            return [
                (f"its tiles need {need.tiles} bytes, and a program on {machine.name} has {machine.max_scratch}", ())
            ]
        return []
    found: list[tuple[str, tuple[str, ...]]] = []
    threads = (schedule.warps or need.usual_warps) * WARP
    if threads > MOST_THREADS:
        found.append((f"{schedule.warps} warps are {threads} threads, and a program has at most {MOST_THREADS}", ()))
    limit, owner = _cap(schedule.max_shared, "max_shared", machine.shared, f"{machine.cpu} has")
    if need.shared > limit:
        parts = tuple(str(buffer) for buffer in need.staged)
        found.append((f"it needs {need.shared} bytes of shared memory, and {owner} {limit}", parts))
    registers = need.registers(threads)
    limit, owner = _cap(schedule.max_registers, "max_registers", machine.registers, "there are")
    if registers > limit:
        parts = tuple(f"{type} held by {threads} threads" for type in need.held)
        found.append((f"it needs {registers} registers in each thread, and {owner} {limit}", parts))
    found += _shape_violations(need, program, schedule)
    if schedule.stages == 1 and "wgmma" not in machine.features and _copies_dot_operands(program):
        # Without WGMMA a loop always copies the next block while it computes on this one.
        found.append((f"stages=1 leaves no buffer to prefetch into, and {machine.cpu} needs at least 2", ()))
    return found


def _copies_dot_operands(program: KernelProgram) -> bool:
    """Whether loops load operands for tensor cores: of 16 bits or less, staged in shared memory."""
    fed = _dot_operands(program.body)
    loads = [op.results[0] for op, level in walk(program.body) if op.name == "load" and level]
    return any(value in fed and program.types[value].dtype.bits <= 16 for value in loads)


def _cap(cap: int | None, name: str, machine: int, owner: str) -> tuple[int, str]:
    """The limit of a resource and its origin: the schedule, where its cap is below the machine's."""
    return (cap, f"`{name}` allows") if cap is not None and cap < machine else (machine, owner)


def _shape_violations(need: Footprint, program: KernelProgram, schedule: Schedule) -> list[tuple[str, tuple[str, ...]]]:
    """Why vectors, swizzles or threads do not fit the tiles."""
    loaded = [program.types[op.results[0]] for op, _ in walk(program.body) if op.name == "load"]
    found = [message for type in loaded if (message := _wide(schedule.vector, type))][:1]
    if schedule.swizzle == "xor":
        found += [message for buffer in need.staged if (message := _explain_unaligned(buffer))][:1]
    threads = (schedule.warps or need.usual_warps) * WARP
    block = max((type.size.value or 0 for type in need.held), default=0)
    if need.has_dots and schedule.warps is not None and 0 < block < threads:
        found.append(f"{threads} threads share a block of {block} elements")
    return [(message, ()) for message in found]


def _wide(vector: int | None, type: TensorType) -> str:
    """Why a tile cannot be loaded by vectors of this width, if it cannot."""
    if vector is None or not type.shape:
        return ""
    wide, last = vector * type.dtype.bytes, type.shape[-1].value or 0
    if wide > WIDEST:
        return f"vector={vector} of {type.dtype} is {wide} bytes, and an access has at most {WIDEST}"
    return f"vector={vector} does not divide the {last} columns of a tile of {type}" if last % vector else ""


def _explain_unaligned(buffer: Staged) -> str:
    """Why a tile cannot be swizzled, if it cannot."""
    row = (buffer.type.shape[-1].value or 0) * buffer.type.dtype.bytes
    return (
        f"swizzle='xor' permutes units of {WIDEST} bytes, and a row of {buffer.name} has {row}" if row % WIDEST else ""
    )


def check(
    build: Build, schedule: Schedule, machine: Machine, name: str, span: Span | None, made: Compile = _accept
) -> None:
    """Raises ScheduleError (T0401) with the resources needed and available, and the nearest legal schedule.

    `made` says why a program within all limits does not compile; empty where it does.
    """
    program = build(schedule)
    wrong = violations(program, schedule, machine)
    if not wrong and (reason := made(program)):
        wrong = [(reason, ())]
    if not wrong:
        return
    near = nearest(build, schedule, machine, made)
    (first, parts), *others = wrong
    raise ScheduleError(
        f"`{name}` cannot run on {machine.cpu or machine.name} under {schedule}: {first}",
        span=span,
        notes=(*parts, *(message for message, _ in others)),
        fix=f"the nearest legal schedule is {near}" if near is not None else "use smaller blocks",
    )


class _Programs:
    """The programs of schedules, built once per block, and which of them are legal."""

    def __init__(self, build: Build, machine: Machine, made: Compile) -> None:
        self.build, self.machine, self.made = build, machine, made
        self._programs: dict[tuple[int, ...], KernelProgram] = {}
        self._reasons: dict[tuple[tuple[int, ...], int | None], str] = {}

    def of(self, schedule: Schedule) -> KernelProgram:
        if schedule.block not in self._programs:
            self._programs[schedule.block] = self.build(schedule)
        return self._programs[schedule.block]

    def is_allowed(self, schedule: Schedule) -> bool:
        """Whether it is within all limits."""
        return not violations(self.of(schedule), schedule, self.machine)

    def is_made(self, schedule: Schedule) -> bool:
        """Whether it compiles; stages, vectors and swizzles are hints and do not matter."""
        key = (schedule.block, schedule.warps)
        if key not in self._reasons:
            self._reasons[key] = self.made(self.build(schedule))
        return not self._reasons[key]


def nearest(build: Build, schedule: Schedule, machine: Machine, made: Compile = _accept) -> Schedule | None:
    """The legal schedule in the fewest steps: a step halves a block, or lowers stages, vector width or warps.

    Where the first one within all limits does not compile, its blocks are halved until one does.
    """
    programs = _Programs(build, machine, made)
    seen, waiting = {schedule}, [schedule]
    first = schedule if programs.is_allowed(schedule) else None
    while first is None and waiting and len(seen) < TRIED:
        for step in _neighbours(waiting.pop(0)):
            if step not in seen:
                seen.add(step)
                waiting.append(step)
                if programs.is_allowed(step):
                    first = step
                    break
    if first is None or programs.is_made(first):
        return first
    return next((one for one in _halved_blocks(first) if programs.is_allowed(one) and programs.is_made(one)), None)


def _halved_blocks(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with smaller blocks: one of them halved, then several, then more often."""
    halved = [1 << (size - 1).bit_length() - 1 if size > 1 else 1 for size in schedule.block]
    for times in range(HALVINGS):
        cut = [max(1, size >> times) for size in halved]
        for chosen in ((0,), (1,), (0, 1), (0, 1, 2)):
            kept = [cut[at] if at in chosen else size for at, size in enumerate(schedule.block)]
            if tuple(kept) != schedule.block:
                yield schedule.with_(block=tuple(kept))


def _neighbours(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.stages is not None and schedule.stages > 1:
        yield schedule.with_stages(schedule.stages - 1)
    if schedule.vector is not None and schedule.vector > 1:
        yield schedule.with_vector(schedule.vector // 2)
    if schedule.warps is not None:
        if schedule.warps < MOST_THREADS // WARP:
            yield schedule.with_warps(schedule.warps * 2)
        yield schedule.with_warps(schedule.warps // 2) if schedule.warps > 1 else schedule.with_(warps=None)
    if schedule.swizzle == "xor":
        yield schedule.with_swizzle("none")
    for at in range(len(schedule.block) - 1, -1, -1):
        if schedule.block[at] > 16:
            block = list(schedule.block)
            block[at] = max(16, 1 << (block[at] - 1).bit_length() - 1)
            yield schedule.with_(block=tuple(block))
    if schedule.stages == 1:
        yield schedule.with_stages(2)


# Discovery of blocks for a kernel without a schedule. No candidate is compiled or run: a model estimates which fraction
# of the GPU each keeps busy, from the number of programs per wave, how much of the edge blocks is useful, and the reuse
# of loaded elements. Penalties that no utilization makes up for (tiles that miss the tensor cores, tiles too large for
# registers, rows that threads share unevenly) come before it in the order.

Block = tuple[int, ...]
HELD = 4096
"""Elements of a tile that registers hold well: 16 for each of 256 threads."""
ACCUMULATORS = 128 * 128
"""Accumulators of a program without tensor cores: 64 for each of 256 threads."""
REUSE = 128 * 256 / (128 + 256)
"""Multiply-adds per loaded element, `m * n / (m + n)`, of the largest block that tensor cores run (128 x 256)."""

ROWS = {"wgmma": 64, "tcgen05": 128}
"""Rows of one MMA instruction, by machine feature; `mma.sync` has 16."""

GROUPS, COLUMNS = 3, 256
"""The most warpgroups that share the rows of a dot, and the most columns whose accumulators one holds in registers."""


def busy_fraction(program: KernelProgram, block: Block, machine: Machine) -> float | None:
    """The fraction of a GPU's warps that do useful work, averaged over all waves; None where sizes are symbolic.

    A program with dots has an SM to itself; smaller blocks are slower by the square root of their lower reuse, and
    work beyond the edges of a result is wasted. Of other programs as many are resident as registers allow.
    """
    extents = [dim.value for dim in program.grid]
    if any(extent is None for extent in extents):
        return None
    count = prod(extent or 0 for extent in extents)
    if not count:
        return 1.0
    need = footprint_of(program, Schedule(block=block))
    if need.has_dots:
        m, n = block[:2]
        return _busy(count, machine.blocks) * _inside(program, count) * min(1.0, m * n / (m + n) / REUSE) ** 0.5
    largest = max((type.size.value or 1 for type in program.types if isinstance(type, TensorType)), default=1)
    threads = max(WARP, min(256, 1 << max(0, (largest // 8).bit_length() - 1)))
    registers = need.registers(threads) + 2 * -(-largest // threads)
    assert machine.multiprocessor is not None
    found = occupancy_of(machine.multiprocessor, Usage(threads, registers, need.shared))
    return _busy(count, machine.blocks * found.blocks) * found.fraction if found.blocks else 0.0


def _busy(count: int, slots: int) -> float:
    """The fraction of slots for programs that are in use, over all waves."""
    return count / (-(-count // slots) * slots)


def _inside(program: KernelProgram, count: int) -> float:
    """The fraction of stored elements that are within the bounds of the results."""
    stored = sum(program.types[op.operands[0]].size.value or 0 for op in program.body.ops if op.name == "store")
    wanted = sum(type.size.value or 0 for type in program.results)
    return min(1.0, wanted / (count * stored)) if stored else 1.0


def rank_blocks(
    blocks: Sequence[Block], build: Callable[[Block], KernelProgram], machine: Machine
) -> tuple[Block, ...]:
    """Candidates, the one that keeps most of the machine busy first; ties keep their order.

    Tiles too large for registers come last, whatever the sizes: their code is fully unrolled, and very long.
    """
    programs = {block: build(block) for block in blocks}
    scores = {block: busy_fraction(program, block, machine) for block, program in programs.items()}
    if None in scores.values():
        return tuple(sorted(blocks, key=lambda block: _excess(programs[block])))

    def order(block: Block) -> tuple[bool, int, bool, float]:
        program = programs[block]
        refused = violations(program, Schedule(block=block), machine)
        return (
            _misses_tensor_cores(program, block, machine),
            _excess(program),
            _reduces_uneven_rows(program),
            1.0 if refused else -round(scores[block] or 0.0, 3),
        )

    return tuple(sorted(blocks, key=order))


def _misses_tensor_cores(program: KernelProgram, block: Block, machine: Machine) -> bool:
    """Whether dots that tensor cores could run have a block that they cannot: nothing costs as much."""
    rows = next((count for feature, count in ROWS.items() if feature in machine.features), 1)
    # A warpgroup has at least a third of the rows, and holds accumulators of 256 columns per instruction row block.
    is_large = "wgmma" in machine.features and block[1] * -(-block[0] // (GROUPS * rows)) > COLUMNS
    return _is_narrow(footprint_of(program, Schedule())) and (block[0] % rows != 0 or is_large)


def _is_narrow(need: Footprint) -> bool:
    return need.has_dots and all(buffer.type.dtype.bytes <= 2 for buffer in need.staged)


def _reduces_uneven_rows(program: KernelProgram) -> bool:
    """Whether several rows of uneven length are reduced: threads share them unevenly, so each halving needs shuffles.

    Of a single row, each thread reduces its own elements first.
    """
    for op in program.body.ops:
        if op.name == "reduce":
            type = program.types[op.operands[0]]
            assert isinstance(type, TensorType)
            sizes = [dim.value or 1 for dim in type.shape]
            axis: int = op.values["axis"]
            length = sizes[axis]
            if prod(sizes) > length > 1 and length & (length - 1):
                return True
    return False


def _excess(program: KernelProgram) -> int:
    """Elements of the largest tile beyond what the registers of 256 threads hold well."""
    need = footprint_of(program, Schedule())
    if need.has_dots:
        return (
            0
            if _is_narrow(need)
            else max(0, max((type.size.value or 0 for type in need.held), default=0) - ACCUMULATORS)
        )
    sizes = [type.size.value or 0 for type in program.types if isinstance(type, TensorType)]
    return max(0, max(sizes, default=0) - HELD)


# Rows too wide for registers, and the padding of wide rows to whole vectors.

LANES = 16
"""Elements of the widest CPU vector (f32 in AVX-512), of which padded rows are multiples."""
NARROW = 256
"""Rows up to this width are unrolled element by element where they do not fill vectors."""
_COORDS = {"load": 1, "store": 2, "clip": 1, "coordinate": 0}
"""Ops with coordinates for the axes of a tile, and how many operands precede those."""


def pad_rows(program: KernelProgram) -> KernelProgram:
    """The same kernel with wide rows padded to whole vectors; it is modified in place."""
    widths = {size for type in program.types if isinstance(type, TensorType) for size in _sizes(type)}
    odd = {size for size in widths if size > NARROW and size % LANES}
    if odd:
        zeros = {op.results[0] for op, _ in walk(program.body) if _is_zero(op)}
        for op, _ in walk(program.body):
            odd -= set(_offset_sizes(program, op, zeros))
    if odd:
        _Padding(program, odd).run()
    return program


def check_width(program: KernelProgram, lanes: int, registers: int) -> None:
    """Raises KernelError (T0206) at a tile whose rows take more registers than code is unrolled for."""
    most = registers * lanes
    for op, _ in walk(program.body):
        for value in op.results:
            type = program.types[value]
            width = _sizes(type)[-1] if isinstance(type, TensorType) and type.rank else 0
            if width > most:
                raise KernelError(
                    f"a tile with rows of {width} elements is too wide: a program holds {most} on this machine",
                    span=op.span,
                    notes=(f"rule: a whole dim as a tile has at most {most} elements, and {width} > {most}",),
                    fix="loop over the row in blocks, `for k in tile.range_k(x, T.k)`, and carry its maximum and sum",
                )


def _sizes(type: TensorType) -> tuple[int, ...]:
    return tuple(dim.value or 0 for dim in type.shape)


def _tile_type(program: KernelProgram, op: TileOp) -> TensorType:
    return program.types[op.operands[0] if op.name == "store" else op.results[0]]


def _is_zero(op: TileOp) -> bool:
    return op.name == "index" and op.values["expr"] == Dim.constant(0)


def _offset_sizes(program: KernelProgram, op: TileOp, zeros: set[int]) -> Iterator[int]:
    """The sizes of axes that do not start at 0: blocks of the grid or of a loop, which must not overlap the next."""
    if op.name not in _COORDS:
        return
    known = dict(zip(op.values["coords"], op.operands[_COORDS[op.name] :], strict=False))
    for name, size in zip(op.values["axes"], _sizes(_tile_type(program, op)), strict=True):
        if known.get(name) not in zeros:
            yield size


class _Padding:
    """The padding of one kernel: tiles with axes of some sizes get longer."""

    def __init__(self, program: KernelProgram, odd: set[int]) -> None:
        self.program, self.odd = program, odd
        self.before: list[Any] = list(program.types)
        self.pads: dict[int, Any] = {}
        """The known value of elements beyond the end of a row."""

    def run(self) -> None:
        program = self.program
        program.types = [self._longer(type) if isinstance(type, TensorType) else type for type in self.before]
        self.zero = self._new(INDEX)
        self._body(program.body)
        program.body.ops.insert(0, TileOp("index", (), {"names": (), "expr": Dim.constant(0)}, (self.zero,)))

    def _longer(self, type: TensorType) -> TensorType:
        return TensorType.of([size + -size % LANES if size in self.odd else size for size in _sizes(type)], type.dtype)

    def _new(self, type: Any) -> int:
        self.program.types.append(type)
        self.before.append(type)
        return len(self.program.types) - 1

    def _body(self, body: Body) -> None:
        ops: list[TileOp] = []
        for op in body.ops:
            if op.body is not None:
                self._body(op.body)
            if op.name in ("load", "store"):
                op.values = {**op.values, "bounds": self._bounds(op)}
            if op.name == "load":
                self.pads[op.results[0]] = op.values["pad"]
            elif op.name in ("cast", "transpose") and self.pads.get(op.operands[0]) == 0:
                self.pads[op.results[0]] = 0
            elif op.name == "reduce":
                identity = reduction_identity(op.values["kind"], self.before[op.operands[0]].dtype)
                op.operands = (self._cut(ops, op, 0, op.values["axis"], identity),)
            elif op.name == "dot":
                zeros = [0.0 if self.before[value].dtype.is_float else 0 for value in op.operands]
                left, right = (self._cut(ops, op, at, 1 - at, zeros[at]) for at in (0, 1))
                op.operands = (left, right, *op.operands[2:])
            ops.append(op)
        body.ops[:] = ops

    def _bounds(self, op: TileOp) -> tuple[Dim, ...]:
        type = self.before[op.operands[0] if op.name == "store" else op.results[0]]
        return tuple(
            Dim.constant(size) if size in self.odd and bound.value == -1 else bound
            for bound, size in zip(op.values["bounds"], _sizes(type), strict=True)
        )

    def _cut(self, ops: list[TileOp], op: TileOp, at: int, axis: int, identity: Any) -> int:
        """Operand `at` of an op with elements beyond the end of an axis replaced by `identity`."""
        value = op.operands[at]
        size = _sizes(self.before[value])[axis]
        # Compared as strings: -0.0 is not 0.0 to a sum.
        if size not in self.odd or (value in self.pads and repr(float(self.pads[value])) == repr(float(identity))):
            return value
        names = tuple(f"_w{number}" for number in range(self.before[value].rank))
        values = {
            "coords": names,
            "axes": names,
            "axis": names[axis],
            "bound": Dim.constant(size),
            "identity": identity,
        }
        result = self._new(self.before[value])
        self.program.types[result] = self.program.types[value]
        ops.append(TileOp("clip", (value, *[self.zero] * len(names)), values, (result,), op.span))
        return result
