"""Ops on blocks of elements that Tile and Target IR share: one declaration and one verifier, made for each dialect.

A block is a tile of a program in Tile IR and vector registers in Target IR; an op of the same name takes the same
operands and attributes in both, so lowering copies it. What a dialect asks beyond that is its `own` check of an op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import CONVERSION, check_conversion
from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import function_of
from tessera.ir.base.spec import Attribute, OpSpec, Reference, Verify
from tessera.ir.base.types import BufferAttr, IndexAttr, ShapedAttr
from tessera.ir.base.verify import around
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.promotion import rounding_of

REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
MEMORY = frozenset(["memory"])
STORE_MODES = ("set", "add", "atomic_add", "atomic_max", "atomic_min")
COORDS = Attribute("coords", "strs", doc="the name of each index operand")
AXES = Attribute("axes", "strs", doc="the coordinates along the block, outermost first")
MODE = Attribute("mode", "str", "set", "set; add, in order; atomic_add, atomic_max, atomic_min, in none")
PAD = Attribute("pad", "number", 0, "what an element out of bounds reads as")
SWIZZLE = Attribute("swizzle", "int", 0, "bytes of pieces of a row that are permuted by row, where banks matter")

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


def shuffle(block: Any, *, mode: str, by: int, width: int) -> Any:
    """What a shuffle gives, on an array."""
    return np.ascontiguousarray(block[..., [partner(mode, by, width, index) for index in range(block.shape[-1])]])


def vote(block: Any, *, kind: str, width: int) -> Any:
    """What a vote gives, on an array of bools."""
    segments = block.reshape(*block.shape[:-1], block.shape[-1] // width, width)
    bits = segments.astype(np.uint64) << np.arange(width, dtype=np.uint64)
    found = {
        "any": segments.any(-1),
        "all": segments.all(-1),
        "count": segments.sum(-1, dtype=np.int32),
        "ballot": bits.sum(-1, dtype=np.uint64).astype(np.uint32),
    }[kind]
    return np.ascontiguousarray(np.repeat(found, width, axis=-1))


def check_exchange(op: SpecOp, mode: str, modes: Sequence[str] = MODES) -> None:
    """Elements change lanes and nothing else about them: one type, and a lane that there is."""
    _check_width(op)
    if mode not in modes:
        advice = f"write `{op.name.split('.')[0]}.butterfly`" if mode in MODES else ""
        op.fail(f"`mode` is one of {', '.join(modes)}, got {mode}", advice)
    by, width = op.value("by"), op.value("width")
    if not 0 <= by < width:
        op.fail(f"`by` must be in 0..{width - 1}, as segments have {width} lanes, got {by}")
    if op.results[0].type != op.operands[0].type:
        op.fail(f"`{op.name}` gives what it takes, {op.operands[0].type}, not {op.results[0].type}")


def _check_width(op: SpecOp) -> None:
    """A segment is a power of two of lanes, a warp at most, and segments fill the last axis."""
    width, block = op.value("width"), op.operands[0].type
    if not isinstance(block, ShapedAttr) or not block.shape:
        op.fail(f"lanes run along the last axis of a tile, got {block}")
    if not 1 <= width <= WARP or width & (width - 1):
        op.fail(f"`width` is a power of two of lanes up to {WARP}, got {width}")
    last = block.shape[-1].value
    if last is None or last % width:
        op.fail(f"segments of {width} lanes must fill the last axis, which has {block.shape[-1]} elements")


def _check_vote(ops: BlockOps, op: SpecOp) -> None:
    """A vote is of bools, and gives each lane the dtype of its kind."""
    _check_width(op)
    kind, block, out = op.value("kind"), op.operands[0].type, op.results[0].type
    if kind not in VOTES:
        op.fail(f"`kind` is one of {', '.join(VOTES)}, got {kind}")
    assert isinstance(block, ShapedAttr)
    if not block.dtype.is_bool:
        op.fail(f"lanes vote with bools, got {block.dtype}", "compare first: `x > 0`")
    if not isinstance(out, ShapedAttr) or out.shape != block.shape or out.dtype.name != VOTES[kind]:
        op.fail(f"a vote `{kind}` of {block} gives {VOTES[kind]} of its shape, not {out}")


# Names and expressions.


def check_symbols(op: SpecOp, what: str, dims: Iterable[Dim], names: Iterable[str]) -> None:
    """Fails where an expression uses what is neither a name of the op nor a size of its kernel."""
    kernel = around(op, "ttile.kernel", "ttarget.kernel")
    if kernel is None:
        return
    known = {*names, *kernel.value("symbols")}
    for dim in dims:
        if not dim.symbols <= known:
            op.fail(f"{what} `{dim}` uses {sorted(dim.symbols - known)}, and what is known is {sorted(known)}")


def check_names(op: SpecOp, names: Sequence[str], first: int) -> Sequence[Any]:
    """The operands from `first` on that are no indices; there is one index for each name, before them."""
    operands = op.operands[first:]
    count = sum(isinstance(value.type, IndexAttr) for value in operands)
    if count != len(names) or any(isinstance(value.type, IndexAttr) for value in operands[count:]):
        op.fail(f"`{op.name}` names {len(names)} indices and has {count}")
    if len(set(names)) != len(names):
        op.fail(f"`{op.name}` has a name twice, in {list(names)}")
    return operands[count:]


def _check_index(ops: BlockOps, op: SpecOp) -> None:
    names = op.value("names")
    if check_names(op, names, 0):
        op.fail(f"`{op.name}` takes one index for each name")
    check_symbols(op, "the expression", [op.value("expr")], names)


def check_fetch(op: SpecOp) -> None:
    """Integers are fetched from a buffer, by named indices."""
    buffer = op.operands[0].type
    if not isinstance(buffer, BufferAttr) or not buffer.dtype.is_integer:
        op.fail(f"`{op.name}` reads a buffer of integers, got {buffer}")
    if check_names(op, op.value("coords"), 1):
        op.fail(f"`{op.name}` takes one index for each name")


def check_mode(op: SpecOp) -> None:
    """A store sets, or adds in some order."""
    if op.value("mode") not in STORE_MODES:
        op.fail(f"`mode` is one of {', '.join(STORE_MODES)}, got {op.value('mode')}")


def _check_sort(ops: BlockOps, op: SpecOp) -> None:
    *buffers, count = (operand.type for operand in op.operands)
    lines = [type for type in buffers if isinstance(type, BufferAttr) and len(type.shape) == 1]
    if len(lines) != 4 or not isinstance(count, IndexAttr):
        op.fail(f"`{op.name}` takes four buffers of rank 1 and a count, got {[str(type) for type in buffers]}")
    keys, indices, spare_keys, spare_indices = (line.dtype for line in lines)
    if keys.is_bool or keys.compute != keys:
        op.fail(f"`{op.name}` does not compare {keys}", f"cast the keys to {keys.compute} first")
    if indices.name not in ("u16", "i32", "i64"):
        op.fail(f"indices are u16, i32 or i64, got {indices}")
    if spare_keys != keys or spare_indices != indices:
        op.fail(f"spare memory is of {keys} and {indices}, got {spare_keys} and {spare_indices}")


def _check_tree(ops: BlockOps, op: SpecOp) -> None:
    lines, count = (operand.type for operand in op.operands)
    if not isinstance(lines, BufferAttr) or len(lines.shape) != 2 or not isinstance(count, IndexAttr):
        op.fail(f"`{op.name}` takes a buffer of rank 2 and a count of its lines, got {lines} and {count}")
    if op.value("kind") not in REDUCTIONS:
        op.fail(f"`kind` is one of {', '.join(REDUCTIONS)}, got {op.value('kind')}")
    if lines.dtype.compute != lines.dtype:
        op.fail(f"`{op.name}` does not compute in {lines.dtype}", f"keep lines in {lines.dtype.compute}")


class BlockOps:
    """The ops of a dialect whose blocks are of one type; operands and errors call a block by its `noun`.

    `own` are checks that the dialect adds, by the name of an op. `modes` are those of its shuffles.
    """

    def __init__(
        self,
        dialect: str,
        type: type[ShapedAttr],
        noun: str,
        own: Mapping[str, Verify],
        modes: Sequence[str] = MODES,
    ) -> None:
        self.dialect, self.type, self.noun, self.own, self.modes = dialect, type, noun, own, modes

    def blocks(self, op: SpecOp, values: Iterable[Any] | None = None) -> list[ShapedAttr]:
        """The types of values, or of all operands and results; raises where one is no block."""
        found: list[ShapedAttr] = []
        for value in (*op.operands, *op.results) if values is None else values:
            if not isinstance(value.type, self.type):
                op.fail(f"`{op.name}` works on {self.noun}s, got {value.type}")
            found.append(value.type)
        return found

    def alike(self, op: SpecOp) -> list[ShapedAttr]:
        """The types of all operands and results, which are blocks of one shape."""
        blocks = self.blocks(op)
        for block in blocks:
            if block.shape != blocks[-1].shape:
                shapes = f"{list(block.shape)} and {list(blocks[-1].shape)}"
                op.fail(f"`{op.name}` takes {self.noun}s of one shape, got {shapes}")
        return blocks

    def check_coords(self, op: SpecOp, block: Any, first: int) -> Sequence[Any]:
        """The blocks of numbers behind named indices: one name for each index, an axis for each dim of the block."""
        names, axes = op.value("coords"), op.value("axes")
        gathered = check_names(op, names, first)
        (found,) = self.blocks(op, [block])
        if len(set(axes)) != len(axes):
            op.fail(f"`{op.name}` has an axis twice: {list(axes)}")
        if len(axes) != len(found.shape) or not set(axes) <= set(names):
            rank = f"a {self.noun} of rank {len(found.shape)}"
            op.fail(f"`{op.name}` has axes {list(axes)} for {rank}; each must be in {list(names)}")
        for value in gathered:
            kind = value.type
            if not isinstance(kind, self.type) or not kind.dtype.is_integer or kind.shape != found.shape:
                op.fail(f"an index {self.noun} of `{op.name}` is {kind}, not integers of shape {list(found.shape)}")
        return gathered

    def specs(self, **attributes: Sequence[Attribute]) -> Iterable[OpSpec]:
        """The shared ops in this dialect, with more `attributes` of those named."""
        return (self._spec(shared, attributes.get(shared.name, ())) for shared in SHARED)

    def _spec(self, shared: SharedOp, attributes: Sequence[Attribute]) -> OpSpec:
        own = self.own.get(shared.name)

        def verify(op: SpecOp) -> None:
            if shared.check is not None:
                shared.check(self, op)
            if own is not None:
                own(op)

        return OpSpec(
            name=f"{self.dialect}.{shared.name}",
            summary=shared.summary,
            operands=tuple(name.replace("block", self.noun) for name in shared.operands),
            attributes=(*shared.attributes, *attributes),
            results=shared.results,
            effects=shared.effects,
            reference=shared.reference,
            is_terminator=shared.is_terminator,
            verify=verify,
        )


def _check_elementwise(ops: BlockOps, op: SpecOp) -> None:
    function = function_of(op, f"{ops.noun}s")
    *inputs, out = ops.alike(op)
    first, name = inputs[0], function.name
    for block in inputs:
        if block != first:
            op.fail(f"`{name}` takes {ops.noun}s of one type, got {first} and {block}", "cast one of them")
    wanted = "bool" if function.is_predicate else first.dtype.name
    if out.dtype.name != wanted or type(out) is not type(first):
        op.fail(f"`{name}` of {first.dtype} gives {wanted}, not {out.dtype if type(out) is type(first) else out}")


def _check_cast(ops: BlockOps, op: SpecOp) -> None:
    source, target = (block.dtype for block in ops.alike(op))
    wanted, given = rounding_of(source, target), op.value("rounding")
    if given != wanted:
        op.fail(f"`{op.name}` from {source} to {target} rounds `{wanted or 'nothing'}`, got `{given or 'nothing'}`")


def _check_bitcast(ops: BlockOps, op: SpecOp) -> None:
    source, target = (block.dtype for block in ops.alike(op))
    if source.bits != target.bits:
        op.fail(f"`{op.name}` keeps the bits, and {source} has {source.bits} of them, {target} {target.bits}")


def _check_select(ops: BlockOps, op: SpecOp) -> None:
    condition, first, second, out = ops.alike(op)
    if not condition.dtype.is_bool:
        op.fail(f"`{op.name}` chooses by bool, got {condition.dtype}")
    if first != second or out != first:
        op.fail(f"`{op.name}` chooses between {ops.noun}s of one type, got {first} and {second} for {out}")


def _check_round(ops: BlockOps, op: SpecOp) -> None:
    check_conversion(op)
    source, *bits, out = (block.dtype.name for block in ops.alike(op))
    if source != "f32" or out != "f32" or any(one != "u32" for one in bits):
        op.fail(f"`{op.name}` rounds f32 by bits of u32, got {' '.join([source, *bits, out])}")


def _check_broadcast(ops: BlockOps, op: SpecOp) -> None:
    block, out = ops.blocks(op)
    axes: tuple[int, ...] = op.value("axes")
    inside = len(axes) == len(block.shape) and all(0 <= axis < len(out.shape) for axis in axes)
    if not inside or list(axes) != sorted(set(axes)):
        op.fail(f"`axes` puts {len(block.shape)} axes among {len(out.shape)}, in order, got {list(axes)}")
    if block.dtype is not out.dtype:
        op.fail(f"`{op.name}` keeps the dtype, got {block.dtype} for {out.dtype}")
    if any(out.shape[axis] != dim for axis, dim in zip(axes, block.shape, strict=True)):
        op.fail(f"{list(block.shape)} cannot be broadcast to {list(out.shape)} along {list(axes)}")


def _check_reduce(ops: BlockOps, op: SpecOp, kinds: Sequence[str] = REDUCTIONS) -> None:
    *inputs, out = ops.blocks(op)
    block = inputs[0]
    axis: int = op.value("axis")
    if op.value("kind") not in kinds:
        op.fail(f"`kind` is one of {', '.join(kinds)}, got {op.value('kind')}")
    if not 0 <= axis < len(block.shape):
        op.fail(f"`axis` must be in 0..{len(block.shape) - 1}, got {axis}")
    if not block.shape[axis].value:
        op.fail(f"the reduced axis must have elements, got {block.shape[axis]}")
    kept = block.shape[:axis] + block.shape[axis + 1 :]
    if out.shape != kept:
        op.fail(f"reducing axis {axis} of {list(block.shape)} gives {list(kept)}, not {out}")
    if inputs[-1].dtype is not out.dtype:
        op.fail(f"`{op.name}` keeps the dtype, got {inputs[-1].dtype} for {out.dtype}")


def _check_arg_reduce(ops: BlockOps, op: SpecOp) -> None:
    values, indices = ops.blocks(op, op.operands)
    if values.shape != indices.shape:
        op.fail(f"`{op.name}` takes values and their indices, of one shape, got {values} and {indices}")
    _check_reduce(ops, op, ("argmax", "argmin"))


def _check_constant(ops: BlockOps, op: SpecOp) -> None:
    ops.blocks(op)


def _check_coordinate(ops: BlockOps, op: SpecOp) -> None:
    ops.check_coords(op, op.results[0], 0)
    check_symbols(op, "the expression", [op.value("expr")], op.value("coords"))


def _check_clip(ops: BlockOps, op: SpecOp) -> None:
    ops.check_coords(op, op.results[0], 1)
    check_symbols(op, "the bound", [op.value("bound")], op.value("coords"))
    if op.value("axis") not in op.value("axes") or op.operands[0].type != op.results[0].type:
        op.fail(f"`{op.name}` clips one of {list(op.value('axes'))}, got {op.value('axis')}")


def _check_dot(ops: BlockOps, op: SpecOp) -> None:
    lhs, rhs, acc, out = ops.blocks(op)
    if len(lhs.shape) != 2 or len(rhs.shape) != 2 or lhs.shape[1] != rhs.shape[0]:
        op.fail(f"`{op.name}` multiplies [M, K] by [K, N], got {list(lhs.shape)} by {list(rhs.shape)}")
    if acc != out or acc.shape != (lhs.shape[0], rhs.shape[1]):
        op.fail(f"`{op.name}` gives {[lhs.shape[0], rhs.shape[1]]} as its accumulator is, got {acc} and {out}")


def _check_transpose(ops: BlockOps, op: SpecOp) -> None:
    block, out = ops.blocks(op)
    if len(block.shape) != 2 or block.shape[::-1] != out.shape or block.dtype is not out.dtype:
        op.fail(f"`{op.name}` makes [B, A] of [A, B], got {out} of {block}")


def _check_shuffle(ops: BlockOps, op: SpecOp) -> None:
    check_exchange(op, op.value("mode"), ops.modes)


Check: TypeAlias = Callable[[BlockOps, SpecOp], None]


@frozen
class SharedOp:
    """An op of all dialects of kernels, as an `OpSpec` has it; `block` in an operand stands for the dialect's noun."""

    name: str
    summary: str
    operands: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    check: Check | None = None
    results: tuple[str, ...] = ("out",)
    effects: frozenset[str] = frozenset()
    reference: Reference | None = None
    is_terminator: bool = False


