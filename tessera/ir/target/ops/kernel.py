"""Kernels, the programs of a task, loops: what a kernel may ask of the machine is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from tessera.ir.base.block_ops import MEMORY, check_symbols
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX, BufferAttr, VectorAttr
from tessera.ir.base.verify import (
    GRID,
    STEP,
    SYMBOL,
    SYMBOLS,
    WRITES,
    check_arguments,
    check_loop,
    parts_in,
    symbols_in,
)
from tessera.ir.target.limits import (
    FEATURES,
    LINE,
    MAX_ARGUMENTS,
    MAX_REGISTERS,
    MAX_REGISTERS_OF_THREAD,
    MAX_SCRATCH,
    MAX_SIZES,
    MAX_THREAD_REGISTERS,
    MAX_THREADS,
    MOST_ROW_WARPS,
    WARP,
    WIDTHS,
    check_written,
    multiple_of,
    registers_of,
    width_for,
    widths_of,
)
from tessera.types.dim import Dim
from tessera.types.shape import is_at_least, is_at_most

_BODIES: tuple[tuple[str, ...], ...] = ((), ("ttarget.programs",), ("ttarget.gemm",))


_READ: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("ttarget.load", "ttarget.fetch"), (0,)),
    **dict.fromkeys(("ttarget.gemm", "ttarget.block_dot", "ttarget.sort"), (0, 1)),
    "ttarget.tree": (0,),
}
_WRITTEN: Mapping[str, tuple[int, ...]] = {
    "ttarget.store": (1,),
    "ttarget.block_dot": (2, 3),
    "ttarget.sort": (0, 1, 2, 3),
    "ttarget.tree": (0,),
}
"""Operands whose memory ops read and write, whatever else they do."""


def _check_kernel(op: SpecOp) -> None:
    _check_arguments(op)
    _check_machine(op)
    _check_scratch_size(op)
    found = tuple(part.name for part in op.regions[0].block.ops)[:-1]
    if found not in _BODIES:
        op.fail(f"`@{op.value('symbol')}` is programs or one contraction, got {', '.join(found)}")
    _check_registers(op)
    _check_memory(op)


def _check_arguments(op: SpecOp) -> None:
    block, symbols, writes = op.regions[0].block, op.value("symbols"), op.value("writes")
    if len(block.args) > MAX_ARGUMENTS:
        op.fail(f"a kernel takes at most {MAX_ARGUMENTS} buffers, got {len(block.args)}")
    if len(symbols) > MAX_SIZES or len(set(symbols)) != len(symbols):
        op.fail(f"a kernel takes at most {MAX_SIZES} sizes, each of a name of its own, got {list(symbols)[:8]}")
    if op.value("multiples") and (len(op.value("multiples")) != len(symbols) or min(op.value("multiples")) < 1):
        op.fail(f"`multiples` has a number for each of {list(symbols)}, got {list(op.value('multiples'))}")
    check_arguments(op)
    for argument in block.args:
        assert isinstance(argument.type, BufferAttr)
        unknown = argument.type.data.symbols - set(symbols)
        if unknown:
            op.fail(f"argument {argument.index} is {argument.type}, and the kernel is not given {sorted(unknown)}")
    if list(writes) != sorted(set(writes)):
        op.fail(f"`writes` is sorted and names no argument twice, got {list(writes)}")


def _check_machine(op: SpecOp) -> None:
    lanes, features = op.value("lanes"), op.value("features")
    widths = widths_of(lanes)
    if not widths:
        op.fail(f"`lanes` is one of {sorted({width.lanes for width in WIDTHS})}, got {lanes}")
    if width_for(lanes, features) is None:
        needs = " or ".join(width.needs for width in widths)
        op.fail(f"{lanes} lanes need the feature {needs}", f"lower for a machine with {needs}, or with fewer lanes")
    for feature in features:
        if feature not in FEATURES:
            op.fail(f"there is no feature `{feature}`", f"there are {', '.join(sorted(FEATURES))}")
        if FEATURES[feature] and FEATURES[feature] not in features:
            op.fail(f"the feature {feature} comes with {FEATURES[feature]}, which is missing")
    if len(set(features)) != len(features):
        op.fail(f"a feature is named twice in {list(features)}")
    _check_threads(op)


def _check_threads(op: SpecOp) -> None:
    """Programs of several threads are for GPUs: one thread, or whole warps; a thread's neighbours fit one access."""
    threads, vector, align = op.value("threads"), op.value("vector"), op.value("align")
    if (op.value("lanes") == WARP) != bool(threads):
        op.fail(
            f"a program has threads where lanes are those of a warp, got {threads} threads of {op.value('lanes')} lanes"
        )
    if threads not in (0, 1) and (threads % WARP or not WARP <= threads <= MAX_THREADS):
        op.fail(f"a program has one thread, or whole warps of up to {MAX_THREADS} threads, got {threads}")
    warps = op.value("warps_per_row")
    if warps and (threads != WARP or not 1 <= warps <= MOST_ROW_WARPS):
        op.fail(
            f"loops are shared by 1 to {MOST_ROW_WARPS} warps, of programs that have one each, "
            f"got {warps} warps and programs of {threads} threads"
        )
    registers, shared = op.value("max_registers"), op.value("max_shared")
    if (registers or shared) and not threads:
        op.fail("caps of registers and shared memory are for programs of threads, and this one has none")
    if registers and not 16 <= registers <= MAX_REGISTERS_OF_THREAD:
        op.fail(f"`max_registers` is 16 to {MAX_REGISTERS_OF_THREAD} of a thread, got {registers}")
    if shared and shared_bytes(op) > shared:
        op.fail(f"`max_shared` allows {shared} bytes, and its shared scratch alone takes {shared_bytes(op)}")
    if vector not in (1, 2, 4, 8, 16) or align not in (0, 4, 8, 16):
        op.fail(f"`vector` is a power of two up to 16 and `align` up to 16 bytes, got {vector} and {align}")


