"""Whether a machine can carry a schedule out, said in numbers before any code is made, and the nearest it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.span import Span
from tessera.ir.tile.records import Body, KernelProgram, TileOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.occupancy import Usage
from tessera.types.occupancy import occupancy as occupancy_of
from tessera.types.schedule import Schedule
from tessera.types.tensor_type import TensorType

WARP = 32
MOST_THREADS = 1024
WIDEST = 16
"""Bytes of the widest access of one thread."""
SPARE = 40
"""Registers of a thread for addresses, masks and loop counters."""
TRIED = 400
"""Schedules that are looked at for the nearest legal one."""

HALVINGS = 9
"""How often blocks are halved at most, until code can be made of them."""

Build = Callable[[Schedule], KernelProgram]
Compile = Callable[[KernelProgram], str]


def _accept(program: KernelProgram) -> str:
    """Numbers are all that is asked for."""
    return ""


@frozen
class Staged:
    """A tile that waits in shared memory: what it is of, its type, and how many of it are under way."""

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
    """What a kernel needs of a machine for one program."""

    staged: tuple[Staged, ...]
    held: tuple[TensorType, ...]
    tiles: int
    has_dots: bool

    @property
    def shared(self) -> int:
        return sum(buffer.bytes for buffer in self.staged)

    @property
    def usual_warps(self) -> int:
        """Warps of a program whose schedule does not say."""
        return 8 if self.has_dots else 4

    def registers(self, threads: int) -> int:
        """Registers of one thread, when what is held is spread over all."""
        words = sum((type.size.value or 0) * max(1, type.dtype.bytes // 4) for type in self.held)
        return -(-words // threads) + SPARE


def footprint_of(program: KernelProgram, schedule: Schedule) -> Footprint:
    """Tiles that are loaded for products wait in shared memory; what loops carry is held in registers."""
    stages = schedule.stages or 1
    staged: list[Staged] = []
    held: list[TensorType] = []
    fed = _dot_operands(program.body)
    total = 0
    for op, depth in _walk(program.body, 0):
        for result in op.results:
            type = program.types[result]
            total += (type.bytes.value or 0) if isinstance(type, TensorType) else 0
        if op.name == "load" and op.results[0] in fed:
            name = (
                f"argument {program.buffers.index(op.operands[0])}" if op.operands[0] in program.buffers else "scratch"
            )
            staged.append(Staged(name, program.types[op.results[0]], stages if depth else 1))
        if op.name == "for":
            held += [program.types[value] for value in op.results]
        if op.name == "dot" and depth and op.operands[2] not in _carried(program.body):
            held.append(program.types[op.results[0]])
    return Footprint(tuple(staged), tuple(held), total, bool(fed))


def _walk(body: Body, depth: int) -> Iterator[tuple[TileOp, int]]:
    for op in body.ops:
        yield op, depth
        if op.body is not None:
            yield from _walk(op.body, depth + 1)


def _dot_operands(body: Body) -> set[int]:
    """Values that products read, and what those are turned or cast from."""
    ops = [op for op, _ in _walk(body, 0)]
    found = {value for op in ops if op.name == "dot" for value in op.operands[:2]}
    for op in reversed(ops):
        if op.name in ("transpose", "cast") and op.results[0] in found:
            found.add(op.operands[0])
    return found


def _carried(body: Body) -> set[int]:
    return {value for op, _ in _walk(body, 0) if op.body is not None for value in op.body.arguments}


def violations(program: KernelProgram, schedule: Schedule, machine: Machine) -> list[tuple[str, tuple[str, ...]]]:
    """Why a machine cannot carry a schedule out: sentences with numbers, each with its parts."""
    need = footprint_of(program, schedule)
    if not machine.is_gpu:
        if need.tiles > machine.max_scratch:
            return [
                (f"its tiles need {need.tiles} bytes, and {machine.name} gives a program {machine.max_scratch}", ())
            ]
        return []
    found: list[tuple[str, tuple[str, ...]]] = []
    threads = (schedule.warps or need.usual_warps) * WARP
    if threads > MOST_THREADS:
        found.append((f"{schedule.warps} warps are {threads} threads, and a program has {MOST_THREADS} at most", ()))
    room, owner = _cap(schedule.max_shared, "max_shared", machine.shared, f"{machine.cpu} has")
    if need.shared > room:
        parts = tuple(str(buffer) for buffer in need.staged)
        found.append((f"it needs {need.shared} bytes of shared memory, and {owner} {room}", parts))
    registers = need.registers(threads)
    room, owner = _cap(schedule.max_registers, "max_registers", machine.registers, "there are")
    if registers > room:
        parts = tuple(f"{type} held by {threads} threads" for type in need.held)
        found.append((f"it needs {registers} registers in each thread, and {owner} {room}", parts))
    found += _shape_violations(need, program, schedule)
    if schedule.stages == 1 and "wgmma" not in machine.features and _copies_dot_operands(program):
        # Elsewhere than on warpgroups a loop always copies the next step while it multiplies.
        found.append(
            (f"stages=1 leaves a step nowhere to be copied ahead, and on {machine.cpu} there are 2 at least", ())
        )
    return found


def _copies_dot_operands(program: KernelProgram) -> bool:
    """Whether loops load what matrix units multiply: narrow numbers, which wait in shared memory."""
    fed = _dot_operands(program.body)
    loads = [op.results[0] for op, depth in _walk(program.body, 0) if op.name == "load" and depth]
    return any(value in fed and program.types[value].dtype.bits <= 16 for value in loads)


def _cap(cap: int | None, name: str, machine: int, owner: str) -> tuple[int, str]:
    """What there is of something, and who says so: the schedule where it says less than the machine."""
    return (cap, f"`{name}` allows") if cap is not None and cap < machine else (machine, owner)


def _shape_violations(need: Footprint, program: KernelProgram, schedule: Schedule) -> list[tuple[str, tuple[str, ...]]]:
    """What does not divide, or is wider than an access."""
    loaded = [program.types[op.results[0]] for op, _ in _walk(program.body, 0) if op.name == "load"]
    found = [message for type in loaded if (message := _wide(schedule.vector, type))][:1]
    if schedule.swizzle == "xor":
        found += [message for buffer in need.staged if (message := _unaligned(buffer))][:1]
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
        return f"vector={vector} of {type.dtype} is {wide} bytes, and an access moves {WIDEST}"
    return f"vector={vector} does not divide the {last} columns of a tile of {type}" if last % vector else ""


def _unaligned(buffer: Staged) -> str:
    """Why a tile cannot be swizzled, if it cannot."""
    row = (buffer.type.shape[-1].value or 0) * buffer.type.dtype.bytes
    return f"swizzle='xor' moves {WIDEST} bytes, and a row of {buffer.name} has {row}" if row % WIDEST else ""


def check(
    build: Build, schedule: Schedule, machine: Machine, name: str, span: Span | None, made: Compile = _accept
) -> None:
    """Raises ScheduleError (T0401) with what is needed, what there is, and the nearest schedule that is legal.

    `made` says why no code is made of a program that the numbers allow; nothing where it is made.
    """
    program = build(schedule)
    wrong = violations(program, schedule, machine)
    if not wrong and (said := made(program)):
        wrong = [(said, ())]
    if not wrong:
        return
    near = nearest(build, schedule, machine, made)
    (first, parts), *rest = wrong
    raise ScheduleError(
        f"`{name}` cannot be carried out on {machine.cpu or machine.name} under {schedule}: {first}",
        span=span,
        notes=(*parts, *(message for message, _ in rest)),
        fix=f"the nearest that can is {near}" if near is not None else "make the blocks smaller",
    )


class _Programs:
    """The programs of schedules, made once for each block, and which of them are legal."""

    def __init__(self, build: Build, machine: Machine, made: Compile) -> None:
        self.build, self.machine, self.made = build, machine, made
        self._programs: dict[tuple[int, ...], KernelProgram] = {}
        self._said: dict[tuple[tuple[int, ...], int | None], str] = {}

    def of(self, schedule: Schedule) -> KernelProgram:
        if schedule.block not in self._programs:
            self._programs[schedule.block] = self.build(schedule)
        return self._programs[schedule.block]

    def is_allowed(self, schedule: Schedule) -> bool:
        """Whether nothing is wrong with its numbers."""
        return not violations(self.of(schedule), schedule, self.machine)

    def is_made(self, schedule: Schedule) -> bool:
        """Whether code is made of it, for which stages, vectors and swizzles are hints."""
        key = (schedule.block, schedule.warps)
        if key not in self._said:
            self._said[key] = self.made(self.build(schedule))
        return not self._said[key]


def nearest(build: Build, schedule: Schedule, machine: Machine, made: Compile = _accept) -> Schedule | None:
    """The legal schedule that is fewest steps away: a step halves a block, or takes a stage, a vector or warps down.

    Where the first whose numbers are right is too large for its code, blocks are halved further until it is made.
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
    """Schedules with one block halved, those of rows first, then with more of them, and more often."""
    halved = [1 << (size - 1).bit_length() - 1 if size > 1 else 1 for size in schedule.block]
    for times in range(HALVINGS):
        cut = [max(1, size >> times) for size in halved]
        for places in ((0,), (1,), (0, 1), (0, 1, 2)):
            kept = [cut[at] if at in places else size for at, size in enumerate(schedule.block)]
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
    for place in range(len(schedule.block) - 1, -1, -1):
        if schedule.block[place] > 16:
            block = list(schedule.block)
            block[place] = max(16, 1 << (block[place] - 1).bit_length() - 1)
            yield schedule.with_(block=tuple(block))
    if schedule.stages == 1:
        yield schedule.with_stages(2)


