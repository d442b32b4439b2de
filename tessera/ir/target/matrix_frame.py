"""What kernels of all matrix units have in common: attributes, features, shared memory, set-up and what follows it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.kernel_frame import KERNEL
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.target.hopper_limits import SPAN, SPANS

MATRIX_KERNEL = (
    *KERNEL,
    Attribute("features", "strs", doc="what it needs of the machine"),
)
SHARED = Attribute("shared", "int", 0, "bytes of shared memory; as many as its parts take where it is not said")
MAJORS = (
    Attribute("lhs_major", "str", "k", "which dim of the left side lies along memory: k or mn"),
    Attribute("rhs_major", "str", "k", "which dim of the right side lies along memory: k or mn"),
)
SWIZZLE = Attribute("swizzle", "int", SPAN, "bytes of lines whose pieces of 16 bytes change places by line")
STORES = ("ttarget.store_tile", "ttarget.store_rows")
"""Stores that go through shared memory."""
SETUP = ("ttarget.tensor_map", "ttarget.shared_tile", "ttarget.ring")
"""What a kernel with roles has before them."""


def check_features(op: SpecOp, what: str, features: Sequence[str], cure: str) -> None:
    """A kernel is for a machine that has what it cannot be without."""
    missing = [feature for feature in features if feature not in op.value("features")]
    if missing:
        op.fail(f"{what} needs {', '.join(features)}, and the target lacks {', '.join(missing)}", cure)


def check_shared(op: SpecOp, most: int) -> None:
    """A CTA has no more shared memory than there is."""
    if not 0 <= op.value("shared") <= most:
        op.fail(f"a CTA has at most {most} bytes of shared memory, got {op.value('shared')}")


def check_results(op: SpecOp) -> None:
    """What a kernel is declared to write is written."""
    writers = [part for part in op.walk() if part.name in ("ttarget.fragment_store", *STORES)]
    for place in op.value("writes"):
        if not any(op.regions[0].block.args[place] in part.operands for part in writers):
            op.fail(f"`@{op.value('symbol')}` is said to write argument {place}, and nothing does")


def check_body(op: SpecOp, setup: Sequence[str], last: str, what: str) -> None:
    """A kernel sets up its memory, then does one thing."""
    names = [part.name for part in op.regions[0].block.ops]
    if names[-2:] != [last, "ttarget.return"] or any(name not in setup for name in names[:-2]):
        op.fail(f"`@{op.value('symbol')}` is memory, then {what}, got {', '.join(names)}")


def check_foreign(op: SpecOp, foreign: Sequence[str], why: str) -> None:
    """A kernel has no op of other matrix units."""
    for part in op.walk():
        if part.name in foreign:
            op.fail(f"`{part.name}` {why}")


def check_swizzle(op: SpecOp) -> None:
    """Fails for lines that nothing swizzles."""
    if op.value("swizzle") not in SPANS:
        op.fail(f"`swizzle` is of lines of {', '.join(map(str, SPANS))} bytes, got {op.value('swizzle')}")


def check_widest(op: SpecOp) -> None:
    """Fails for a kernel with tiles in other lines than the widest, where nothing reads those."""
    for part in op.walk():
        if isinstance(part, SpecOp) and "swizzle" in part.kinds and part.value("swizzle") != SPAN:
            part.fail(f"only warpgroups read lines of {part.value('swizzle')} bytes, and others those of {SPAN}")


def swizzle_of(tile: SSAValue) -> int:
    """Bytes of the lines of a shared tile."""
    made = tile.owner
    return made.value("swizzle") if isinstance(made, SpecOp) and made.name == "ttarget.shared_tile" else SPAN


def roles_of(op: SpecOp) -> tuple[Block, Block]:
    """What the producer does, and what the consumers do."""
    (roles,) = [part for part in op.regions[0].block.ops if part.name == "ttarget.roles"]
    producer, consumer = roles.regions
    return producer.block, consumer.block
