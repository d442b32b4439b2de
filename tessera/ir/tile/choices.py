"""How a kernel runs, as passes choose it: attributes of kernels, loops, dots and accesses, and their verifiers."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.types.machine import Machine, MatrixInstruction

# Where a tile goes on its way between memory and a program, as passes choose it: attributes of loads and stores.

INSTRUCTIONS: dict[str, MatrixInstruction] = {}
"""Matrix instructions that verifiers know, by name; backends describe their machines here when they are loaded."""
LINES: dict[int, None] = {}
"""Bytes of rows of shared tiles that some machine has swizzles for, in the order in which they were described."""
BOXES: list[int] = []
"""The most elements along a dim that a bulk copy of some machine takes."""
MAX_STAGES = 8
"""Stages of a pipelined copy at most: more hide nothing that a machine of today leaves to be hidden."""


def describe_machines(machines: Iterable[Machine]) -> None:
    """Let verifiers know what these machines have."""
    for machine in machines:
        INSTRUCTIONS.update({one.name: one for one in machine.instructions})
        LINES.update(dict.fromkeys(machine.lines))
        if machine.copy is not None and machine.copy.max_box not in BOXES:
            BOXES.append(machine.copy.max_box)


SHARED, REGISTERS = "shared", "registers"
SPACES = (SHARED, REGISTERS)
ROWS, COLUMNS = "rows", "columns"
LAYOUTS = (ROWS, COLUMNS)
MEMORY_LAYOUT = (
    Attribute("space", "str", "", "where a machine puts it: shared memory, in whole boxes, or registers"),
    Attribute("layout", "str", "", "in shared memory: rows or columns of the tile are contiguous in it"),
    Attribute("swizzle", "int", 0, "bytes of lines there whose pieces are permuted by line"),
    Attribute("box", "ints", (), "elements along each dim of the buffer that are copied at a time"),
)
"""Attributes that a pass gives an access."""
STAGES = (
    Attribute("stages", "int", 0, "buffers that it has in shared memory, where no loop says so"),
    Attribute("ring", "int", -1, "the ring of stages that it is copied to: those of one arrive at one barrier"),
)
"""Attributes that passes give a load to shared memory."""


def is_shared(buffer: SSAValue) -> bool:
    """Whether workers of one program share this memory."""
    op = buffer.op if isinstance(buffer, OpResult) else None
    return isinstance(op, SpecOp) and op.name == "ttile.scratch" and op.value("space") == "shared"


def check_stages(op: SpecOp) -> None:
    """Raises OpError for a load with stages in shared memory that it does not go to, or that its loop has."""
    if op.value("ring") < -1 or (op.value("ring") >= 0 and op.value("space") != SHARED):
        op.fail(f"a `ring` is the number of one in shared memory, got {op.value('ring')}")
    around = op.parent_op()
    is_inside = around is not None and around.name == "ttile.for"
    if op.value("stages") and (op.value("space") != SHARED or is_inside):
        op.fail("`stages` are those of a load to shared memory that no loop does; others have those of their loop")
    if not 0 <= op.value("stages") <= MAX_STAGES:
        op.fail(f"there are 1 to {MAX_STAGES} stages, got {op.value('stages')}")


def check_memory_layout(op: SpecOp, buffer: BufferAttr, tile: TileAttr) -> None:
    """Raises OpError for a space, layout, swizzle or box that no machine has."""
    space, layout, swizzle, box = (op.value(attribute.name) for attribute in MEMORY_LAYOUT)
    if space not in ("", *SPACES):
        op.fail(f"`space` is one of {', '.join(SPACES)}, got {space}")
    if space != SHARED and (layout or swizzle or box):
        op.fail(f"layout, swizzle and box are those of shared memory, and `space` is {space or 'not chosen'}")
    if layout not in ("", *LAYOUTS):
        op.fail(f"`layout` is one of {', '.join(LAYOUTS)}, got {layout}")
    if swizzle not in (0, *LINES):
        op.fail(f"lines of {', '.join(map(str, LINES))} bytes are swizzled, got {swizzle}")
    if layout and len(tile.shape) != 2:
        op.fail(f"a tile of {len(tile.shape)} dims has no {layout}")
    # Of windows a box is positions, whatever dims those are in, and channels.
    most, rank = max(BOXES, default=0), 2 if op.values().get("windows") else len(buffer.shape)
    if box and (len(box) != rank or any(not 1 <= size <= most for size in box)):
        op.fail(f"`box` has 1 to {most} elements along each of {rank} dims, got {list(box)}")
    if box and swizzle and box[-1] * buffer.dtype.bytes != swizzle:
        op.fail(f"a line of {swizzle} bytes is swizzled, and `box` has {box[-1]} elements of {buffer.dtype} in one")


# How a kernel on tensor cores runs, as passes choose it: programs, warps, and what overlaps with what.

ONCE, PERSISTENT, DYNAMIC = "once", "persistent", "dynamic"
SCHEDULERS = (ONCE, PERSISTENT, DYNAMIC)
PRODUCER, UNIFORM = "producer", "uniform"
ROLES = (PRODUCER, UNIFORM)
BESIDE, AFTER = "beside", "after"
EPILOGUES = (BESIDE, AFTER)
"""When a program does what follows its dots: beside those of the next one, or right after them."""
SUM, SKEWED, ORDERED = "sum", "skewed", "ordered"
FORMS = (SUM, SKEWED, ORDERED)
ORDER = (
    Attribute("warpgroups", "int", 0, "groups of four warps that share the rows of its dots; 0 for none"),
    Attribute(
        "scheduler", "str", "", "once: a CTA does one program; persistent: many, in order; dynamic: as it gets done"
    ),
    Attribute("group", "int", 1, "indices of the last axis but one whose programs run together"),
    Attribute("descending", "bool", False, "whether programs further along the last axis come first"),
    Attribute("multicast", "bool", False, "whether two CTAs copy the B operand of a dot for each other"),
    Attribute("skips", "bool", False, "whether programs that would store nothing are passed over"),
    Attribute("roles", "str", "", "producer: one warp copies for the others; uniform: all copy"),
    Attribute("registers", "ints", (), "of a producer's and of a consumer's thread; none: equal shares"),
    Attribute("row_pairs", "bool", False, "whether two rows that a thread has of a dot in registers are neighbours"),
    Attribute("warps_n", "int", 0, "single warps of a group that stand side by side; 0 where nobody has chosen"),
    Attribute("epilogue", "str", "", "beside the dots of the next program of a CTA, or after its own"),
    Attribute("lag", "int", 0, "stages that each group of warps begins behind the one before"),
    Attribute("reasons", "strs", (), "why better tensor cores do not take its dots, as `explain` shows it"),
    Attribute("variant_of", "str", "", "the kernel some of whose launches it takes; none: calls name it"),
)
"""Attributes that passes give a kernel."""
OVERLAP = (
    Attribute("form", "str", "", "sum: one dot in flight; skewed: the second of two a step late; or ordered"),
    Attribute("pingpong", "bool", False, "whether two groups of warps start dots one after the other (ping-pong)"),
)
"""Attributes that passes give a loop."""
WAITS = (
    Attribute("awaits", "ints", (), "rings of copies that are full before it"),
    Attribute("releases", "ints", (), "rings of copies that nobody reads after it"),
)
"""Attributes that a pass gives dots and loops."""
_FOR_UNITS = {
    "ttile.kernel": ("warpgroups", "scheduler", "roles", "warps_n", "epilogue"),
    "ttile.for": ("stages", "form", "awaits", "releases"),
    "ttile.dot": ("awaits", "releases"),
    "ttile.load": ("space",),
    "ttile.store": ("space",),
}
"""Attributes that mean something on tensor cores alone."""


def tensor_core_attributes(kernel: SpecOp) -> list[str]:
    """What a kernel says of how it runs, by the names of attributes, which only those on tensor cores have."""
    found: dict[str, None] = {}
    for op in kernel.walk():
        if isinstance(op, SpecOp):
            found.update(dict.fromkeys(name for name in _FOR_UNITS.get(op.name, ()) if op.value(name)))
    return list(found)


def check_order(op: SpecOp) -> None:
    """Raises OpError for a kernel that says how it runs, and nothing runs so."""
    for name, known in (("scheduler", SCHEDULERS), ("roles", ROLES), ("epilogue", EPILOGUES)):
        if op.value(name) not in ("", *known):
            op.fail(f"`{name}` is one of {', '.join(known)}, got {op.value(name)}")
    if op.value("warpgroups") < 0 or op.value("group") < 1 or op.value("lag") < 0:
        op.fail("`warpgroups` and `lag` are at least 0 and `group` at least 1")
    if (op.value("group") != 1 or op.value("descending")) and not op.value("scheduler"):
        op.fail("`group` and `descending` are the order of a `scheduler`, and none is said", "say the `scheduler` too")
    if op.value("lag") and not op.value("epilogue"):
        op.fail("`lag` is said together with the `epilogue`, and none is said", "say the `epilogue` too")
    if op.value("multicast") and (op.value("scheduler") != PERSISTENT or op.value("group") % 2):
        op.fail("the programs of a pair are neighbours in time: `scheduler` is persistent, and `group` even")
    if op.value("skips") and (op.value("scheduler") != PERSISTENT or op.value("multicast")):
        op.fail("`skips` is of programs that each CTA takes in order: `scheduler` is persistent, without multicast")
    if op.value("warps_n") < 0:
        op.fail(f"`warps_n` counts warps, got {op.value('warps_n')}")
    _check_registers(op)


def _check_registers(op: SpecOp) -> None:
    registers = op.value("registers")
    if registers and op.value("roles") != PRODUCER:
        op.fail("`registers` are those of a producer's and a consumer's threads, and there is no producer")
    if len(registers) not in (0, 2) or any(count % 8 or not 24 <= count <= 240 for count in registers):
        op.fail(f"registers of a thread are multiples of 8 from 24 to 240, for both roles, got {list(registers)}")


def check_waits(op: SpecOp) -> None:
    """Raises OpError for rings that are no numbers of some."""
    for name in ("awaits", "releases"):
        if any(number < 0 for number in op.value(name)) or len(set(op.value(name))) != len(op.value(name)):
            op.fail(f"`{name}` are numbers of rings, each once, got {list(op.value(name))}")


def check_overlap(op: SpecOp) -> None:
    """Raises OpError for a loop that says what overlaps, and nothing does so."""
    if op.value("form") not in ("", *FORMS):
        op.fail(f"`form` is one of {', '.join(FORMS)}, got {op.value('form')}")
    if op.value("pingpong") and op.value("form") != SKEWED:
        op.fail(f"`pingpong` is that of a skewed loop, and `form` is {op.value('form') or 'not chosen'}")
