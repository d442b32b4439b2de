"""Vector groups: memory with addresses made linear, arithmetic, and folds across lanes."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.target.types import VectorAttr

WAYS = ("contiguous", "uniform", "strided", "indexed")

_ACCESS = (
    Attribute("names", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the block, outermost first"),
    Attribute("offset", "dim", doc="elements from the start of the buffer"),
    Attribute("way", "str", doc="how lanes lie in memory: " + ", ".join(WAYS)),
    Attribute("align", "int", doc="bytes every address is a multiple of"),
    Attribute("guarded", "strs", (), "axes that may stick out"),
    Attribute("bounds", "dims", (), "the extent of each guarded axis"),
    Attribute("windows", "dims", (), "expression, extent, ...: outside nothing is touched"),
)


def _check_access(op: SpecOp, buffer: object, block: object, first: int) -> None:
    if not isinstance(buffer, BufferAttr):
        op.fail(f"`{op.name}` takes a buffer, got {buffer}")
    if not isinstance(block, VectorAttr):
        op.fail(f"`{op.name}` moves a block of vectors, got {block}")
    if buffer.dtype != block.dtype:
        op.fail(f"`{op.name}` moves {block.dtype} and the buffer holds {buffer.dtype}")
    names, axes = op.value("names"), op.value("axes")
    indices = [value for value in op.operands[first:] if isinstance(value.type, IndexAttr)]
    if len(indices) != len(names):
        op.fail(f"`{op.name}` names {len(names)} indices and has {len(indices)}")
    if len(axes) != len(block.shape) or not set(axes) <= set(names):
        op.fail(f"`{op.name}` has axes {list(axes)} for a block of rank {len(block.shape)}")
    if op.value("way") not in WAYS:
        op.fail(f"`way` is one of {', '.join(WAYS)}, got {op.value('way')}")
    if op.value("align") not in (1, 2, 4, 8, 16, 32, 64) or op.value("align") > max(64, block.dtype.bytes):
        op.fail(f"`align` is a power of two up to 64, got {op.value('align')}")
    if op.value("align") < block.dtype.bytes:
        op.fail(
            f"an element of {block.dtype} is aligned to {block.dtype.bytes} bytes at least, got {op.value('align')}"
        )
    if not set(op.value("guarded")) <= set(axes) or len(op.value("guarded")) != len(op.value("bounds")):
        op.fail("every guarded axis is an axis of the block and has a bound")
    _check_way(op, axes)


def _check_way(op: SpecOp, axes: tuple[str, ...]) -> None:
    if not axes or op.value("way") == "indexed":
        return
    parts = op.value("offset").coefficient(axes[-1])
    if parts is None:
        op.fail(f"the offset {op.value('offset')} is not linear in {axes[-1]}: its way is indexed")
    wanted = {0: "uniform", 1: "contiguous"}.get(parts[0].value, "strided")
    if op.value("way") != wanted:
        op.fail(f"lanes of {axes[-1]} are {parts[0]} elements apart: the way is {wanted}, not {op.value('way')}")


def _check_load(op: SpecOp) -> None:
    _check_access(op, op.operands[0].type, op.results[0].type, 1)


def _check_store(op: SpecOp) -> None:
    _check_access(op, op.operands[1].type, op.operands[0].type, 2)
    if op.value("way") == "uniform" and op.value("axes") and not _is_single(op, op.value("axes")[-1]):
        op.fail("all lanes of a store would write one element", "store a block whose axes all reach the address")


def _is_single(op: SpecOp, axis: str) -> bool:
    """Whether no more than the first element along an axis is inside: its extent is 1."""
    bounds = dict(zip(op.value("guarded"), op.value("bounds"), strict=True))
    return axis in bounds and bounds[axis].value == 1


def _check_blocks(op: SpecOp) -> None:
    for value in (*op.operands, *op.results):
        if not isinstance(value.type, (VectorAttr, IndexAttr)):
            op.fail(f"`{op.name}` works on vectors, got {value.type}")


_COORDS = (
    Attribute("names", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the block"),
)

SPECS = (
    OpSpec(
        name="ttarget.load",
        summary="Elements into registers; those outside are `pad`.",
        operands=("buffer", "at*"),
        attributes=(*_ACCESS, Attribute("pad", "any", 0, "what an element outside reads as")),
        effects=frozenset(["memory"]),
        verify=_check_load,
    ),
    OpSpec(
        name="ttarget.store",
        summary="Registers to memory.",
        operands=("block", "buffer", "at*"),
        results=(),
        attributes=(*_ACCESS, Attribute("mode", "str", "set", "set or add")),
        effects=frozenset(["memory"]),
        verify=_check_store,
    ),
    OpSpec(
        name="ttarget.scratch",
        summary="A part of the thread's scratch, `offset` bytes from its start.",
        results=("buffer",),
        attributes=(Attribute("offset", "dim", doc="bytes from the start"),),
        effects=frozenset(["memory"]),
    ),
    OpSpec(
        name="ttarget.math",
        summary="An elementwise function, expanded in place.",
        operands=("blocks*",),
        attributes=(Attribute("fn", "str", doc="the function's name"),),
        verify=_check_blocks,
    ),
    OpSpec(
        name="ttarget.convert",
        summary="Another dtype.",
        operands=("block",),
        attributes=(Attribute("rounding", "str", "nearest_even", "how a narrowing rounds"),),
        verify=_check_blocks,
    ),
    OpSpec(name="ttarget.bitcast", summary="The same bits.", operands=("block",), verify=_check_blocks),
    OpSpec(name="ttarget.select", summary="A choice by lane.", operands=("c", "a", "b"), verify=_check_blocks),
    OpSpec(
        name="ttarget.constant", summary="One value in all lanes.", attributes=(Attribute("value", "any", doc="it"),)
    ),
    OpSpec(
        name="ttarget.coordinate",
        summary="An expression over coordinates, by lane.",
        operands=("at*",),
        attributes=(*_COORDS, Attribute("expr", "dim", doc="over coordinates and sizes")),
    ),
    OpSpec(
        name="ttarget.clip",
        summary="Lanes beyond the bound replaced.",
        operands=("block", "at*"),
        attributes=(
            *_COORDS,
            Attribute("axis", "str", doc="one of the axes"),
            Attribute("bound", "dim", doc="its extent"),
            Attribute("identity", "any", doc="what stands outside"),
        ),
    ),
    OpSpec(
        name="ttarget.spread",
        summary="A smaller block along new axes.",
        operands=("block",),
        attributes=(Attribute("axes", "ints", doc="where the operand's axes go"),),
        verify=_check_blocks,
    ),
    OpSpec(
        name="ttarget.fold",
        summary="An axis folded in a halving tree.",
        operands=("block",),
        attributes=(Attribute("kind", "str", doc="the fold"), Attribute("axis", "int", doc="the axis")),
        verify=_check_blocks,
    ),
    OpSpec(
        name="ttarget.fold_place",
        summary="The place of the extreme along an axis.",
        operands=("values", "places"),
        attributes=(Attribute("kind", "str", doc="argmax or argmin"), Attribute("axis", "int", doc="the axis")),
        verify=_check_blocks,
    ),
)
