"""The host program of a GPU as native code: it launches kernels on a stream, and waits only for values it branches on.

`tessera_entry(inputs, outputs, sizes, workspace, state)` gets pointers of the device. `state` is a table of words that
the runtime fills: the stream, functions of the driver, the cache of TMA descriptors, what begins and ends a range of a
profiler (0 without one), then the handles of the kernels and the addresses of the constants. It returns 0, or the
driver's error with the number of the kernel above it, or -1 where a Python callback raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache

from xdsl.ir import SSAValue

from tessera.backends.nvptx.host_descriptors import BYTES, DescriptorCache
from tessera.backends.nvptx.host_graphs import write_call, write_launch
from tessera.backends.nvptx.row_copies import NAME, PITCH, CopyParameters, pitch_of
from tessera.backends.nvptx.text import (
    NO_BLOCK,
    CallTable,
    DescriptorCode,
    KernelCode,
    RowLaunch,
    many_symbol,
    matrix_symbol,
    plain_symbol,
    row_symbols,
)
from tessera.ir.base.compilation import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.host_program.launch_order import (
    LaunchOrder,
    Step,
    StreamPlan,
    assign_streams,
    launches_in,
    order_of,
)
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.typed_ops import AllocOp, CallOp, ConstantOp, ForOp
from tessera.ir.target.limits import is_multiple
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, HostProgram, ModuleText, buffer_type, callbacks_in
from tessera.runtime.devices.cuda.metrics import MOST_ELEMENTS, TOO_FAR
from tessera.runtime.launch import CALLBACK
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

STATE = ("stream", "launch", "copy", "read", "wait", "fill", "encode", "encode_windows", "maps", "push", "pop")
"""The words of the table before handles and constants."""
OFFLOADING = ("offloaded", "upload")
"""Words behind them of programs that offload values: the pinned memory for those, and what copies from there."""
MOST_BLOCKS = (1 << 31) - 1
"""The largest grid along x (CUDA programming guide, technical specifications)."""
TOO_MANY = 1
"""What the entry says of a grid with more blocks than a launch may have: `CUDA_ERROR_INVALID_VALUE`."""
_LINE = 256
"""The alignment of memory that the driver gives, and of parts of the workspace."""
ONE_STREAM = StreamPlan((), (), False)


@frozen
class HostCode:
    """The text of the entry, and what the runtime fills its table with."""

    text: str
    kernels: tuple[str, ...]
    constants: tuple[bytes, ...]
    scratches: tuple[tuple[str, int, int, str], ...] = field(default=())
    """For each kernel with scratch in global memory: its grid, programs of a block, slots, bytes of one; as strings."""
    maps: int = 0
    """Accesses that need a TMA descriptor, for which the runtime keeps an area."""
    streams: int = 1
    events: int = 0
    """Streams that it uses, that of the call among them, and events between them."""


def host_code(
    program: SpecOp,
    symbols: Sequence[str],
    kernels: Mapping[str, KernelCode],
    target: TargetText,
    plan: StreamPlan = ONE_STREAM,
) -> HostCode:
    """The entry of a program whose sizes are `symbols`, in that order; on one stream unless a plan has more."""
    module = ModuleText(target)
    names = ("inputs", "outputs", "sizes", "workspace", "state")
    f = module.function("tessera_entry", [("ptr", name) for name in names], ret="i64")
    entry = _Entry(f, program, symbols, kernels, plan)
    entry.run()
    f.ret(f.const_i(0))
    write_launch(module)
    write_call(module, len(program.regions[0].block.args), len(_results_of(program)))
    scratches = tuple(dict.fromkeys(entry.scratches))
    if plan.streams > 1:
        write_nothing(module)
    shape = (plan.streams, len(plan.events))
    return HostCode(
        module.text(), tuple(entry.names), tuple(entry.constants), scratches, entry.descriptors.accesses, *shape
    )


def _results_of(program: SpecOp) -> Sequence[SSAValue]:
    last = program.regions[0].block.last_op
    assert last is not None
    return last.operands


def unaligned_kernels(program: SpecOp) -> frozenset[str]:
    """Kernels that are given rows of a tensor that begin anywhere: iterations of a host loop go from row to row."""
    found: set[str] = set()
    for loop in program.walk():
        if not isinstance(loop, ForOp):
            continue
        types = [buffer_type(value) for value in loop.operands if isinstance(value.type, BufferAttr)]
        rows = [Dim.of(type.dtype.bytes) * product(type.shape[1:]) for type in types if type.rank]
        if all(is_multiple(row, 16) for row in rows):
            continue
        found.update(op.kernel for op in loop.walk() if isinstance(op, CallOp))
    return frozenset(found)


def _write_start(f: FunctionText) -> None:
    """Launch one kernel of the table, in a range of a profiler where there is one; the driver's error."""
    state, kernel, blocks, threads, shared, stream, parameters, name = f.arguments
    launch, push, pop = (f.load(f.gep(state, STATE.index(word), "ptr"), "ptr") for word in ("launch", "push", "pop"))
    handle = f.load(f.gep(state, f.add(f.cast("zext", kernel, "i64"), len(STATE)), "ptr"), "ptr")
    has_profiler = f.icmp("ne", push, Value("ptr", "null"))
    f.if_(has_profiler, lambda: f.raw("i32", f"call i32 {push.text}({name})") and None)
    one = Value("i32", "1")
    arguments = [handle, blocks, one, one, threads, one, one, shared, stream, parameters, Value("ptr", "null")]
    code = f.raw("i32", f"call i32 {launch.text}({', '.join(map(str, arguments))})")
    f.if_(has_profiler, lambda: f.raw("i32", f"call i32 {pop.text}()") and None)
    f.ret(code)


