"""Ops on blocks of vectors: arithmetic by lane, coordinates, reductions, shuffles, and what threads do together."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.arrays import CONVERSION, check_conversion
from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import function_of
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import IndexAttr, ShapedAttr
from tessera.ir.target.limits import check_symbols, kernel_around
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim
from tessera.types.dtype import bool_
from tessera.types.promotion import rounding_of

# Lanes: neighbours along the last axis, in segments of up to a warp, that read each other.

WARP = 32
MODES = ("down", "up", "index", "xor")
"""`down` and `up` read so many lanes on or back, `index` one lane, `xor` the lane that differs in those bits."""
VOTES = {"any": "bool", "all": "bool", "ballot": "u32", "count": "i32"}
"""Votes of a segment, and the dtype of what each lane gets."""
WIDTH = Attribute("width", "int", WARP, "lanes of a segment, a power of two")


def partner(mode: str, by: int, width: int, index: int) -> int:
    """The index of the element that the one at `index` gets; where there is none in its segment, its own.

    >>> [partner("xor", 1, 4, index) for index in range(8)]
    [1, 0, 3, 2, 5, 4, 7, 6]
    >>> [partner("down", 3, 4, index) for index in range(4)]
    [3, 1, 2, 3]
    """
    lane = index % width
    start = index - lane
    if mode == "index":
        return start + by
    if mode == "xor":
        return start + (lane ^ by)
    other = lane + by if mode == "down" else lane - by
    return start + other if 0 <= other < width else index


def check_width(op: SpecOp) -> None:
    """A segment is a power of two of lanes, a warp at most, and segments fill the last axis."""
    width, tile = op.value("width"), op.operands[0].type
    if not isinstance(tile, ShapedAttr) or not tile.shape:
        op.fail(f"lanes run along the last axis of a tile, got {tile}")
    if not 1 <= width <= WARP or width & (width - 1):
        op.fail(f"`width` is a power of two of lanes up to {WARP}, got {width}")
    last = tile.shape[-1].value
    if last is None or last % width:
        op.fail(f"segments of {width} lanes must fill the last axis, which has {tile.shape[-1]} elements")


def check_exchange(op: SpecOp, mode: str) -> None:
    """Elements change lanes and nothing else about them: one type, and a lane that there is."""
    check_width(op)
    if mode not in MODES:
        op.fail(f"`mode` is one of {', '.join(MODES)}, got {mode}")
    by, width = op.value("by"), op.value("width")
    if not 0 <= by < width:
        op.fail(f"`by` must be in 0..{width - 1}, as segments have {width} lanes, got {by}")
    if op.results[0].type != op.operands[0].type:
        op.fail(f"`{op.name}` gives what it takes, {op.operands[0].type}, not {op.results[0].type}")


def check_vote(op: SpecOp) -> None:
    """A vote is of bools, and gives each lane the dtype of its kind."""
    check_width(op)
    kind, tile, out = op.value("kind"), op.operands[0].type, op.results[0].type
    if kind not in VOTES:
        op.fail(f"`kind` is one of {', '.join(VOTES)}, got {kind}")
    assert isinstance(tile, ShapedAttr)
    if not tile.dtype.is_bool:
        op.fail(f"lanes vote with bools, got {tile.dtype}", "compare first: `x > 0`")
    if not isinstance(out, ShapedAttr) or out.shape != tile.shape or out.dtype.name != VOTES[kind]:
        op.fail(f"a vote `{kind}` of {tile} gives {VOTES[kind]} of its shape, not {out}")


# Rounding blocks to a number format, by lane.


def _check_round(op: SpecOp) -> None:
    check_conversion(op)
    types = [value.type for value in (*op.operands, *op.results)]
    blocks = [type for type in types if isinstance(type, VectorAttr)]
    if len(blocks) != len(types) or len({block.shape for block in blocks}) != 1:
        op.fail(f"`{op.name}` works on blocks of one shape, got {', '.join(map(str, types))}")
    if blocks[0].dtype.name != "f32" or blocks[-1].dtype.name != "f32":
        op.fail(f"`{op.name}` rounds f32, got {blocks[0].dtype} and {blocks[-1].dtype}")


# Lanes that read each other: shuffles of all modes, and votes.


def _check_shuffle(op: SpecOp) -> None:
    check_exchange(op, op.value("mode"))


# What programs of many threads need beside vectors: barriers, and blocks whose elements change threads.


def _check_threads(op: SpecOp) -> None:
    kernel = kernel_around(op)
    if kernel is not None and not kernel.value("threads"):
        op.fail(f"`{op.name}` is for programs of several threads, and `@{kernel.value('symbol')}` has one")


def _check_dot(op: SpecOp) -> None:
    _check_threads(op)
    types = [value.type for value in (*op.operands, *op.results)]
    blocks = [type for type in types if isinstance(type, VectorAttr)]
    if len(blocks) != 4:
        op.fail(f"`{op.name}` multiplies blocks, got {', '.join(map(str, types))}")
    lhs, rhs, acc, out = blocks
    if len(lhs.shape) != 2 or len(rhs.shape) != 2 or lhs.shape[1] != rhs.shape[0]:
        op.fail(f"`{op.name}` multiplies [M, K] by [K, N], got {list(lhs.shape)} by {list(rhs.shape)}")
    if acc != out or acc.shape != (lhs.shape[0], rhs.shape[1]):
        op.fail(f"`{op.name}` gives {[lhs.shape[0], rhs.shape[1]]} as its accumulator is, got {acc} and {out}")


def _check_transpose(op: SpecOp) -> None:
    _check_threads(op)
    block, out = op.operands[0].type, op.results[0].type
    if not isinstance(block, VectorAttr) or not isinstance(out, VectorAttr):
        op.fail(f"`{op.name}` transposes blocks, got {block} into {out}")
    if block.shape[::-1] != out.shape or block.dtype is not out.dtype:
        op.fail(f"`{op.name}` makes [B, A] of [A, B], got {out} of {block}")


def _check_blocks(op: SpecOp) -> None:
    for value in (*op.operands, *op.results):
        if not isinstance(value.type, VectorAttr):
            op.fail(f"`{op.name}` works on vectors, got {value.type}")


def _check_alike(op: SpecOp) -> None:
    """All blocks of an op have one shape."""
    _check_blocks(op)
    shapes = {value.type.shape for value in (*op.operands, *op.results) if isinstance(value.type, VectorAttr)}
    if len(shapes) > 1:
        op.fail(f"`{op.name}` works on blocks of one shape, got {sorted(map(str, map(list, shapes)))}")


def _check_elementwise(op: SpecOp) -> None:
    """As many blocks of one type as the function takes; what it gives is of that type, or bool where it decides."""
    _check_alike(op)
    function = function_of(op, "blocks")
    name = function.name
    types = [value.type for value in (*op.operands, *op.results) if isinstance(value.type, VectorAttr)]
    first, wanted = types[0], bool_ if function.is_predicate else types[0].dtype
    if any(type != first for type in types[:-1]) or type(first) is not type(types[-1]) or types[-1].dtype is not wanted:
        op.fail(f"`{name}` of blocks of one type gives {wanted} in their layout, got {', '.join(map(str, types))}")


def _check_constant(op: SpecOp) -> None:
    type = op.results[0].type
    if not isinstance(type, VectorAttr):
        op.fail(f"`{op.name}` is a value in all lanes of a vector, got {type}")


def _check_cast(op: SpecOp) -> None:
    _check_alike(op)
    source, target = (value.type.dtype for value in (*op.operands, *op.results) if isinstance(value.type, VectorAttr))
    wanted, given = rounding_of(source, target), op.value("rounding")
    if given != wanted:
        op.fail(f"`{op.name}` from {source} to {target} rounds `{wanted or 'nothing'}`, got `{given or 'nothing'}`")


def _check_bitcast(op: SpecOp) -> None:
    _check_alike(op)
    types = [value.type.dtype for value in (*op.operands, *op.results) if isinstance(value.type, VectorAttr)]
    if len({dtype.bits for dtype in types}) > 1:
        op.fail(f"`{op.name}` keeps the bits, and {types[0]} has {types[0].bits} of them, {types[1]} {types[1].bits}")


def _check_select(op: SpecOp) -> None:
    _check_alike(op)
    condition, first, second = (value.type for value in op.operands)
    if isinstance(condition, VectorAttr) and not condition.dtype.is_bool:
        op.fail(f"`{op.name}` chooses by bool, got {condition.dtype}")
    if first != second or op.results[0].type != first:
        op.fail(f"`{op.name}` chooses between blocks of one type, got {first} and {second}")


def _check_reduce(op: SpecOp) -> None:
    _check_blocks(op)
    block, out = op.operands[0].type, op.results[0].type
    axis: int = op.value("axis")
    assert isinstance(block, VectorAttr)
    assert isinstance(out, VectorAttr)
    if not 0 <= axis < len(block.shape):
        op.fail(f"`axis` is in 0..{len(block.shape) - 1}, got {axis}")
    if not block.shape[axis].value:
        op.fail(f"a tree reduces at least one element, got {block.shape[axis]}")
    if block.shape[:axis] + block.shape[axis + 1 :] != out.shape:
        op.fail(f"reducing axis {axis} of {list(block.shape)} does not give {list(out.shape)}")


def _check_broadcast(op: SpecOp) -> None:
    _check_blocks(op)
    block, out = op.operands[0].type, op.results[0].type
    axes: tuple[int, ...] = op.value("axes")
    assert isinstance(block, VectorAttr)
    assert isinstance(out, VectorAttr)
    inside = len(axes) == len(block.shape) and all(0 <= axis < len(out.shape) for axis in axes)
    if not inside or list(axes) != sorted(set(axes)):
        op.fail(f"`axes` puts {len(block.shape)} axes among {len(out.shape)}, in order, got {list(axes)}")
    if block.dtype is not out.dtype:
        op.fail(f"`{op.name}` keeps the dtype, got {block.dtype} for {out.dtype}")
    if any(out.shape[axis] != dim for axis, dim in zip(axes, block.shape, strict=True)):
        op.fail(f"{list(block.shape)} cannot be broadcast to {list(out.shape)} along {list(axes)}")


def _check_coords(op: SpecOp, block: object, dims: Sequence[Dim]) -> None:
    names, axes = op.value("coords"), op.value("axes")
    indices = [value for value in op.operands if isinstance(value.type, IndexAttr)]
    if len(indices) != len(names) or len(set(names)) != len(names) or not set(axes) <= set(names):
        op.fail(f"`{op.name}` has {len(indices)} indices for the names {list(names)} and the axes {list(axes)}")
    if not isinstance(block, VectorAttr) or len(block.shape) != len(axes):
        op.fail(f"`{op.name}` has axes {list(axes)} for {block}")
    check_symbols(op, "the expression", dims, names)


def _check_coordinate(op: SpecOp) -> None:
    _check_coords(op, op.results[0].type, [op.value("expr")])


def _check_clip(op: SpecOp) -> None:
    _check_coords(op, op.results[0].type, [op.value("bound")])
    if op.value("axis") not in op.value("axes") or op.operands[0].type != op.results[0].type:
        op.fail(f"`{op.name}` clips one of {list(op.value('axes'))}, got {op.value('axis')}")


_COORDS = (
    Attribute("coords", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the block"),
)


SPECS = (
    OpSpec(
        name="ttarget.elementwise",
        summary="An elementwise function, expanded in place.",
        operands=("blocks*",),
        attributes=(Attribute("fn", "str", doc="the function's name"),),
        verify=_check_elementwise,
    ),
    OpSpec(
        name="ttarget.cast",
        summary="Another dtype.",
        operands=("block",),
        attributes=(Attribute("rounding", "str", "", "how values are rounded that the other dtype lacks"),),
        verify=_check_cast,
    ),
    OpSpec(name="ttarget.bitcast", summary="The same bits.", operands=("block",), verify=_check_bitcast),
    OpSpec(name="ttarget.select", summary="A choice by lane.", operands=("c", "a", "b"), verify=_check_select),
    OpSpec(
        name="ttarget.constant",
        summary="One value in all lanes.",
        attributes=(Attribute("value", "any", doc="it"),),
        verify=_check_constant,
    ),
    OpSpec(
        name="ttarget.coordinate",
        summary="An expression over coordinates, by lane.",
        operands=("at*",),
        attributes=(*_COORDS, Attribute("expr", "dim", doc="over coordinates and sizes")),
        verify=_check_coordinate,
    ),
    OpSpec(
        name="ttarget.clip",
        summary="Lanes beyond the bound replaced.",
        operands=("block", "at*"),
        attributes=(
            *_COORDS,
            Attribute("axis", "str", doc="one of the axes"),
            Attribute("bound", "dim", doc="its extent"),
            Attribute("identity", "any", doc="what an element out of bounds becomes"),
        ),
        verify=_check_clip,
    ),
    OpSpec(
        name="ttarget.broadcast",
        summary="A smaller block along new axes.",
        operands=("block",),
        attributes=(Attribute("axes", "ints", doc="where the operand's axes go"),),
        verify=_check_broadcast,
    ),
    OpSpec(
        name="ttarget.reduce",
        summary="An axis reduced in a halving tree.",
        operands=("block",),
        attributes=(Attribute("kind", "str", doc="the reduction"), Attribute("axis", "int", doc="the axis")),
        verify=_check_reduce,
    ),
    OpSpec(
        name="ttarget.arg_reduce",
        summary="The index of the minimum or maximum along an axis.",
        operands=("values", "indices"),
        attributes=(Attribute("kind", "str", doc="argmax or argmin"), Attribute("axis", "int", doc="the axis")),
        verify=_check_reduce,
    ),
    OpSpec(
        name="ttarget.round",
        summary="The values as numbers of a format.",
        operands=("block", "bits*"),
        attributes=CONVERSION,
        verify=_check_round,
    ),
    OpSpec(
        name="ttarget.shuffle",
        summary="Each element from another lane of its segment; its own where there is none.",
        operands=("block",),
        attributes=(
            Attribute("mode", "str", doc=", ".join(MODES)),
            Attribute("by", "int", doc="lanes, or bits"),
            WIDTH,
        ),
        verify=_check_shuffle,
    ),
    OpSpec(
        name="ttarget.vote",
        summary="What a segment's bools say together, told to each of its lanes.",
        operands=("block",),
        attributes=(Attribute("kind", "str", doc=", ".join(VOTES)), WIDTH),
        verify=check_vote,
    ),
    OpSpec(
        name="ttarget.barrier",
        summary="All threads of the program wait for each other: what one stored before, all see after.",
        results=(),
        effects=frozenset(["memory"]),
        verify=_check_threads,
    ),
    OpSpec(
        name="ttarget.dot",
        summary="`acc + lhs @ rhs` of blocks that threads hold: each element one chain of multiply-adds over k.",
        operands=("lhs", "rhs", "acc"),
        verify=_check_dot,
    ),
    OpSpec(
        name="ttarget.transpose",
        summary="A block with its two axes swapped; elements change hands.",
        operands=("block",),
        verify=_check_transpose,
    ),
)
