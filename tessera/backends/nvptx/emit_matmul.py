"""Matmuls by multiply-adds of threads, as text: operands copied some steps ahead, then multiplied.

Shared memory is a ring of stages, one step of both operands each. Before a step is multiplied, its copies are waited
for and those of the step that takes the oldest stage are started, so that as many steps are under way as there are
stages but one (`cp.async`). The first elements of a step are read from shared memory before the last ones of the step
before it are multiplied, so no thread waits for what it reads after a barrier. Elements of K are multiplied in order,
each accumulator by one thread: how a matmul is divided changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import TYPE_CHECKING

from tessera.backends.nvptx.emit_access import Access, load_vector
from tessera.backends.nvptx.layout import Layout
from tessera.backends.nvptx.matmul_blocks import PIECE
from tessera.backends.nvptx.matmul_plan import (
    STAGES,
    MatmulPlan,
    Operand,
    Panel,
    Part,
    Share,
    is_guarded_along_k,
)
from tessera.backends.nvptx.mma.assembly import commit_copies, copy_async, number, wait_copies
from tessera.backends.nvptx.text import special
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import LoadOp
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

WORD = 4
"""Bytes of an element."""
FEW_STEPS = 8
"""Steps of a matmul that the assembler would write one after the other, with all that they read in registers; a single
one it would mix with the stores of the result, whose addresses then take the registers of accumulators."""
UNROLLED = 2048
"""Multiply-adds of a thread that are written one after the other."""


@dataclass
class Copies:
    """The copies of one operand, from memory to a stage."""

    emitter: Emitter
    operand: Operand
    panel: Panel
    share: Share
    first: int
    """Bytes of a stage before the operand."""
    base: Value
    """Where the first stage begins."""
    is_held: bool
    """Whether it goes through registers."""

    def __post_init__(self) -> None:
        f, thread = self.emitter.f, self.emitter.thread
        self.at: tuple[Index, Index] = (
            f.udiv(thread, self.share.along),
            f.mul(f.urem(thread, self.share.along), self.share.width),
        )
        """The row and column of this thread's first copy."""
        k_axis = self.operand.k_axis
        by_extent, by_k = self.panel.steps
        self.steps = (by_extent, by_k) if k_axis == 1 else (by_k, by_extent)
        """Elements of shared memory from one row of the loaded tile to the next, and from one column to the next."""
        total = f.add(f.mul(self.at[0], self.steps[0]), f.mul(self.at[1], self.steps[1]))
        self.target = f.cast("trunc", f.add(f.mul(total, WORD), self.first), "i32")
        load = self.operand.load
        parts = [load.offset.coefficient(axis) for axis in load.axes]
        self.strides: list[Dim] | None = None
        if all(part is not None and not part[0].symbols & {*load.coords} for part in parts):
            self.strides = [part[0] for part in parts if part is not None]

    def access(self, load: LoadOp, k: Value) -> tuple[Access, dict[str, Index]]:
        """A load of a step, and what each name stands for at this thread's first copy."""
        emitter, block = self.emitter, load.parent
        assert block is not None
        emitter.indices[block.args[0]] = k
        env = emitter.index_values(load.coords, load.at)
        layout = Layout((emitter.threads,), emitter.threads)
        return Access(emitter, load, layout, shaped_type(load.buffer).dtype, env, (), emitter.buffers[load.buffer]), env

    def here(self, load: LoadOp, env: Mapping[str, Index], part: Part) -> dict[str, Index]:
        """What each name stands for at a copy."""
        f, found = self.emitter.f, dict(env)
        for axis, own, more in zip(load.axes, self.at, (part.row, part.column), strict=True):
            found[axis] = f.add(f.add(found[axis], own), more)
        return found

    def start(self, k: Value) -> Value | None:
        """Where this thread's first copy of a step is in memory; None where that says nothing of the others."""
        if self.strides is None:
            return None
        access, env = self.access(self.operand.load, k)
        return access.address(self.here(self.operand.load, env, Part(0, 0)))

    def advance(self, source: Value) -> Value:
        """Where its first copy of the next step is."""
        assert self.strides is not None
        f, stride = self.emitter.f, self.strides[self.operand.k_axis]
        return f.gep(source, dim_value(f, stride * self.operand.depth, self.emitter.env), "float")

    def write(self, load: LoadOp, k: Value, source: Value | None, stage: Value) -> None:
        """Start the copies of a step."""
        f = self.emitter.f
        target = f.op("add", self.target, stage)
        access, env = self.access(load, k)
        for part in self.share.parts:
            here = self.here(load, env, part)
            mask = access.mask(here, 0, owner=False)
            more = WORD * (part.row * self.steps[0] + part.column * self.steps[1])
            if source is None or self.strides is None:
                address, away = access.address(here), 0
            else:
                address, away = self._behind(source, part, self.strides)
            copy_async(f, (target, more), (address, away), WORD * self.share.width, mask, self._exists(part))

    # Operands that are transposed go through registers.

    @property
    def held(self) -> int:
        """Elements of a step that a thread holds on the way."""
        return self.share.width * len(self.share.parts) if self.is_held else 0

    def load(self, load: LoadOp, k: Value, source: Value | None) -> list[Value]:
        """What this thread copies of a step, in registers."""
        access, env = self.access(load, k)
        found: list[Value] = []
        for part in self.share.parts:
            here = self.here(load, env, part)
            mask, exists = access.mask(here, 0, owner=False), self._exists(part)
            if exists is not None:
                mask = exists if mask is None else self.emitter.f.op("and", mask, exists)
            if source is None or self.strides is None:
                address = access.address(here)
            else:
                first, away = self._behind(source, part, self.strides)
                address = self.emitter.f.gep(first, away, "i8")
            if mask is None:
                found += load_vector(access, address, mask, self.share.width, is_invariant=True)
            else:
                found += load_or_zeros(self.emitter.f, mask, address, self.share.width)
        return found

    def stores(self, held: Sequence[Value], stage: Value) -> list[Callable[[], None]]:
        """What puts each part that was loaded into a stage, whose bytes are so far behind the first."""
        f, width = self.emitter.f, self.share.width
        own = f.gep(self.base, f.cast("zext", f.op("add", self.target, stage), "i64"), "i8")
        return [
            partial(self._store, own, part, held[at * width : at * width + width])
            for at, part in enumerate(self.share.parts)
        ]

    def _store(self, own: Value, part: Part, values: Sequence[Value]) -> None:
        f, exists = self.emitter.f, self._exists(part)

        def write() -> None:
            for lane, value in enumerate(values):
                at = part.row * self.steps[0] + (part.column + lane) * self.steps[1]
                f.store(value, f.gep(own, WORD * at, "i8"))

        if exists is None:
            write()
        else:
            f.if_(exists, write)

    def _behind(self, source: Value, part: Part, strides: Sequence[Dim]) -> tuple[Value, int]:
        """Where a copy is from the first one on: an address, and bytes to add that are known."""
        distance = strides[0] * part.row + strides[1] * part.column
        away = None if distance.value is None else WORD * distance.value
        if away is not None and abs(away) < 1 << 23:
            return source, away
        f = self.emitter.f
        return f.gep(source, dim_value(f, distance, self.emitter.env), "float"), 0

    def _exists(self, part: Part) -> Value | None:
        return copy_exists(self.emitter, self.share, self.at, part, sizes_of(self.operand.load.result))