# Finding blocks for a kernel whose schedule is not given: the candidate that a model says keeps most of a GPU busy.

Block = tuple[int, ...]
HELD = 4096
"""Elements of a tile in registers: 16 for each of 256 threads."""
ACCUMULATORS = 128 * 128
"""Sums of a program without matrix units: 64 for each of 256 threads."""
REUSE = 128 * 256 / (128 + 256)
"""Products for each element read, `m * n / (m + n)`, of the largest blocks that matrix units take."""

ROWS = {"wgmma": 64, "tcgen05": 128}
"""Rows of one instruction of matrix units, by the feature that a machine has them with; others take 16."""

GROUPS, COLUMNS = 3, 256
"""Groups of warps that share the rows of a product at most, and columns of which one keeps sums in registers."""


def busy_fraction(program: KernelProgram, block: Block, machine: Machine) -> float | None:
    """Which share of a GPU's warps works, on the average over all waves of programs; None where sizes are free.

    A program with products has a multiprocessor to itself, and small blocks wait for what they read, by the root of how
    much more they read; what sticks out over the edges of a result is work for nothing. Of other programs as many are
    resident as their registers allow.
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


def _busy(count: int, places: int) -> float:
    """The share of places that have a program, over as many waves as it takes."""
    return count / (-(-count // places) * places)


def _inside(program: KernelProgram, count: int) -> float:
    """Which share of what programs store lies inside of the results."""
    stored = sum(program.types[op.operands[0]].size.value or 0 for op in program.body.ops if op.name == "store")
    wanted = sum(type.size.value or 0 for type in program.results)
    return min(1.0, wanted / (count * stored)) if stored else 1.0


def rank_blocks(
    blocks: Sequence[Block], build: Callable[[Block], KernelProgram], machine: Machine
) -> tuple[Block, ...]:
    """Candidates, the one that keeps most of the machine busy first; in the order they come in where none is better.

    Tiles of more elements than threads hold well come last, whatever the sizes are: they are code without end.
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
    """Whether products that matrix units could do have rows or sums that those do not take: nothing costs as much."""
    rows = next((count for feature, count in ROWS.items() if feature in machine.features), 1)
    # Groups of warps have a third of the rows at least, and keep sums of 256 columns of one instruction's rows.
    is_large = "wgmma" in machine.features and block[1] * -(-block[0] // (GROUPS * rows)) > COLUMNS
    return _is_narrow(footprint_of(program, Schedule())) and (block[0] % rows != 0 or is_large)


def _is_narrow(need: Footprint) -> bool:
    return need.has_dots and all(buffer.type.dtype.bytes <= 2 for buffer in need.staged)


def _reduces_uneven_rows(program: KernelProgram) -> bool:
    """Whether several rows are folded together whose elements no threads have alike: each halving is then an exchange.

    Of a single row, each thread joins what it has of it first.
    """
    for op in program.body.ops:
        if op.name == "reduce":
            type = program.types[op.operands[0]]
            assert isinstance(type, TensorType)
            sizes = [dim.value or 1 for dim in type.shape]
            axis: int = op.values["axis"]
            folded = sizes[axis]
            if prod(sizes) > folded > 1 and folded & (folded - 1):
                return True
    return False


def _excess(program: KernelProgram) -> int:
    """Elements of the largest tile beyond what 256 threads hold well: of sums, as many as matrix units take."""
    need = footprint_of(program, Schedule())
    if need.has_dots:
        return (
            0
            if _is_narrow(need)
            else max(0, max((type.size.value or 0 for type in need.held), default=0) - ACCUMULATORS)
        )
    sizes = [type.size.value or 0 for type in program.types if isinstance(type, TensorType)]
    return max(0, max(sizes, default=0) - HELD)
