"""What kernels for all tensor cores have in common in Target IR: attributes, features, shared memory, set-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.tensor_cores import ALIGNMENT, SHARED_BYTES, SPAN, SPANS, TMEM_ALLOCATION
from tessera.backends.nvptx.text import DescriptorCode, DeviceModule, KernelCode
from tessera.backends.nvptx.types import CursorAttr, RingAttr, shaped_type
from tessera.ir.base.index_maps import strides
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec, Verify
from tessera.ir.base.verify import KERNEL, around, check_arguments, check_grid
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

# The frame of kernels for tensor cores as LLVM text: arguments, shared memory, and what a launch must know.

_MAP_TYPE = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'
"""A TMA descriptor as a kernel takes it: by value, never copied."""


def frame_kernel(
    kernel: SpecOp,
    machine: Machine,
    threads: int,
    write: Callable[[FunctionText, Value], None],
    *,
    blocks: int = 1,
    cluster: int = 1,
    tokens: int = 0,
    variables: str = "",
) -> KernelCode:
    """The module of a kernel whose body `write` writes, given where shared memory begins.

    Its TMA descriptors are in the order of the kernel; `tokens` are sizes that a launch passes beside them.
    """
    module = DeviceModule(machine)
    block = kernel.regions[0].block
    maps = [op for op in block.ops if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]
    arguments = [(_MAP_TYPE, f"map{at}") for at in range(len(maps))]
    arguments += [("ptr", f"buffer{at}") for at in range(len(block.args))]
    arguments += [("i64", f"size{at}") for at in range(len(kernel.value("symbols")))]
    arguments += [("ptr", "scratch"), *[("i64", "token")] * tokens]
    f = module.kernel(kernel.value("symbol"), arguments, threads, blocks=blocks, cluster=cluster)
    base = module.shared_address(f)
    module.variables = variables
    write(f, base)
    f.ret()
    return KernelCode(
        kernel.value("symbol"),
        module.text(),
        product(kernel.value("grid")),
        tuple(kernel.value("symbols")),
        threads,
        1,
        kernel.value("shared"),
        Dim.constant(0),
        0,
        tuple(_map_code(op, kernel.value("writes")) for op in maps),
    )


def _map_code(op: SpecOp, writes: Sequence[int]) -> DescriptorCode:
    """A TMA descriptor of a whole contiguous argument."""
    buffer = op.operands[0]
    assert isinstance(buffer, BlockArgument)
    type = shaped_type(buffer)
    distances = [stride * type.dtype.bytes for stride in strides(type.shape)[:-1]]
    return DescriptorCode(
        buffer.index,
        op.value("rounds") or type.dtype.name,
        type.shape[::-1],
        tuple(distances[::-1]),
        tuple(op.value("box")[::-1]),
        op.value("swizzle"),
        bytes=type.dtype.bytes,
        is_output=buffer.index in writes,
        by_threads=op.value("by_threads"),
        cut=len(type.shape) - 1 - op.value("cut") if op.value("cut") >= 0 else -1,
        low=tuple(op.value("low")[::-1]),
        high=tuple(op.value("high")[::-1]),
        steps=tuple(op.value("strides")[::-1]),
    )


# What kernels of all tensor cores have in common: attributes, features, shared memory, set-up and what follows it.

SHARED = Attribute("shared", "int", 0, "bytes of shared memory; as many as its parts take where it is not said")
MAJORS = (
    Attribute("lhs_major", "str", "k", "which dim of the A operand is contiguous in memory: k or mn"),
    Attribute("rhs_major", "str", "k", "which dim of the B operand is contiguous in memory: k or mn"),
)
SWIZZLE = Attribute("swizzle", "int", SPAN, "bytes of lines whose pieces of 16 bytes are swizzled by line")
KERNELS = ("ttarget.warp_kernel", "ttarget.matrix_kernel", "ttarget.tensor_kernel")
STORES = ("ttarget.store_tile", "ttarget.store_rows")
"""Stores that go through shared memory."""
SETUP = ("ttarget.tensor_map", "ttarget.shared_tile", "ttarget.ring")
"""What a kernel with roles has before them."""


def effect_op(
    name: str,
    summary: str,
    operands: tuple[str, ...] = (),
    attributes: tuple[Attribute, ...] = (),
    verify: Verify | None = None,
    *,
    results: tuple[str, ...] = (),
    regions: tuple[str, ...] = (),
) -> OpSpec:
    """An op of Target IR that reads or writes memory, or waits for those who do."""
    return OpSpec(
        name=f"ttarget.{name}",
        summary=summary,
        operands=operands,
        results=results,
        attributes=attributes,
        regions=regions,
        effects=frozenset(["memory"]),
        verify=verify,
    )


def kernel_op(name: str, summary: str, attributes: tuple[Attribute, ...], verify: Verify) -> OpSpec:
    """A kernel for tensor cores."""
    features = Attribute("features", "strs", doc="what it needs of the machine")
    return OpSpec(
        name=f"ttarget.{name}",
        summary=summary,
        results=(),
        attributes=(*KERNEL, features, *attributes),
        regions=("body",),
        form="function",
        verify=verify,
    )


def check_kernel(
    op: SpecOp,
    what: str,
    features: Sequence[str],
    fix: str,
    *,
    setup: Sequence[str] = SETUP,
    body: tuple[str, str] = ("ttarget.roles", "roles"),
    foreign: Sequence[str] = (),
    reason: str = "",
) -> None:
    """Fails where a kernel breaks what holds for all of some tensor cores.

    They need `features`, set up their memory with the ops of `setup`, and then do one thing, `body`. No op is `foreign`
    to them for a `reason`.
    """
    check_arguments(op)
    check_grid(op)
    missing = [feature for feature in features if feature not in op.value("features")]
    if missing:
        op.fail(f"{what} needs {', '.join(features)}, and the target lacks {', '.join(missing)}", fix)
    if not 0 <= op.value("shared") <= SHARED_BYTES:
        op.fail(f"a CTA has at most {SHARED_BYTES} bytes of shared memory, got {op.value('shared')}")
    names = [part.name for part in op.regions[0].block.ops]
    if names[-2:] != [body[0], "ttarget.return"] or any(name not in setup for name in names[:-2]):
        op.fail(f"`@{op.value('symbol')}` is memory, then {body[1]}, got {', '.join(names)}")
    for part in op.walk():
        if part.name in foreign:
            op.fail(f"`{part.name}` {reason}")
    check_parts(op)
    _check_results(op)


def _check_results(op: SpecOp) -> None:
    """What a kernel is declared to write is written."""
    writers = [part for part in op.walk() if part.name in ("ttarget.fragment_store", *STORES)]
    for index in op.value("writes"):
        if not any(op.regions[0].block.args[index] in part.operands for part in writers):
            op.fail(f"`@{op.value('symbol')}` declares that it writes argument {index}, and nothing does")


def is_argument(op: SpecOp, buffer: SSAValue) -> bool:
    """Whether a buffer is an argument of the kernel around an op; outside of any, there is nothing else to be."""
    kernel = around(op, *KERNELS)
    return kernel is None or buffer.owner is kernel.regions[0].block


def check_swizzle(op: SpecOp) -> None:
    """Fails for lines that nothing swizzles."""
    if op.value("swizzle") not in SPANS:
        op.fail(f"`swizzle` is of lines of {', '.join(map(str, SPANS))} bytes, got {op.value('swizzle')}")


def check_widest(op: SpecOp) -> None:
    """Fails for a kernel with tiles in other lines than the widest, where nothing reads those."""
    for part in op.walk():
        if isinstance(part, SpecOp) and "swizzle" in part.kinds and part.value("swizzle") != SPAN:
            part.fail(f"only warpgroups read lines of {part.value('swizzle')} bytes, and others those of {SPAN}")


def check_stage(op: SpecOp, first: int = 0) -> None:
    """Ops on a stage of a ring take the ring and a cursor in it."""
    ring, cursor = (value.type for value in op.operands[first : first + 2])
    if not isinstance(ring, RingAttr) or not isinstance(cursor, CursorAttr):
        op.fail(f"`{op.name}` takes a ring and a cursor in it, got {ring} and {cursor}")


def swizzle_of(tile: SSAValue) -> int:
    """Bytes of the lines of a shared tile."""
    made = tile.owner
    return made.value("swizzle") if isinstance(made, SpecOp) and made.name == "ttarget.shared_tile" else SPAN


def roles_of(op: SpecOp) -> tuple[Block, Block]:
    """What the producer does, and what the consumers do."""
    (roles,) = [part for part in op.regions[0].block.ops if part.name == "ttarget.roles"]
    producer, consumer = roles.regions
    return producer.block, consumer.block


# Shared memory of matrix kernels in parts: what each takes, its alignment, and whether it has an offset.

UNPLACED = -2
"""What an offset is until `nvptx-place-shared` has chosen one."""
MAILBOX = 40
"""Bytes of a mailbox: two slots of four bytes, each with a full and an empty barrier."""
BARRIER = 8
"""Bytes of a barrier, and where it may begin."""
OFFSET = Attribute("offset", "int", UNPLACED, "bytes from the start of shared memory; chosen where it is not said")


@frozen
class Part:
    """Some bytes of shared memory: the ops that say where they begin, by an attribute of this name."""

    ops: tuple[SpecOp, ...]
    attribute: str
    size: int
    alignment: int

    @property
    def what(self) -> str:
        return self.ops[0].name

    @property
    def start(self) -> int:
        return self.ops[0].value(self.attribute)

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def is_placed(self) -> bool:
        return self.start != UNPLACED


def parts_of(kernel: SpecOp) -> list[Part]:
    """The parts of a kernel's shared memory, in the order of its text; both roles have one mailbox."""
    found: list[Part] = []
    walks: list[SpecOp] = []
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttarget.tiles" and op.value("mailbox") != -1:
            walks.append(op)
        elif (size := _bytes_of(op)) is not None and isinstance(op, SpecOp):
            alignment = ALIGNMENT if op.name == "ttarget.shared_tile" else BARRIER
            found.append(Part((op,), "offset", size, alignment))
    if walks:
        found.append(Part(tuple(walks), "mailbox", MAILBOX, BARRIER))
    return found


