"""Kernels of warpgroups: one producer and some consumers, tiles in order, loops over steps, overlapped epilogues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.mma.check_copies import ConsumerCheck, check_producer, owner_of
from tessera.backends.nvptx.mma.check_phases import check_phases
from tessera.backends.nvptx.mma.target_kernels import (
    BARRIER,
    SHARED,
    check_kernel,
    check_offset,
    effect_op,
    kernel_op,
    roles_of,
)
from tessera.backends.nvptx.tensor_cores import REGISTERS, WARPGROUP, WGMMA_FEATURES, WGMMA_ROWS
from tessera.backends.nvptx.types import (
    CursorAttr,
    FragmentAttr,
    OperandAttr,
    PendingAttr,
    sizes_of,
    spec_ops,
)
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import INDEX, IndexAttr, VectorAttr
from tessera.ir.base.verify import STEP, around, check_carried, check_step, parts_in
from tessera.ir.target.typed_ops import IndexOp

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_AROUND = ("ttarget.cursor", "ttarget.yield", "ttarget.tensor_alloc", "ttarget.tensor_dealloc", "ttarget.lag")
"""What a role does beside its tiles."""
_ELECTED = ("ttarget.acquire", "ttarget.copy", "ttarget.index", "ttarget.tensor_map", "ttarget.yield")
"""What one thread does for all."""


_PRODUCED = ("ttarget.mma_add", "ttarget.pingpong", "ttarget.lag", "ttarget.epilogue", "ttarget.fetch")
"""What warpgroups that copy for themselves do not do: copies would not keep up."""


def _check_kernel(op: ops.MatrixKernelOp) -> None:
    _check_budget(op)
    is_uniform = any(part.name == "ttarget.uniform" for part in op.regions[0].block.ops)
    check_kernel(
        op,
        "a matrix kernel",
        WGMMA_FEATURES,
        "lower for sm_90a, or let dots run on multiply-adds",
        body=("ttarget.uniform", "warpgroups") if is_uniform else ("ttarget.roles", "roles"),
        foreign=_PRODUCED if is_uniform else ("ttarget.elect",),
        reason="needs a producer" if is_uniform else "is of a kernel without a producer, which copies by its own",
    )
    _check_shares(op)
    _check_multicast(op)
    _check_row_pairs(op)
    if is_uniform:
        _check_uniform(op)
        return
    producer, consumer = roles_of(op)
    check_producer(producer)
    ConsumerCheck().run(consumer)
    _check_stages(consumer)


def _check_uniform(op: SpecOp) -> None:
    """Warpgroups that copy for themselves have equal shares of registers, and wait for nothing that comes later."""
    if op.value("registers") or op.value("multicast"):
        op.fail("registers of roles and clusters are of kernels with a producer, and there is none")
    (walk,) = [part for part in spec_ops(op.regions[0].block) if part.name == "ttarget.uniform"]
    block = walk.regions[0].block
    for part in block.walk():
        if part.name in ("ttarget.acquire", "ttarget.copy") and around(part, "ttarget.elect") is None:
            walk.fail(f"`{part.name}` is done by one thread, and all threads do this", "put it into `ttarget.elect`")
    check_phases(block, max((ring.value("stages") for ring in parts_in(op, "ttarget.ring")), default=1))
    _check_stages(block)


def _check_shares(op: SpecOp) -> None:
    """Consumers have whole blocks of rows of each dot, and two staging buffers each for stores."""
    consumers = op.value("consumers")
    for dot in parts_in(op, "ttarget.mma_issue", "ttarget.mma_add"):
        rows = sizes_of(dot.operands[0])[0]
        if rows % (WGMMA_ROWS * consumers):
            op.fail(f"{rows} rows are not shared by {consumers} consumers in blocks of {WGMMA_ROWS}")
    for store in parts_in(op, "ttarget.store_tile"):
        stages = owner_of(store.operands[2]).value("stages")
        if stages != 2 * consumers:
            op.fail(f"{consumers} consumers have two staging buffers each, and there are {stages}")


def _check_multicast(op: SpecOp) -> None:
    """Programs of a cluster are neighbours along the last axis but one, read one B operand, and are as many."""
    halves = [part for part in parts_in(op, "ttarget.copy") if part.value("half")]
    if not op.value("multicast"):
        if halves:
            halves[0].fail("half of a tile is copied, and there is no other CTA to copy the other half")
        return
    grid = op.value("grid")
    if len(grid) < 2 or grid[-2].value is None or grid[-2].value % 2:
        op.fail(f"clusters take two programs along the last axis but one, and the grid is {list(map(str, grid))}")
    for part in parts_in(op, "ttarget.tiles"):
        if part.value("group") % 2 or part.value("mailbox") != -1:
            part.fail("the programs of a cluster are neighbours in time, in groups of an even number")


def _check_row_pairs(op: ops.MatrixKernelOp) -> None:
    """Which rows a thread has is for a kernel to say only where threads alone read and write them."""
    for part in parts_in(op, "ttarget.store_tile", "ttarget.mma_add", "ttarget.mma_issue") if op.row_pairs else ():
        is_held = part.name == "ttarget.mma_issue" and isinstance(part.operands[1].type, OperandAttr)
        if not is_held:
            part.fail("rows of a thread are neighbours, and this has them 8 apart")


def _check_budget(op: SpecOp) -> None:
    consumers, registers = op.value("consumers"), op.value("registers")
    if not 1 <= consumers <= 3:
        op.fail(f"a CTA has 1 to 3 consumers, got {consumers}")
    if len(registers) not in (0, 2) or not set(registers) <= set(range(24, 248, 8)):
        op.fail(f"registers of a thread are multiples of 8 from 24 to 240, for both roles, got {list(registers)}")
    if registers and (total := WARPGROUP * (registers[0] + consumers * registers[1])) > REGISTERS:
        op.fail(
            f"{consumers} consumers with {registers[1]} registers a thread and a producer with {registers[0]} take "
            f"{total}, and there are {REGISTERS}"
        )


def _check_stages(block: Block) -> None:
    """No op defines what a later dot reads from registers while dots are in flight (ptxas C7513, C7514).

    Accumulators in flight have a type of their own, which ops that read tiles do not take; what is left to check is
    the A operand, and tiles that become accumulators, made between an issue and the wait for all of it.
    """
    made: dict[SSAValue, tuple[SpecOp, SpecOp]] = {}
    """What such a tile is made by, and the last dot before that."""
    flying: SpecOp | None = None
    for at in spec_ops(block):
        if at.name == "ttarget.mma_issue":
            for maker, dot in [made[value] for value in at.operands[:2] if value in made]:
                dot.fail(
                    f"`{maker.name}` makes a register operand of the next dot while this is in flight",
                    "wait for this dot first, or make the operand before it",
                )
            flying = at
        elif at.name == "ttarget.mma_wait":
            if at.value("left") == 0:
                flying = None
                made.clear()
        elif flying is not None:
            tiles = (result for result in at.results if isinstance(result.type, (OperandAttr, VectorAttr)))
            made.update(dict.fromkeys(tiles, (at, flying)))
        for region in at.regions:
            _check_stages(region.block)


def _tiles_in(op: SpecOp, block: Block) -> SpecOp:
    """The walk through tiles of a role, or of all warpgroups."""
    parts = [part for part in spec_ops(block) if part.name not in _AROUND]
    if [part.name for part in parts] != ["ttarget.tiles"]:
        op.fail(f"a role walks the tiles of the CTA once, got {', '.join(part.name for part in parts)}")
    return parts[0]


def _check_alike(op: ops.UniformOp) -> None:
    if _tiles_in(op, op.regions[0].block).value("mailbox") != -1:
        op.fail("a producer hands out tiles as CTAs get done, and there is none")


def _check_elect(op: ops.ElectOp) -> None:
    for part in spec_ops(op.regions[0].block):
        if part.name not in _ELECTED:
            op.fail(f"`{part.name}` is not for one thread alone, which acquires stages and copies")


def _check_roles(op: ops.RolesOp) -> None:
    orders: list[Any] = []
    for region in op.regions:
        tiles = _tiles_in(op, region.block)
        orders.append([tiles.value(name) for name in ("grid", "group", "is_descending", "mailbox")])
    if orders[0] != orders[1]:
        op.fail("both roles take the same tiles in the same order")
    skips = [[_identity_of(part) for part in skipping(_tiles_in(op, region.block))] for region in op.regions]
    if skips[0] != skips[1]:
        op.fail("both roles pass over the same tiles")
    producer, consumer = op.regions
    for part in producer.walk():
        if any(isinstance(result.type, (VectorAttr, PendingAttr)) for result in part.results):
            op.fail(f"`{part.name}` makes {part.results[0].type}, and the producer is one thread that only copies")
    for part in consumer.walk():
        if part.name in ("ttarget.acquire", "ttarget.copy"):
            op.fail(f"`{part.name}` belongs to the producer: consumers wait for what it copies")


def _check_carried(op: SpecOp, first: int, heads: int, given: bool = True) -> None:
    carried = [value.type for value in op.operands[first:]]
    check_carried(op, carried)
    block = op.regions[0].block
    if [argument.type for argument in block.args] != [*[INDEX] * heads, *(carried if given else ())]:
        op.fail(f"the body of `{op.name}` takes {heads} indices and what is carried")
    last = block.last_op
    if last is None or last.name != "ttarget.yield" or [value.type for value in last.operands] != carried:
        op.fail(f"the body of `{op.name}` yields what it carries")


def _check_tiles(op: ops.TilesOp) -> None:
    if any(not isinstance(value.type, CursorAttr) for value in op.operands):
        op.fail("from tile to tile a role carries its cursors in rings, and nothing else")
    if op.mailbox != -1:
        check_offset(op, "a mailbox", BARRIER, "mailbox")
    if op.group < 1:
        op.fail(f"`group` is at least 1, got {op.group}")
    _check_carried(op, 0, len(op.grid))


def skipping(tiles: SpecOp) -> list[SpecOp]:
    """The ops of a program up to its `ttarget.skip`, in order; none where it has none."""
    parts = spec_ops(tiles.regions[0].block)
    at = next((at for at, part in enumerate(parts) if part.name == "ttarget.skip"), -1)
    return parts[: at + 1]


def _identity_of(op: SpecOp) -> tuple[Any, ...]:
    """What an op of a block is but for the names of values: two walks with the same do the same."""
    block = op.parent_block()
    assert block is not None
    made: list[SSAValue] = [*block.args, *(one for part in block.ops for one in part.results)]
    numbers: dict[SSAValue, Any] = {value: number for number, value in enumerate(made)}
    return op.name, op.values(), tuple(numbers.get(value, value) for value in op.operands)


def _check_skip(op: ops.SkipOp) -> None:
    tiles = op.parent_op()
    if any(not isinstance(value.type, IndexAttr) for value in op.operands):
        op.fail(f"`{op.name}` compares two indices, got {[str(value.type) for value in op.operands]}")
    if not isinstance(tiles, SpecOp) or tiles.name != "ttarget.tiles" or tiles.value("mailbox") != -1:
        op.fail(f"`{op.name}` goes on with a next tile that all know")
    for part in skipping(tiles)[:-1]:
        if part.name not in ("ttarget.index", "ttarget.fetch"):
            op.fail(f"`{part.name}` is done before it is known whether the program is passed over")
    kernel = around(op, "ttarget.matrix_kernel")
    if kernel is not None and kernel.value("multicast"):
        op.fail("the programs of a cluster are done together, and none of them is passed over")


def _check_steps(op: ops.StepsOp) -> None:
    check_step(op)
    if any(not isinstance(value.type, IndexAttr) for value in op.operands[:2]):
        op.fail(f"`{op.name}` runs from an index to an index, got {[str(v.type) for v in op.operands[:2]]}")
    if [result.type for result in op.results] != [value.type for value in op.operands[2:]]:
        op.fail("a loop gives what it carries")
    if any(isinstance(value.type, PendingAttr) for value in op.operands) and not op.is_nonempty:
        # Where the loop is passed by, accumulators would be moved between an issue and its wait (ptxas C7515).
        op.fail("a loop that carries dots in flight has a first step")
    _check_carried(op, 2, 1)


def _check_when(op: ops.WhenOp) -> None:
    if any(not isinstance(value.type, IndexAttr) for value in op.operands[:2]):
        op.fail(f"`{op.name}` compares two indices, got {[str(v.type) for v in op.operands[:2]]}")
    if [result.type for result in op.results] != [value.type for value in op.operands[2:]]:
        op.fail(f"`{op.name}` gives other types than it is given")
    _check_carried(op, 2, 0, given=False)


def _check_pingpong(op: ops.PingpongOp) -> None:
    if op.mode not in ("take", "pass"):
        op.fail(f"`mode` is take or pass, got `{op.mode}`")
    kernel = around(op, "ttarget.matrix_kernel")
    if kernel is not None and kernel.value("consumers") != 2:
        op.fail(f"two consumers start dots in order, and there are {kernel.value('consumers')}")


def _check_lag(op: ops.LagOp) -> None:
    ring, cursor = op.operands[0], op.operands[1]
    made = ring.owner
    if not isinstance(made, SpecOp) or made.name != "ttarget.ring" or not isinstance(cursor.type, CursorAttr):
        op.fail(f"`{op.name}` takes a ring and its first cursor, got {[str(v.type) for v in op.operands]}")
    role = op.parent_op()
    if role is not None and op.parent_block() is role.regions[0].block:
        op.fail("consumers set out one after the other, and there is one producer")
    kernel = role.parent_op() if role is not None else None
    consumers = kernel.value("consumers") if isinstance(kernel, SpecOp) else 2
    last = op.stages * (consumers - 1)
    if op.stages < 1 or last >= made.value("stages"):
        # The last consumer would wait for a stage that is filled when it has released the first.
        op.fail(f"the last of {consumers} consumers waits for stage {last}, and there are {made.value('stages')}")


# The epilogue of a program as an op of its own: it may run beside the dots of the next program.

_ELSEWHERE = (
    *("ttarget.mma_issue", "ttarget.mma_wait", "ttarget.mma_open", "ttarget.mma_add", "ttarget.reduce_rows"),
    *("ttarget.acquire", "ttarget.copy", "ttarget.await", "ttarget.release", "ttarget.advance"),
    *("ttarget.steps", "ttarget.when", "ttarget.pingpong", "ttarget.tiles", "ttarget.epilogue", "ttarget.lag"),
)
"""What is not done some columns at a time."""
_LINE, _LEAST = 64, 16
"""Columns that leave together, of the narrowest elements that do so, and those that four registers of a row hold."""


def parts_of(op: SpecOp) -> list[tuple[int, int]]:
    """The first column of each part of a `ttarget.epilogue`, and how many there are in it."""
    fragment, width = op.operands[0].type, op.value("columns")
    assert isinstance(fragment, FragmentAttr)
    total = fragment.sizes[1]
    return [(first, min(width, total - first)) for first in range(0, total, width)]


def pieces_of(op: SpecOp) -> list[tuple[int, int]]:
    """The same of each piece, of which parts are made; there is a step for each."""
    width = op.value("columns") // op.value("pieces")
    return [
        (at, min(width, first + count - at))
        for first, count in parts_of(op)
        for at in range(first, first + count, width)
    ]


def _check_epilogue(op: ops.EpilogueOp) -> None:
    if any(not isinstance(value.type, FragmentAttr) for value in op.operands):
        op.fail(f"`{op.name}` takes fragments, got {[str(value.type) for value in op.operands]}")
    shapes = {sizes_of(value) for value in op.operands}
    columns, pieces = op.columns, op.pieces
    if len(shapes) != 1 or columns < 1 or columns % _LINE:
        op.fail(f"`{op.name}` takes fragments of one shape, in parts of whole {_LINE}s of columns, got {columns}")
    # Narrower ones would not fill the matrices by which rows leave, and others would end in the midst of a line.
    width = columns // pieces if pieces > 0 and columns % pieces == 0 else 0
    if width % _LEAST or not width or (_LINE % width and width % _LINE):
        op.fail(f"pieces are of {_LEAST} columns, or of that doubled, and parts of {columns} are not {pieces} of them")
    for part in op.walk():
        if part is not op and part.name in _ELSEWHERE:
            op.fail(f"`{part.name}` is not done some columns at a time, beside the dots of another program")
    stores = sum(part.name == "ttarget.store_tile" for part in op.walk())
    if stores > 1 and pieces > 1:
        op.fail(f"{stores} results leave through the same staging buffers: a part is not stored in {pieces} pieces")
    tiles = op.parent_op()
    if isinstance(tiles, SpecOp) and tiles.name == "ttarget.tiles":
        _check_position(op, tiles)
        _check_overlap(op, tiles.regions[0].block)


def _check_position(op: SpecOp, tiles: SpecOp) -> None:
    """It ends its program, and reads nothing of it but its operands."""
    block = op.regions[0].block
    following = op.next_op
    if following is None or following.name != "ttarget.yield" or tiles.value("mailbox") != -1:
        op.fail(f"`{op.name}` is the end of a program, and the next one is known")
    wanted = [*[INDEX] * len(tiles.value("grid")), *[value.type for value in op.operands]]
    if [argument.type for argument in block.args] != wanted:
        op.fail(f"the body of `{op.name}` takes the ids of its program, and what it is computed from")
    for part in block.walk():
        for value in part.operands:
            if tiles.is_ancestor(value.owner) and not block.is_ancestor(value.owner):
                op.fail(
                    f"`{part.name}` takes what is another program's by then",
                    "make it an operand of the epilogue, or compute it there",
                )


def _check_overlap(op: SpecOp, body: Block) -> None:
    """There is one loop of dots, with a step for each piece and two more."""
    loops = [part for part in spec_ops(body) if part.name == "ttarget.steps"]
    low, high = map(_constant, loops[0].operands[:2]) if len(loops) == 1 else (None, None)
    if low is None or high is None:
        op.fail(f"`{op.name}` runs beside one loop whose steps are known")
    steps = -(-(high - low) // loops[0].value("step"))
    waits = [part for part in loops[0].regions[0].block.ops if part.name == "ttarget.mma_wait"]
    count = len(pieces_of(op))
    if steps <= count + 1 or len(waits) != 1:
        op.fail(f"{count} pieces run before the waits of as many steps, two others aside, got {steps} steps")


def _constant(value: SSAValue) -> int | None:
    made = value.owner
    return made.expr.value if isinstance(made, IndexOp) else None


SPECS = (
    effect_op(
        "lag",
        "Consumers begin one after the other, each so many stages later: what one does after its dots "
        "runs beside the dots of the next.",
        ("ring", "cursor"),
        (Attribute("stages", "int", 1, "how far behind each consumer is"),),
        _check_lag,
    ),
    effect_op(
        "when",
        "What the body yields where `low` is below `high`, else what is given.",
        ("low", "high", "given*"),
        verify=_check_when,
        results=("given*",),
        regions=("body",),
    ),
    effect_op(
        "pingpong",
        "Two consumers start dots in order (ping-pong): one computes on registers while dots of the other run.",
        attributes=(Attribute("mode", "str", doc="take: wait for the other consumer; pass: let it go on"),),
        verify=_check_pingpong,
    ),
    kernel_op(
        "matrix_kernel",
        "A persistent kernel of warpgroups: CTAs take programs of the grid, producers copy, consumers compute.",
        (
            Attribute("consumers", "int", doc="warpgroups that compute; with roles one more copies"),
            Attribute("registers", "ints", (), "of a producer's and of a consumer's thread; none: equal shares"),
            SHARED,
            Attribute("multicast", "bool", False, "whether clusters of two CTAs copy what both read for each other"),
            Attribute("row_pairs", "bool", False, "whether two rows that a thread has are neighbours, not 8 apart"),
        ),
        _check_kernel,
    ),
    effect_op(
        "roles",
        "What one thread of the first warpgroup does, and what all other warpgroups do.",
        verify=_check_roles,
        regions=("producer", "consumer"),
    ),
    effect_op(
        "uniform",
        "What all warpgroups do in a kernel without a producer: they multiply, and one thread of them copies.",
        verify=_check_alike,
        regions=("body",),
    ),
    effect_op(
        "elect",
        "What one thread of the first warpgroup does for all, which do not wait for it.",
        verify=_check_elect,
        regions=("body",),
    ),
    effect_op(
        "tiles",
        "The programs of this CTA, one after the other: every n-th of n CTAs, in the order of the schedule.",
        ("cursors*",),
        (
            Attribute("grid", "dims", doc="programs along each axis"),
            Attribute("group", "int", 1, "rows of programs that run together"),
            Attribute("is_descending", "bool", False, "whether the last axis is walked from its end"),
            Attribute(
                "mailbox", "int", -1, "where in shared memory the producer says which tile is next; -1: all know"
            ),
        ),
        _check_tiles,
        regions=("body",),
    ),
    effect_op(
        "skip",
        "Goes on with the next program of the CTA where `low` is not below `high`: this one would store nothing.",
        ("low", "high"),
        verify=_check_skip,
    ),
    effect_op(
        "steps",
        "A loop from `low` while below `high`; a last step may reach beyond.",
        ("low", "high", "carried*"),
        (
            STEP,
            Attribute("is_nonempty", "bool", False, "whether there is a step whenever no size is 0"),
            Attribute("copies", "int", 1, "of the body in an iteration; steps are a multiple of them"),
        ),
        _check_steps,
        results=("carried*",),
        regions=("body",),
    ),
    effect_op(
        "epilogue",
        "The epilogue of a program, some columns at a time. It runs in the first steps of the CTA's next program, "
        "before their waits, while two dots are in flight; after the last program, alone.",
        ("values*",),
        (
            Attribute("columns", "int", 64, "of a part, which leaves together"),
            Attribute("pieces", "int", 1, "in which a part is computed, a step for each"),
        ),
        _check_epilogue,
        regions=("body",),
    ),
)