_KIND = Attribute("kind", "str", doc="of the reduction")
_AXIS = Attribute("axis", "int", doc="the axis to reduce")

# The table, wrapped by hand so that an entry is two or three lines.
# fmt: off

SHARED: tuple[SharedOp, ...] = (
    SharedOp("elementwise", "A scalar function of the table of scalar functions, at every element.", ("blocks*",),
        (Attribute("fn", "str", doc="the function's name"),), _check_elementwise),
    SharedOp("cast", "Another dtype: floats round to nearest even, integers truncate and saturate (NaN is 0).",
        ("block",), (Attribute("rounding", "str", "", "how what the other dtype lacks is rounded"),), _check_cast),
    SharedOp("bitcast", "The same bits as another dtype.", ("block",), (), _check_bitcast),
    SharedOp("select", "The first block where the condition holds, else the second.",
        ("condition", "first", "second"), (), _check_select),
    SharedOp("constant", "One value at every element; a dim as value is a size of the kernel.", (),
        (Attribute("value", "scalar", doc="a number, or a dim"),), _check_constant),
    SharedOp("coordinate", "The value of an expression over coordinates, at every element.", ("at*",),
        (COORDS, AXES, Attribute("expr", "dim", doc="over coordinates and sizes")), _check_coordinate),
    SharedOp("clip", "The block, with elements whose coordinate along `axis` is at `bound` or beyond replaced.",
        ("block", "at*"), (COORDS, AXES, Attribute("axis", "str", doc="one of the axes"),
            Attribute("bound", "dim", doc="the extent of the coordinate, over sizes and other coordinates"),
            Attribute("identity", "number", doc="what an element out of bounds becomes")), _check_clip),
    SharedOp("broadcast", "A smaller block along new axes: axis `i` of the operand is axis `axes[i]` of the result.",
        ("block",), (Attribute("axes", "ints", doc="where the operand's axes go"),), _check_broadcast),
    SharedOp("reduce", "Reduce an axis in a halving tree: element i with i + h, h half the next power of two.",
        ("block",), (_KIND, _AXIS), _check_reduce),
    SharedOp("arg_reduce", "The index of the min or max along an axis; the lowest index of equals; NaN propagates.",
        ("values", "indices"), (_KIND, _AXIS), _check_arg_reduce),
    SharedOp("round", "The values as numbers of a format, still in f32; stochastic rounding takes 32 random bits each.",
        ("block", "bits*"), CONVERSION, _check_round),
    SharedOp("shuffle", "Each element from another lane of its segment; its own where there is none.", ("block",),
        (Attribute("mode", "str", doc=", ".join(MODES)), Attribute("by", "int", doc="lanes, the lane, or bits"), WIDTH),
        _check_shuffle, reference=shuffle),
    SharedOp("vote", "What a segment's bools say together, for each of its lanes; lane 0 is a ballot's lowest bit.",
        ("block",), (Attribute("kind", "str", doc=", ".join(VOTES)), WIDTH), _check_vote, reference=vote),
    SharedOp("transpose", "A block with its two axes swapped.", ("block",), (), _check_transpose),
    SharedOp("dot", "`acc + lhs @ rhs`: each element a chain of fused multiply-adds over k, in order.",
        ("lhs", "rhs", "acc"), (), _check_dot),
    SharedOp("index", "An expression over indices and sizes, in 64 bits.", ("at*",),
        (Attribute("names", "strs", doc="the name of each operand"),
            Attribute("expr", "dim", doc="over the names and the kernel's sizes")), _check_index, results=("index",)),
    SharedOp("sort", "The first `count` keys in order, their indices moved along; the sort is stable, NaN goes last.",
        ("keys", "indices", "spare_keys", "spare_indices", "count"),
        (Attribute("descending", "bool", False, "largest first; NaN is last all the same"),), _check_sort,
        results=(), effects=MEMORY),
    SharedOp("tree", "The first `count` lines, joined into the first: line 2i with 2i + 1, what remains so again.",
        ("lines", "count"), (_KIND,), _check_tree, results=(), effects=MEMORY),
    SharedOp("barrier", "All workers of the program wait for each other: what one stored before, all see after.",
        results=(), effects=MEMORY),
    SharedOp("return", "The end of a kernel.", results=(), is_terminator=True),
    SharedOp("yield", "The end of a body: what it carries on.", ("values*",), results=(), is_terminator=True),
)
