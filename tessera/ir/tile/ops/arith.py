"""Arithmetic on tiles: one op for all elementwise functions, casts, selects, constants and coordinates."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import function_of
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr
from tessera.types.promotion import rounding_of


def _tile(op: SpecOp, type: object) -> TileAttr:
    if not isinstance(type, TileAttr):
        op.fail(f"`{op.name}` works on tiles, got {type}")
    return type


def _check_elementwise(op: SpecOp) -> None:
    function = function_of(op, "tiles")
    name = function.name
    out = _tile(op, op.results[0].type)
    inputs = [_tile(op, value.type) for value in op.operands]
    for tile in inputs:
        if tile.shape != out.shape:
            op.fail(f"`{name}` takes tiles of one shape, got {list(tile.shape)} and {list(out.shape)}")
        if tile.dtype != inputs[0].dtype:
            op.fail(f"`{name}` takes tiles of one dtype, got {inputs[0].dtype} and {tile.dtype}", "cast one of them")
    if inputs[0].dtype.compute != inputs[0].dtype:
        op.fail(f"`{name}` does not compute in {inputs[0].dtype}", f"cast to {inputs[0].dtype.compute} first")
    wanted = "bool" if function.is_predicate else inputs[0].dtype.name
    if out.dtype.name != wanted:
        op.fail(f"`{name}` of {inputs[0].dtype} gives {wanted}, not {out.dtype}")


def _check_same_shape(op: SpecOp) -> None:
    out = _tile(op, op.results[0].type)
    for value in op.operands:
        tile = _tile(op, value.type)
        if tile.shape != out.shape:
            op.fail(f"`{op.name}` takes tiles of one shape, got {list(tile.shape)} and {list(out.shape)}")


def _check_cast(op: SpecOp) -> None:
    _check_same_shape(op)
    source, target = _tile(op, op.operands[0].type).dtype, _tile(op, op.results[0].type).dtype
    wanted, given = rounding_of(source, target), op.value("rounding")
    if given != wanted:
        op.fail(f"`{op.name}` from {source} to {target} rounds `{wanted or 'nothing'}`, got `{given or 'nothing'}`")


def _check_select(op: SpecOp) -> None:
    _check_same_shape(op)
    condition, first, second = (_tile(op, value.type) for value in op.operands)
    if not condition.dtype.is_bool or first.dtype != second.dtype:
        op.fail(f"`ttile.select` takes bool and two of one dtype, got {condition.dtype}, {first.dtype}, {second.dtype}")


_COORDS = (
    Attribute("coords", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the tile, outermost first"),
)

SPECS = (
    OpSpec(
        name="ttile.elementwise",
        summary="A scalar function of the table of scalar functions, at every element.",
        operands=("tiles*",),
        attributes=(Attribute("fn", "str", doc="the function's name"),),
        verify=_check_elementwise,
    ),
    OpSpec(
        name="ttile.cast",
        summary="Another dtype: floats round to nearest even, float to integer truncates and saturates (NaN is 0).",
        operands=("tile",),
        attributes=(Attribute("rounding", "str", "", "how values are met that the other dtype lacks"),),
        verify=_check_cast,
    ),
    OpSpec(
        name="ttile.bitcast", summary="The same bits as another dtype.", operands=("tile",), verify=_check_same_shape
    ),
    OpSpec(
        name="ttile.select",
        summary="The first tile where the condition holds, else the second.",
        operands=("condition", "first", "second"),
        verify=_check_select,
    ),
    OpSpec(
        name="ttile.constant",
        summary="A tile of one value; a dim as value is a size of the kernel.",
        attributes=(Attribute("value", "any", doc="a number, or a dim"),),
    ),
    OpSpec(
        name="ttile.coordinate",
        summary="The value of an expression over coordinates, at every element.",
        operands=("at*",),
        attributes=(*_COORDS, Attribute("expr", "dim", doc="over coordinates and sizes")),
    ),
    OpSpec(
        name="ttile.clip",
        summary="The tile, with elements whose coordinate along `axis` is not below `bound` replaced by `identity`.",
        operands=("tile", "at*"),
        attributes=(
            *_COORDS,
            Attribute("axis", "str", doc="one of the axes"),
            Attribute("bound", "dim", doc="the extent of the coordinate, over sizes and other coordinates"),
            Attribute("identity", "any", doc="what stands outside"),
        ),
    ),
    OpSpec(
        name="ttile.broadcast",
        summary="A smaller tile along new axes: axis `i` of the operand is axis `axes[i]` of the result.",
        operands=("tile",),
        attributes=(Attribute("axes", "ints", doc="where the operand's axes go"),),
    ),
)