def _bytes_of(op: Operation) -> int | None:
    """Shared bytes that an op takes for itself."""
    if not isinstance(op, SpecOp):
        return None
    if op.name == "ttarget.shared_tile":
        return (shaped_type(op.result).data.bytes.value or 0) * op.value("stages")
    if op.name == "ttarget.tensor_alloc":
        return TMEM_ALLOCATION
    return 2 * BARRIER * op.value("stages") if op.name == "ttarget.ring" else None


def check_parts(op: SpecOp) -> None:
    """Fails where tiles and barriers that have offsets overlap, or are not within shared memory."""
    placed: list[Part] = []
    parts, fix = parts_of(op), "leave offsets out, and they are chosen"
    # A kernel has as many bytes as it takes, as long as some parts are still to be placed and it does not say so.
    is_open = not op.value("shared") and not all(part.is_placed for part in parts)
    for part in (part for part in parts if part.is_placed):
        where = f"{part.start}..{part.end}"
        if part.start < 0 or (part.end > op.value("shared") and not is_open):
            op.fail(f"`{part.what}` is at {where}, and the kernel has {op.value('shared')} shared bytes", fix)
        for other in placed:
            if part.start < other.end and other.start < part.end:
                op.fail(f"`{part.what}` at {where} and `{other.what}` at {other.start}..{other.end} overlap", fix)
        placed.append(part)


def check_laid_out(kernel: SpecOp) -> None:
    """Fails for a kernel that cannot be written as it is: memory without an offset, or a descriptor made in a role."""
    for part in parts_of(kernel):
        if not part.is_placed:
            part.ops[0].fail(f"`{part.what}` has no offset in shared memory", "run `nvptx-place-shared` first")
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map" and op.parent_op() is not kernel:
            op.fail("a descriptor is made before everything, by the host", "run `nvptx-hoist-descriptors` first")


def check_offset(op: SpecOp, what: str, alignment: int, name: str = "offset") -> None:
    """Fails for an offset that is not a multiple of an alignment."""
    offset = op.value(name)
    if offset != UNPLACED and offset % alignment:
        op.fail(f"{what} begins at a multiple of {alignment} bytes, got {offset}")