def shared_bytes(op: SpecOp) -> int:
    """Bytes of shared scratch of a program."""
    types = [part.result.type for part in parts_in(op, "ttarget.scratch") if part.value("space") == "shared"]
    return sum(prod(type.sizes) * type.dtype.bytes for type in types if isinstance(type, BufferAttr))


def _check_scratch_size(op: SpecOp) -> None:
    scratch = op.value("scratch")
    if scratch.value is not None and not 0 <= scratch.value <= MAX_SCRATCH:
        op.fail(f"a thread has at most {MAX_SCRATCH} bytes of scratch, got {scratch}")
    unknown = scratch.symbols - set(op.value("symbols"))
    if unknown:
        op.fail(f"the size of scratch uses {sorted(unknown)}, which the kernel is not given")
    if not is_at_least(scratch, 0):
        op.fail(f"the size of scratch is {scratch}, which may be negative")
    if multiple_of(scratch, {}) % LINE:
        op.fail(f"scratch is whole lines of {LINE} bytes, got {scratch}")


def _check_registers(op: SpecOp) -> None:
    width, threads = width_for(op.value("lanes"), op.value("features")), op.value("threads")
    assert width is not None  # of the check of the machine
    most = MAX_THREAD_REGISTERS if threads else MAX_REGISTERS * width.registers
    for part in op.walk():
        for value in part.results:
            if not isinstance(value.type, VectorAttr):
                continue
            sizes = value.type.sizes
            if any(size <= 0 for size in sizes):
                op.fail(f"a block in registers has sizes of its own, got {value.type}")
            count = -(-prod(sizes) // threads) if threads else registers_of(sizes, width.lanes)
            if count > most:
                whose = f"{count} registers of each of {threads} threads" if threads else f"{count} registers"
                op.fail(f"{value.type} takes {whose}, and code is written for {most} at most")


def _check_memory(op: SpecOp) -> None:
    """Parts of scratch are inside of it, are written before they are read, and what is declared to be written is.

    Of a part without elements nothing is written, and nothing read.
    """
    written: set[SSAValue] = set()
    parts: list[tuple[Dim, Dim]] = []
    for part in parts_in(op, "ttarget.scratch", *_READ, *_WRITTEN):
        if part.name == "ttarget.scratch":
            start, end = _part_of_scratch(part)
            if not is_at_most(end, op.value("scratch")):
                part.fail(f"a part of scratch ends at {end}, and the kernel has {op.value('scratch')} bytes")
            for low, high in parts:
                if not is_at_most(high, start) and not is_at_most(end, low):
                    part.fail(f"parts of scratch at {start}..{end} and {low}..{high} may overlap")
            parts.append((start, end))
        for buffer in _read_buffers(part):
            if isinstance(buffer, OpResult) and buffer not in written and not _is_empty(buffer):
                part.fail(f"`{part.name}` reads scratch that nothing has written yet")
        for index in _WRITTEN.get(part.name, ()):
            check_written(part, part.operands[index])
            written.add(part.operands[index])
    arguments, writes = op.regions[0].block.args, tuple[int, ...](op.value("writes"))
    # Of a tensor without elements there is nothing to write.
    missing = [n for n in writes if arguments[n] not in written and not _is_empty(arguments[n])]
    if missing and len(list(op.regions[0].block.ops)) > 1:
        op.fail(f"`@{op.value('symbol')}` declares that it writes argument {missing[0]}, and nothing does")


def _is_empty(buffer: SSAValue) -> bool:
    assert isinstance(buffer.type, BufferAttr)
    return any(dim.value == 0 for dim in buffer.type.shape)


def _part_of_scratch(op: SpecOp) -> tuple[Dim, Dim]:
    """Where a part of scratch begins and ends: whole lines."""
    type = op.results[0].type
    assert isinstance(type, BufferAttr)
    return op.value("offset"), op.value("offset") + type.data.bytes.ceildiv(LINE) * LINE


def _read_buffers(op: SpecOp) -> list[SSAValue]:
    """The buffers that an op reads."""
    if op.name == "ttarget.store":
        return [] if op.value("mode") == "set" else [op.operands[1]]
    found = [op.operands[index] for index in _READ.get(op.name, ())]
    return [*found, op.operands[2]] if op.name == "ttarget.block_dot" and not op.value("is_fresh") else found


def _check_programs(op: SpecOp) -> None:
    if [argument.type for argument in op.regions[0].block.args] != [INDEX] * len(op.value("grid")):
        op.fail(f"a program takes {len(op.value('grid'))} indices, one per axis of the grid")
    check_symbols(op, "the extent", op.value("grid"), ())


def _check_launch(op: SpecOp) -> None:
    """The call as its own attributes describe the kernel, and as the kernel is, where the module has it."""
    given = [str(value.type) for value in op.operands]
    wanted, arity = list(op.value("types")), op.value("arity")
    kernel = _kernel_named(op, op.value("kernel"))
    if kernel is not None:
        wanted = [str(argument.type) for argument in kernel.regions[0].block.args]
        arity = len(kernel.value("symbols"))
    count = len(op.value("sizes"))
    if wanted != given or arity != count or (list(op.value("types")), op.value("arity")) != (wanted, arity):
        op.fail(
            f"`@{op.value('kernel')}` takes ({', '.join(wanted)}) and {arity} sizes, "
            f"got ({', '.join(given)}) and {count} sizes"
        )


def _kernel_named(op: Operation, name: str) -> SpecOp | None:
    """The kernel of a name in the module around."""
    at: Operation | None = op
    while at is not None and not isinstance(at, ModuleOp):
        at = at.parent_op()
    kernels = (part for part in symbols_in(at) if part.name == "ttarget.kernel") if at else ()
    return next((kernel for kernel in kernels if kernel.value("symbol") == name), None)


def _carrying(name: str, summary: str) -> OpSpec:
    """An op with a body that takes an index and carries blocks."""
    return OpSpec(
        name=name,
        summary=summary,
        operands=("low", "high", "carried*"),
        results=("carried*",),
        attributes=(
            STEP,
            Attribute("is_partial", "bool", False, "whether a last part of a step is an iteration too"),
            Attribute("unroll", "int", 1, "iterations written one after the other; 0 for all of them"),
        ),
        regions=("body",),
        effects=MEMORY,
        verify=check_loop,
    )


SPECS = (
    OpSpec(
        name="ttarget.kernel",
        summary="The code of a task, a run of programs; `scratch` is bytes for a thread, `lanes` f32 of a register.",
        results=(),
        attributes=(
            SYMBOL,
            SYMBOLS,
            WRITES,
            Attribute("lanes", "int", doc="f32 lanes of a vector register"),
            Attribute("features", "strs", doc="what the machine must have"),
            Attribute("scratch", "dim", doc="bytes of scratch for a thread"),
            Attribute("threads", "int", 0, "threads of a program on a GPU"),
            Attribute("vector", "int", 1, "neighbours along the last axis that one of those threads has at most"),
            Attribute("align", "int", 0, "bytes that arguments begin at a multiple of; 0 for an element's"),
            Attribute("warps_per_row", "int", 0, "warps of a GPU that share the loops of a program; 0 for none"),
            Attribute("multiples", "ints", (), "numbers that sizes are multiples of, by `symbols`; none: any sizes"),
            Attribute("max_registers", "int", 0, "registers that a thread of a GPU may have; 0 for any number"),
            Attribute("max_shared", "int", 0, "bytes of shared memory that a block may have; 0 for any number"),
        ),
        regions=("body",),
        form="function",
        verify=_check_kernel,
    ),
    OpSpec(
        name="ttarget.launch",
        summary="A call of a kernel from the host: buffers of the kernel's types, then sizes.",
        operands=("buffers*",),
        results=(),
        attributes=(
            Attribute("kernel", "symbol", doc="the kernel"),
            Attribute("types", "strs", doc="the types of its arguments"),
            Attribute("arity", "int", doc="how many sizes it takes"),
            Attribute("sizes", "dims", doc="the sizes it is given"),
        ),
        effects=MEMORY,
        verify=_check_launch,
    ),
    OpSpec(
        name="ttarget.programs",
        summary="This task's part of the grid, program after program.",
        results=(),
        attributes=(GRID,),
        regions=("body",),
        effects=MEMORY,
        verify=_check_programs,
    ),
    _carrying("ttarget.loop", "Whole steps from `low` while they fit below `high`."),
    _carrying(
        "ttarget.tail",
        "The part of a step that is left below `high`, if any: the body runs once or not at all.",
    ),
)