def load_or_zeros(f: FunctionText, mask: Value, address: Value, count: int) -> list[Value]:
    """So many elements of constant memory, or zeros: a load under a predicate.

    A choice between what was loaded and zeros would wait for the load where it is written, a step before its use.
    """
    parts = [f"${at}" for at in range(count)]
    targets, vector = (parts[0], "") if count == 1 else (f"{{{', '.join(parts)}}}", f"v{count}.")
    text = f"@${count} ld.global.nc.{vector}b32 {targets}, [${count + 1}];"
    constraints = ",".join([*["=f"] * count, "b", "l", *map(str, range(count))])
    type_ = "float" if count == 1 else f"{{ {', '.join(['float'] * count)} }}"
    given = ", ".join([str(mask), str(address), *["float 0.0"] * count])
    found = f.raw(type_, f'call {type_} asm sideeffect "{text}", "{constraints}"({given})')
    if count == 1:
        return [found]
    return [f.raw("float", f"extractvalue {type_} {found.text}, {at}") for at in range(count)]


def copy_exists(
    emitter: Emitter, share: Share, at: tuple[Index, Index], part: Part, shape: Sequence[int]
) -> Value | None:
    """Whether a copy is in a tile for this thread, whose first one is `at`; None where it is for all."""
    f = emitter.f
    checks = [] if share.active == emitter.threads else [f.icmp("slt", f.index(emitter.thread), share.active)]
    moved = zip(at, (part.row, part.column), (part.is_row_checked, part.is_column_checked), shape, strict=True)
    checks += [f.icmp("slt", f.add(own, more), size) for own, more, is_checked, size in moved if is_checked]
    found: Value | None = None
    for check in checks:
        found = check if found is None else f.op("and", found, check)
    return found


