"""Shared memory of matrix kernels in parts: what each takes, where it has to begin, and whether it has its place."""

from __future__ import annotations

from xdsl.ir import Operation

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import ShapedAttr
from tessera.ir.target.blackwell_limits import ALLOCATION
from tessera.ir.target.hopper_limits import ALIGNMENT
from tessera.types.frozen import frozen

UNPLACED = -2
"""What an offset is until `target-place-shared` has chosen one."""
MAILBOX = 40
"""Bytes of a mailbox: two places of four bytes, each with a barrier that says it is full and one that it is empty."""
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
        type = op.results[0].type
        assert isinstance(type, ShapedAttr)
        return (type.data.bytes.value or 0) * op.value("stages")
    if op.name == "ttarget.tensor_alloc":
        return ALLOCATION
    return 2 * BARRIER * op.value("stages") if op.name == "ttarget.ring" else None


def check_parts(op: SpecOp) -> None:
    """Fails where tiles and barriers that have their places do not lie in shared memory, apart."""
    placed: list[Part] = []
    parts, cure = parts_of(op), "leave offsets out, and they are chosen"
    # A kernel has as many bytes as it takes, as long as some parts are still to be placed and it does not say.
    is_open = not op.value("shared") and not all(part.is_placed for part in parts)
    for part in (part for part in parts if part.is_placed):
        where = f"{part.start}..{part.end}"
        if part.start < 0 or (part.end > op.value("shared") and not is_open):
            op.fail(f"`{part.what}` lies at {where}, and the kernel has {op.value('shared')} shared bytes", cure)
        for other in placed:
            if part.start < other.end and other.start < part.end:
                op.fail(f"`{part.what}` at {where} and `{other.what}` at {other.start}..{other.end} overlap", cure)
        placed.append(part)


def check_laid_out(kernel: SpecOp) -> None:
    """Fails for a kernel that cannot be written as it is: memory without a place, or a descriptor made on the way."""
    for part in parts_of(kernel):
        if not part.is_placed:
            part.ops[0].fail(f"`{part.what}` has no place in shared memory", "run `target-place-shared` first")
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map" and op.parent_op() is not kernel:
            op.fail("a descriptor is made before everything, by the host", "run `target-hoist-descriptors` first")


def check_offset(op: SpecOp, what: str, alignment: int, name: str = "offset") -> None:
    """Fails for a place that something which begins at multiples of an alignment cannot have."""
    offset = op.value(name)
    if offset != UNPLACED and offset % alignment:
        op.fail(f"{what} begins at a multiple of {alignment} bytes, got {offset}")