class _Entry(HostProgram):
    """The entry, written; its pointers are of the device."""

    def __init__(
        self,
        f: FunctionText,
        program: SpecOp,
        symbols: Sequence[str],
        kernels: Mapping[str, KernelCode],
        streams: StreamPlan,
    ) -> None:
        super().__init__(f, program, symbols)
        self.kernels, self.state = kernels, f.arguments[4]
        self.words = {name: self.word(at) for at, name in enumerate(STATE)}
        calls = [op for op in program.walk() if isinstance(op, CallOp)]
        forms = [[one, matrix_symbol(one), *row_symbols(one), many_symbol(one)] for one in (op.kernel for op in calls)]
        variants = [name for form in forms for name in form]
        self.names = [name for name in dict.fromkeys([*variants, NAME]) if name in kernels]
        self.constants: list[bytes] = []
        self.scratches: list[tuple[str, int, int, str]] = []
        longest = 2 + max((len(op.operands) + len(op.sizes) for op in calls), default=0)
        most = max((len(code.maps) for code in kernels.values()), default=0)
        # A kernel with fewer descriptors gets its parameters from further on.
        self.maps, self.most = f.alloca("i8", BYTES * max(1, most)), most
        self.slots, self.parameters = f.alloca("i64", longest), f.alloca("ptr", longest + most)
        for at in range(longest):
            f.store(f.gep(self.slots, at, "i64"), f.gep(self.parameters, most + at, "ptr"), align=8)
        self.descriptors = DescriptorCache(f, self.words["maps"], self.words["encode"], self.words["encode_windows"])
        self.cell = f.alloca("i64")
        self.copied = CopyParameters(f) if NAME in kernels else None
        self.callbacks = callbacks_in(program)
        counts = (sum(1 + buffer_type(value).rank for value in op.operands) for op in self.callbacks)
        self.callback_slots = f.alloca("i64", max((1, *counts)))
        self.own = self.dim((program.value("workspace") or Dim.constant(0)).ceildiv(_LINE) * _LINE)
        first = len(STATE) + len(self.names) + sum(isinstance(op, ConstantOp) for op in program.walk())
        if program.value("offloaded") is not None:
            self.words |= {name: self.word(first + at) for at, name in enumerate(OFFLOADING)}
            first += len(OFFLOADING)
        self.extra_streams = ExtraStreams(self, streams, first)

    def word(self, at: int) -> Value:
        return self.f.load(self.f.gep(self.state, at, "ptr"), "ptr")

    def run(self) -> None:
        self.extra_streams.run(super().run)

    def _op(self, op: SpecOp) -> None:
        self.extra_streams.put(op, super()._op)

    def call_back(self, op: SpecOp) -> None:
        """Give Python the buffers and their dims; it synchronizes the stream, and what it raised ends the program."""
        f = self.f
        dims = [dim for value in op.operands for dim in buffer_type(value).shape]
        for at, slot in enumerate([*(self.pointers[value] for value in op.operands), *map(self.dim, dims)]):
            f.store(slot, f.gep(self.callback_slots, at, "i64"), align=8)
        failed = f.call(CALLBACK, [f.const_i(self.callbacks.index(op)), self.callback_slots], "i64")
        f.if_(f.icmp("ne", failed, 0), lambda: f.ret(failed))

    def driver(self, word: str, args: Sequence[Value], kernel: int = -1) -> None:
        """Call a function of the driver and return its error, if it has one."""
        self._return_error(self._call_driver(word, args), kernel)

    def _call_driver(self, word: str, args: Sequence[Value]) -> Value:
        return self.f.raw("i32", f"call i32 {self.words[word].text}({', '.join(map(str, args))})")

    def _return_error(self, code: Value, kernel: int) -> None:
        f, tail = self.f, (kernel + 1) << 32
        f.if_(
            f.icmp("ne", code, Value("i32", "0")),
            lambda: f.ret(f.op("or", f.cast("zext", code, "i64"), f.const_i(tail))),
        )

    def constant(self, op: SpecOp) -> None:
        self.pointers[op.result] = self.word(len(STATE) + len(self.names) + len(self.constants))
        self.constants.append(op.value("value").tobytes())

    def copy(self, op: SpecOp) -> None:
        source, target = (self.pointers[value] for value in op.operands)
        size = self.dim(buffer_type(op.operands[0]).bytes)
        is_host = [isinstance(value.owner, AllocOp) and bool(value.owner.space) for value in op.operands]
        word = "upload" if is_host[0] else "read" if is_host[1] else "copy"
        self.f.if_(self.f.icmp("sgt", size, 0), lambda: self.driver(word, [target, source, size, self.words["stream"]]))

    def host_memory(self) -> Value:
        return self.words["offloaded"]

    def call(self, op: SpecOp) -> None:
        """One launch, or part of one: what is launched together is written where the last of it is."""
        parts = [part for part in launch_of(op) if isinstance(part, CallOp)]
        if op is not parts[-1]:
            return
        code = self.kernels.get(many_symbol(parts[0].kernel)) if len(parts) > 1 else None
        if code is None or code.table is None:
            for part in parts:
                self._call_one(part)
            return
        for start in range(0, len(parts), code.table.rows):
            self._launch_many(parts[start : start + code.table.rows], code, code.table)

    def _call_one(self, op: CallOp) -> None:
        """One launch: on tensor cores where there is such a kernel, and no operand of its dots is empty."""
        plain, matrix = (self.kernels.get(name) for name in (op.kernel, matrix_symbol(op.kernel)))
        if matrix is None:
            assert plain is not None
            self._launch_rows(
                op, plain, [self.kernels[name] for name in row_symbols(op.kernel) if name in self.kernels]
            )
            return
        sizes = dict(zip(matrix.symbols, op.sizes, strict=True))
        fits, number = Value("i1", "true"), self.names.index(matrix.name)
        for dim in dict.fromkeys(dim.substitute(sizes) for map_ in matrix.maps for dim in map_.dims):
            if dim.value is None or dim.value < 1:
                fits = self.f.op("and", fits, self.f.icmp("sgt", self.dim(dim), 0))
            if dim.value is None:
                is_far = self.f.icmp("sgt", self.dim(dim), MOST_ELEMENTS)
                self.f.if_(is_far, lambda: self.f.ret(self.f.const_i(TOO_FAR | (number + 1) << 32)))
        other = None if plain is None else lambda: self._launch(op, plain)
        self.f.if_(fits, lambda: self._launch(op, matrix), other)

    def _launch_rows(self, op: CallOp, plain: KernelCode, shared: Sequence[KernelCode]) -> None:
        """One launch: of the first kernel whose warps share rows of such a width, or of the one for any."""
        if not shared or shared[0].widths is None:
            self._launch(op, plain)
            return
        (code, *others), widths, f = shared, shared[0].widths, self.f
        width = self.dim(widths.width.substitute(dict(zip(code.symbols, op.sizes, strict=True))))
        fits = f.op("and", f.icmp("sge", width, widths.least), f.icmp("sle", width, widths.most))
        if widths.multiple > 1:
            fits = f.op("and", fits, f.icmp("eq", f.urem(width, widths.multiple), 0))
        f.if_(fits, lambda: self._launch(op, code), lambda: self._launch_rows(op, plain, others))

    def _launch(self, op: CallOp, code: KernelCode) -> None:
        """One launch, unless the grid is empty."""
        f, number = self.f, self.names.index(code.name)
        sizes = dict(zip(code.symbols, op.sizes, strict=True))
        total = self.dim(code.grid.substitute(sizes))
        launch = code.rows or RowLaunch(Dim.constant(code.threads), Dim.constant(code.programs))
        blocks = f.ceil_div(total, self.dim(launch.rows.substitute(sizes)))
        threads = f.cast("trunc", self.dim(launch.threads.substitute(sizes)), "i32")
        scratch = f.gep(self.workspace, self.own, "i8")
        if code.resident:
            blocks = f.smin(blocks, code.resident)
        if code.slots:
            blocks = f.smin(blocks, code.slots // code.programs)
            texts = str(code.grid.substitute(sizes)), str(code.scratch.substitute(sizes))
            self.scratches.append((texts[0], code.programs, code.slots, texts[1]))
        slots = [self.pointers[value] for value in op.operands] + [self.dim(size) for size in op.sizes]

        def run() -> None:
            f.if_(f.icmp("sgt", blocks, MOST_BLOCKS), lambda: f.ret(f.const_i(TOO_MANY | (number + 1) << 32)))
            tokens = [self._token()] if code.counts else []
            for at, slot in enumerate([*slots, scratch, *tokens]):
                f.store(slot, f.gep(self.slots, at, "i64"), align=8)
            used = Dim.constant(_LINE if code.counts else 0)
            if code.counts:
                self.scratches.append(("1", 1, 1, str(_LINE)))
            for at, map_ in enumerate(code.maps):
                target = f.gep(self.maps, BYTES * at, "i8")
                used = self._describe(map_, target, slots[map_.argument], sizes, number, used)
                first = self.most - len(code.maps) + at
                f.store(f.gep(self.maps, BYTES * at, "i8"), f.gep(self.parameters, first, "ptr"), align=8)
            parameters = f.gep(self.parameters, self.most - len(code.maps), "ptr")
            self._start(code, f.cast("trunc", blocks, "i32"), parameters, threads)

        f.if_(f.icmp("sgt", total, 0), run)

    def _launch_many(self, calls: Sequence[CallOp], code: KernelCode, table: CallTable) -> None:
        """One launch for several calls of one kernel, whose blocks follow each other, unless all grids are empty."""
        f, number = self.f, self.names.index(code.name)
        words, total = f.alloca("i64", table.words, align=8), f.const_i(0)
        for row in range(table.firsts):
            f.store(total if row < len(calls) else f.const_i(NO_BLOCK), f.gep(words, row, "i64"), align=8)
            if row < len(calls):
                call = calls[row]
                sizes = dict(zip(code.symbols, call.sizes, strict=True))
                total = f.add(total, f.ceil_div(self.dim(code.grid.substitute(sizes)), code.programs))
                slots = [self.pointers[value] for value in call.operands] + [self.dim(size) for size in call.sizes]
                for at, slot in enumerate(slots):
                    f.store(slot, f.gep(words, table.firsts + row * table.width + at, "i64"), align=8)
        parameters, scratch = f.alloca("ptr", 2), f.alloca("i64")

        def run() -> None:
            f.if_(f.icmp("sgt", total, MOST_BLOCKS), lambda: f.ret(f.const_i(TOO_MANY | (number + 1) << 32)))
            f.store(f.gep(self.workspace, self.own, "i8"), scratch, align=8)
            for at, pointer in enumerate((words, scratch)):
                f.store(pointer, f.gep(parameters, at, "ptr"), align=8)
            self._start(code, f.cast("trunc", total, "i32"), parameters)

        f.if_(f.icmp("sgt", total, 0), run)

    def _start(self, code: KernelCode, blocks: Value, parameters: Value, threads: Value | None = None) -> None:
        """Launch a kernel, and return the driver's error, if it has one; `threads` of a block where they vary."""
        f, number = self.f, self.names.index(code.name)
        types = ("ptr", "i32", "i32", "i32", "i32", "ptr", "ptr", "ptr")
        names = ("state", "kernel", "blocks", "threads", "shared", "stream", "parameters", "name")
        function = f.module.outline("start", "start", list(zip(types, names, strict=True)), _write_start, ret="i32")
        kernel, most, shared = (Value("i32", str(word)) for word in (number, code.threads, code.shared))
        name = f.module.constant("i8", [*code.name.encode(), 0], align=1)
        given = [self.state, kernel, blocks, threads or most, shared, self.words["stream"], parameters, name]
        self._return_error(f.raw("i32", f"call i32 @{function}({', '.join(map(str, given))})"), number)

    def _token(self) -> Value:
        """A number that no launch had before, and not 0: by it a kernel knows what its own CTAs wrote to scratch."""
        f = self.f
        f.module.declare("llvm.readcyclecounter", "i64", [])
        return f.op("or", f.raw("i64", "call i64 @llvm.readcyclecounter()"), f.const_i(1))

    def _describe(
        self, map_: DescriptorCode, target: Value, buffer: Value, sizes: Mapping[str, Dim], kernel: int, used: Dim
    ) -> Dim:
        """A TMA descriptor, whose rows begin at multiples of 16 bytes; `used` bytes of scratch are taken already.

        An input with other rows is copied to rows that do; a kernel does not use the descriptor of an output that has
        others. What is given back is the bytes of scratch that are taken then.
        """
        f = self.f
        if map_.by_threads:
            return used
        extents = [dim.substitute(sizes) for dim in map_.dims]
        row, rows = extents[0] * map_.bytes, product(extents[1:])
        if is_multiple(row, 16):
            self._encode(map_, target, buffer, extents, self.dim(row), kernel)
            return used
        width = self.dim(row)
        is_whole = f.icmp("eq", f.urem(width, 16), 0)
        if map_.is_output:
            f.if_(is_whole, lambda: self._encode(map_, target, buffer, extents, width, kernel))
            return used
        # What is copied anyway begins with whole lines: those within them are read in two parts.
        pitch, height = f.select(is_whole, width, pitch_of(f, width)), self.dim(rows)
        copied = f.gep(f.gep(self.workspace, self.own, "i8"), self.dim(used), "i8")
        f.if_(is_whole, lambda: None, lambda: self._copy_rows(copied, pitch, buffer, width, height))
        self._encode(map_, target, f.select(is_whole, buffer, copied), extents, pitch, kernel)
        used = used + (rows * (row.ceildiv(PITCH) * PITCH)).ceildiv(_LINE) * _LINE
        self.scratches.append(("1", 1, 1, str(used)))
        return used

    def _copy_rows(self, target: Value, pitch: Value, source: Value, width: Value, height: Value) -> None:
        """Contiguous rows to rows so many bytes apart (`row_copies`)."""
        f, number, copied = self.f, self.names.index(NAME), self.copied
        assert copied is not None, "programs with such rows have the kernel"
        blocks = copied.put(source, target, [width, pitch, height])
        f.if_(f.icmp("sgt", blocks, MOST_BLOCKS), lambda: f.ret(f.const_i(TOO_MANY | (number + 1) << 32)))
        self._start(self.kernels[NAME], f.cast("trunc", blocks, "i32"), copied.table)

    def _encode(
        self, map_: DescriptorCode, target: Value, buffer: Value, extents: Sequence[Dim], pitch: Value, kernel: int
    ) -> None:
        """Put a descriptor at its target: the one that was made for this buffer before, or a new one."""
        sizes = [self.dim(dim) for dim in extents]
        self._return_error(self.descriptors.get(map_, buffer, sizes, pitch, target), kernel)

    def next_round(self) -> None:
        """Nothing: iterations are on the stream one after the other."""

    def read(self, buffer: SSAValue, type_: str) -> Value:
        """The one element of a buffer, once the stream has come to it."""
        f, cell = self.f, self.cell  # of this call: another thread may be in the same program
        size = f.const_i(max(1, int(type_[1:]) // 8))
        self.driver("read", [cell, self.pointers[buffer], size, self.words["stream"]])
        self.driver("wait", [self.words["stream"]])
        return f.load(cell, type_)

    def write(self, number: Value, buffer: SSAValue) -> None:
        """An integer into a buffer of the device, in order with the stream: 32 bits at a time."""
        f, bits = self.f, buffer_type(buffer).dtype.bits
        assert bits in (32, 64), "an index has 32 or 64 bits"
        for part in range(bits // 32):
            word = f.cast("trunc", f.op("lshr", number, f.const_i(32 * part)), "i32")
            address = f.gep(self.pointers[buffer], part, "i32")
            self.driver("fill", [address, word, f.const_i(1), self.words["stream"]])


# Launches on several CUDA streams: what each waits for, and the events that it records.
#
# Last words of the table: the driver's functions to record an event and to wait, the other streams, the events. Where
# the runtime wants all on one stream, it gives that for the others, and `tessera_nothing` as functions.

MANY = 2
"""Launches from which on a program may have some that run beside each other."""
STREAMS = (1, 2, 4, 8)
"""How many streams a program may use."""
SEVERAL = 4
"""How many it uses by itself where at least as many launches are independent and small.

Replayed, eight matmuls of a few blocks each took an H200 16 us on four streams and 29 us on one, eight that fill it 187
us and 191 us; three independent ones in a longer chain gained nothing (`benchmarks/results/gpu-streams.json`).
"""


def write_nothing(module: ModuleText) -> None:
    """A function that can be called in place of the driver's, and always succeeds."""
    f = module.function("tessera_nothing", [("ptr", "one"), ("ptr", "other"), ("i32", "flags")], ret="i32")
    f.ret(Value("i32", "0"))


class ExtraStreams:
    """The streams of an entry beside that of the call; with a plan of one stream nothing is written."""

    def __init__(self, entry: _Entry, plan: StreamPlan, first: int) -> None:
        self._entry, self._plan = entry, plan
        self._steps: dict[SpecOp, Step] = {}
        self._streams = [entry.words["stream"]]
        if plan.streams == 1:
            return
        ops = launches_in(entry.program.regions[0].block)
        self._steps = dict(zip(ops, plan.steps, strict=True))
        entry.words["signal"], entry.words["await"] = entry.word(first), entry.word(first + 1)
        self._streams += [entry.word(first + 1 + at) for at in range(1, plan.streams)]
        start = first + 1 + plan.streams
        self._events = {number: entry.word(start + at) for at, number in enumerate(plan.events)}

    def run(self, write: Callable[[], None]) -> None:
        """Write a program, whose other streams begin after what is in its own, which goes on after all of them."""
        if self._plan.begins:
            self._record(-1, self._streams[0])
        write()
        self._wait(self._plan.joins, self._streams[0])

    def put(self, op: SpecOp, write: Callable[[SpecOp], None]) -> None:
        """Write an op on its stream."""
        step = self._steps.get(op)
        if step is None:
            write(op)
            return
        words, stream = self._entry.words, self._streams[step.stream]
        self._wait(step.waits, stream)
        words["stream"] = stream
        write(op)
        words["stream"] = self._streams[0]
        if step.signals:
            self._record(step.node.number, stream)

    def _record(self, number: int, stream: Value) -> None:
        self._entry.driver("signal", [self._events[number], stream])

    def _wait(self, numbers: Sequence[int], stream: Value) -> None:
        for number in numbers:
            self._entry.driver("await", [stream, self._events[number], Value("i32", "0")])


def plan_streams(
    program: SpecOp, kernels: Sequence[SpecOp], codes: Sequence[KernelCode], chooser: Chooser, machine: Machine
) -> StreamPlan:
    """The streams of a program, as many as the chooser says and can be used."""
    if len(launches_in(program.regions[0].block)) < MANY:
        return ONE_STREAM

    @cache
    def order() -> LaunchOrder:
        named = {kernel.value("symbol"): kernel for kernel in kernels}
        return order_of(program, named, {plain_symbol(code.name) for code in codes if code.uses_scratch})

    candidates = preferred_streams(program, codes, machine, order)
    count = chooser.choose("launch.streams@gpu", candidates, {"program": program}).value
    is_one = count == 1 and program.value("offloaded") is None
    return ONE_STREAM if is_one else assign_checked_streams(order(), count)


def assign_checked_streams(order: LaunchOrder, count: int) -> StreamPlan:
    """A plan for at most so many streams, in which every launch waits for what it needs."""
    found = assign_streams(order, count)
    if found.streams == 1:
        return ONE_STREAM
    found.check(order)
    return found


def preferred_streams(
    program: SpecOp, codes: Sequence[KernelCode], machine: Machine, order: Callable[[], LaunchOrder]
) -> tuple[int, ...]:
    """How many streams a program may use, the best number first: several for launches that leave most of a GPU idle."""
    named = {code.name: code for code in codes}
    launches = launches_in(program.regions[0].block)
    small = {number for number, op in enumerate(launches) if _is_small(op, named, machine)}
    if len(small) < SEVERAL:
        return STREAMS
    depths = order().launches().depths()
    most = max(Counter(depths[number] for number in small).values())
    return (SEVERAL, *(n for n in STREAMS if n != SEVERAL)) if most >= SEVERAL else STREAMS


def _is_small(op: SpecOp, codes: Mapping[str, KernelCode], machine: Machine) -> bool:
    """Whether a launch is known to have blocks for half of the multiprocessors at most."""
    if not isinstance(op, CallOp):
        return False
    code = codes.get(matrix_symbol(op.kernel)) or codes.get(op.kernel)
    if code is None:
        return False
    total = code.grid.substitute(dict(zip(code.symbols, op.sizes, strict=True))).value
    return total is not None and -(-total // code.programs) <= machine.blocks // 2