class MatmulWriter:
    """Writes the loop of a matmul, its tail included."""

    def __init__(self, emitter: Emitter, plan: MatmulPlan) -> None:
        self.emitter, self.f, self.plan, self.matmul = emitter, emitter.f, plan, plan.matmul
        self.stages = STAGES.of(emitter.kernel)
        self.panels = [plan.panel(operand) for operand in self.matmul.operands]
        self.firsts = [0, WORD * self.panels[0].elements]
        self.copies: list[Copies] = []

    def write(self) -> None:
        emitter, f, loop, stage = self.emitter, self.f, self.matmul.loop, self.plan.stage_bytes
        self.base = emitter.exchange(self.stages * stage)
        self.copies = [
            Copies(emitter, operand, panel, self.plan.share(operand), first, self.base, self.plan.is_held(operand))
            for operand, panel, first in zip(self.matmul.operands, self.panels, self.firsts, strict=True)
        ]
        shared = f.raw("ptr addrspace(3)", f"addrspacecast ptr {self.base.text} to ptr addrspace(3)")
        self.shared = f.raw("i32", f"ptrtoint ptr addrspace(3) {shared.text} to i32")
        self.low = f.index(emitter.indices[loop.low])
        self.count, self.whole = self._count_steps()
        self.own = self._find_own()
        emitter.wait()
        sources = [source for copies in self.copies if (source := copies.start(self.low)) is not None]
        state = f.loop(0, self.stages - 1, 1, self._fill_stage, [number(0), *sources])
        accumulators = [value for tile in loop.carried for value in emitter.registers(emitter.tiles[tile])]

        first = number(0)
        self._arrive()
        prefetched = self._read_both(self._starts(first), 0)
        sizes = len(accumulators), len(accumulators) + len(prefetched)

        def step(at: Value, values: list[Value]) -> list[Value]:
            stage, copied = values[sizes[1]], values[sizes[1] + 1 :]
            held, following = self._start_step(f.add(at, self.stages - 1), copied)
            upcoming, stores = self._next_stage(stage), self._stores(held, copied[0])
            # Behind the last step is none: what is read there is not used, but has been written.
            after = f.select(f.icmp("slt", f.add(at, 1), self.count), upcoming, stage)
            found = self._multiply((stage, after), values[: sizes[0]], values[sizes[0] : sizes[1]], stores)
            return [*found, upcoming, *following]

        count, known = self.count, constant_of(self.count)
        if known is not None and 0 < known <= FEW_STEPS:
            # The grid is one block deep, which the assembler does not know.
            count = f.mul(f.cast("zext", special(f, "nctaid.z"), "i64"), known)
        carried = [*accumulators, *prefetched, first, *state]
        ends = f.loop(0, count, 1, step, carried, is_nonempty=bool(known))[: len(accumulators)]
        emitter.bind(loop.results, ends)
        if self.matmul.tail is not None:
            emitter.bind(self.matmul.tail.results, ends)

    def _fill_stage(self, at: Value, state: list[Value]) -> list[Value]:
        """Copy one of the first steps."""
        held, following = self._start_step(at, state)
        for store in self._stores(held, state[0]):
            store()
        return following

    def _count_steps(self) -> tuple[Value, Value]:
        """Steps, and those of them that have all of their K."""
        f, emitter, work = self.f, self.emitter, self.matmul
        high, step = f.index(emitter.indices[work.loop.high]), work.loop.step
        ends = [self._end_of(operand) for operand in work.operands if is_guarded_along_k(operand)]
        if len(ends) == 2:
            # Behind the end of both operands there are zeros alone.
            high = f.smin(high, f.smax(*ends))
        span = f.smax(f.sub(high, self.low), 0)
        rounded = f.udiv(f.add(span, step - 1), step)
        count = rounded if work.tail is not None or len(ends) == 2 else f.udiv(span, step)
        whole = f.udiv(span, step) if work.tail is not None else count
        return count, whole

    def _end_of(self, operand: Operand) -> Value:
        load = operand.load
        bound = dict(zip(load.guarded, load.bounds, strict=True))[load.axes[operand.k_axis]]
        known = [(name, at) for name, at in zip(load.coords, load.at, strict=True) if name in bound.symbols]
        env = {**self.emitter.env, **{name: self.emitter.indices[at] for name, at in known}}
        return dim_value(self.f, bound, env)

    def _next_stage(self, stage: Value) -> Value:
        """The bytes before the stage that follows one."""
        f, size = self.f, self.plan.stage_bytes
        is_last = f.icmp("eq", stage, number((self.stages - 1) * size))
        return f.select(is_last, number(0), f.op("add", stage, number(size)))

    def _start_step(self, at: Value, state: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Start the copies of a step, if there is one, to a stage.

        Gives what is loaded in registers, then the next stage and where its copies begin.
        """
        f, work = self.f, self.matmul
        stage, sources = f.op("add", state[0], self.shared), iter(state[1:])
        k = f.add(self.low, f.mul(at, work.loop.step))
        pairs = [(copies, next(sources) if copies.strides is not None else None) for copies in self.copies]

        def start(is_last: bool) -> list[Value]:
            held: list[Value] = []
            for copies, source in pairs:
                load = copies.operand.last if is_last else copies.operand.load
                assert load is not None
                if copies.held:
                    held += copies.load(load, k, source)
                else:
                    copies.write(load, k, source, stage)
            return held

        def none() -> list[Value]:
            return [Value("float", "0.0")] * sum(copies.held for copies in self.copies)

        def last() -> list[Value]:
            return f.if_(f.icmp("slt", at, self.count), lambda: start(True), none)

        held = f.if_(f.icmp("slt", at, self.whole), lambda: start(False), none if work.tail is None else last)
        commit_copies(f)
        moved = [copies.advance(source) for copies, source in pairs if source is not None]
        return held, [self._next_stage(state[0]), *moved]

    def _stores(self, held: Sequence[Value], stage: Value) -> list[Callable[[], None]]:
        """What puts the parts that a step has in registers into its stage."""
        first, found = 0, list[Callable[[], None]]()
        for copies in self.copies:
            if copies.held:
                found += copies.stores(held[first : first + copies.held], stage)
                first += copies.held
        return found

    def _find_own(self) -> list[Value]:
        """Where this thread's first row and column are in a stage: addresses."""
        f, layout = self.f, self.emitter.layout(self.matmul.loop.results[0])[0]
        grid, found = self.plan.grid, list[Value]()
        near = (grid.rows, grid.columns)
        for panel, first, own, count in zip(self.panels, self.firsts, self.emitter.at(layout).at, near, strict=True):
            place = f.mul(f.mul(own, count), WORD * panel.steps[0])
            found.append(f.gep(self.base, f.add(place, first), "i8"))
        return found

    def _arrive(self) -> None:
        """Wait until what all threads copied of the next step is in shared memory."""
        wait_copies(self.f, self.stages - 2)
        self.emitter.wait()

    def _starts(self, stage: Value) -> list[Value]:
        """Where this thread's first row and column are in the stage that is so many bytes behind the first."""
        return [self.f.gep(own, self.f.cast("zext", stage, "i64"), "i8") for own in self.own]

    def _multiply(
        self,
        stages: tuple[Value, Value],
        accumulators: list[Value],
        prefetched: list[Value],
        stores: Sequence[Callable[[], None]],
    ) -> list[Value]:
        """A step that is in shared memory: chains of multiply-adds over K, in order.

        Gives the accumulators and what was prefetched of the stage of the next step. What was loaded for another step
        is stored during the second half, when it has arrived.
        """
        f, rows, columns = self.f, self.plan.rows, self.plan.columns
        depth, starts = self.matmul.lhs.depth, self._starts(stages[0])
        together = depth
        while together % (2 * PIECE) == 0 and together * rows * columns > UNROLLED:
            together //= 2

        def move_to(k: Index) -> list[Value]:
            pairs = zip(starts, self.panels, strict=True)
            return [f.gep(start, f.mul(k, WORD * panel.steps[1]), "i8") for start, panel in pairs]

        def step(k: Value, values: list[Value]) -> list[Value]:
            here, count = move_to(k), len(accumulators)
            return self._multiply_some(
                here, together, values[:count], values[count:], lambda: self._read_both(here, together)
            )

        def end() -> list[Value]:
            self._arrive()
            return self._read_both(self._starts(stages[1]), 0)

        if together < depth:
            found = f.loop(0, depth - together, together, step, [*accumulators, *prefetched], is_nonempty=True)
            accumulators, prefetched = found[: len(accumulators)], found[len(accumulators) :]
            starts = move_to(depth - together)
        return self._multiply_some(starts, together, accumulators, prefetched, end, stores)

    def _multiply_some(
        self,
        starts: Sequence[Value],
        depth: int,
        accumulators: list[Value],
        prefetched: list[Value],
        end: Callable[[], list[Value]],
        stores: Sequence[Callable[[], None]] = (),
    ) -> list[Value]:
        """Multiply some K of a step, whose first were read ahead; `end` reads those that follow."""
        f, found = self.f, list(accumulators)
        rows, columns, piece = self.plan.rows, self.plan.columns, self.plan.piece
        stored = depth - piece
        for first in range(0, depth, piece):
            current, is_last = prefetched, first + piece == depth
            # Before what is multiplied now, so that it is there when it is needed.
            prefetched = end() if is_last else self._read_both(starts, first + piece)
            for k in range(piece):
                left, right = current[k * rows :], current[piece * rows + k * columns :]
                for at in range(rows * columns):
                    row, column = divmod(at, columns)
                    found[at] = f.intrinsic("fma", left[row], right[column], found[at])
                if not is_last:
                    done, before = (max(0, 2 * (first + k + more) - stored) for more in (1, 0))
                    for store in stores[before * len(stores) // stored : done * len(stores) // stored]:
                        store()
        return [*found, *prefetched]

    def _read_both(self, starts: Sequence[Value], first: int) -> list[Value]:
        """What this thread multiplies of some K: rows of the left operand for each, then columns of the right one."""
        left = self._read(0, starts[0], first, self.plan.rows, self.plan.down)
        right = self._read(1, starts[1], first, self.plan.columns, self.plan.across)
        return [value for line in (*left, *right) for value in line]

    def _read(self, operand: int, start: Value, first: int, own: int, threads: int) -> list[list[Value]]:
        """What this thread reads of some K of an operand: its rows, or columns, for each of them."""
        panel, piece = self.panels[operand], self.plan.piece
        by_extent, by_k = panel.steps
        if panel.is_by_k:
            lines = [self._load(start, number * threads * by_extent + first, piece) for number in range(own)]
            return [[line[k] for line in lines] for k in range(piece)]
        near = gcd(own, PIECE)
        return [
            [
                value
                for number in range(own // near)
                for value in self._load(start, number * threads * near * by_extent + (first + k) * by_k, near)
            ]
            for k in range(piece)
        ]

    def _load(self, start: Value, elements: int, count: int) -> list[Value]:
        f, address = self.f, self.f.gep(start, WORD * elements, "i8")
        if count == 1:
            return [f.load(address, "float")]
        whole = f.load(address, f"<{count} x float>", align=WORD * count)
        return [f.extract(whole, lane) for lane in range(count)]
