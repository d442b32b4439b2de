"""The epilogue of a program as an op of its own: it may run beside the dots of the next program."""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.backends.nvptx.types import FragmentAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX

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
    total = fragment.shape[1].value or 0
    return [(first, min(width, total - first)) for first in range(0, total, width)]


def pieces_of(op: SpecOp) -> list[tuple[int, int]]:
    """The same of each piece, of which parts are made; there is a step for each."""
    width = op.value("columns") // op.value("pieces")
    return [
        (at, min(width, first + count - at))
        for first, count in parts_of(op)
        for at in range(first, first + count, width)
    ]


def _check_epilogue(op: SpecOp) -> None:
    if not op.operands or any(not isinstance(value.type, FragmentAttr) for value in op.operands):
        op.fail(f"`{op.name}` takes fragments, got {[str(value.type) for value in op.operands]}")
    shapes = {value.type.shape for value in op.operands if isinstance(value.type, FragmentAttr)}
    columns, pieces = op.value("columns"), op.value("pieces")
    if len(shapes) != 1 or columns < 1 or columns % _LINE:
        op.fail(f"`{op.name}` takes fragments of one shape, in parts of whole {_LINE}s of columns, got {columns}")
    # Narrower ones would not fill the matrices by which rows leave, and others would end in the midst of a line.
    width = columns // pieces if pieces > 0 and columns % pieces == 0 else 0
    if width % _LEAST or not width or (_LINE % width and width % _LINE):
        op.fail(f"pieces are of {_LEAST} columns, or of that doubled, and parts of {columns} are not {pieces} of them")
    for part in op.walk():
        if part is not op and part.name in _ELSEWHERE:
            op.fail(f"`{part.name}` is not done some columns at a time, beside the dots of another program")
    tiles = op.parent_op()
    if isinstance(tiles, SpecOp) and tiles.name == "ttarget.tiles":
        _check_position(op, tiles)
        _check_steps(op, tiles.regions[0].block)


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
            if _is_inside(value, tiles.regions[0].block) and not _is_inside(value, block):
                op.fail(
                    f"`{part.name}` takes what is another program's by then",
                    "make it an operand of the epilogue, or compute it there",
                )


def _check_steps(op: SpecOp, body: Block) -> None:
    """There is one loop of dots, with a step for each piece and two more."""
    loops = [part for part in body.ops if isinstance(part, SpecOp) and part.name == "ttarget.steps"]
    ends = [_constant(value) for value in loops[0].operands[:2]] if len(loops) == 1 else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        op.fail(f"`{op.name}` runs beside one loop whose steps are known")
    steps = -(-(ends[1] - ends[0]) // loops[0].value("step"))
    waits = [part for part in loops[0].regions[0].block.ops if part.name == "ttarget.mma_wait"]
    count = len(pieces_of(op))
    if steps <= count + 1 or len(waits) != 1:
        op.fail(f"{count} pieces run before the waits of as many steps, two others aside, got {steps} steps")


def _constant(value: SSAValue) -> int | None:
    made = value.owner
    return made.value("expr").value if isinstance(made, SpecOp) and made.name == "ttarget.index" else None


def _is_inside(value: SSAValue, block: Block) -> bool:
    """Whether a value is made in a block, or in one inside it."""
    at: Block | None = None
    if isinstance(value, BlockArgument):
        at = value.block
    elif isinstance(value, OpResult):
        at = value.op.parent_block()
    while at is not None and at is not block:
        parent: Operation | None = at.parent_op()
        at = parent.parent_block() if parent is not None else None
    return at is block


SPECS = (
    OpSpec(
        name="ttarget.epilogue",
        summary="The epilogue of a program, some columns at a time. It runs in the first steps of the "
        "CTA's next program, before their waits, while two dots are in flight; after the last program, alone.",
        operands=("values*",),
        results=(),
        attributes=(
            Attribute("columns", "int", 64, "of a part, which leaves together"),
            Attribute("pieces", "int", 1, "in which a part is computed, a step for each"),
        ),
        regions=("body",),
        effects=frozenset(["memory"]),
        verify=_check_epilogue,
    ),
)
