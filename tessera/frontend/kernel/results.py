"""What a kernel gives: tensors that it stores to, and tiles that it returns, each in its place of a whole tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import KernelError
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder
from tessera.frontend.kernel.elementwise import col_index, row_index, where
from tessera.frontend.kernel.memory import converted
from tessera.frontend.kernel.operands import Given, Parameter
from tessera.frontend.kernel.places import Spot, TensorRef, place_of
from tessera.frontend.kernel.tiles import Axis, Operand, Tile, no_tile, number_of
from tessera.frontend.kernel.triangle import is_foldable
from tessera.frontend.several import is_several, several
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.frontend.kernel.definition import KernelDefinition


def declare_results(b: KernelBuilder, definition: KernelDefinition, given: Given, env: dict[str, Any]) -> None:
    """Memory for the parameters that the kernel stores to: their dims are those of what it reads, or static numbers."""
    statics = {one.name: env[one.name] for one in definition.statics}
    for parameter in definition.results:
        type = _declared(definition, parameter, given, statics)
        number = b.result_memory(type)
        tensor = TensorRef(parameter.name, number, type, is_result=True)
        b.result_buffers.append(tensor)
        env[parameter.name] = tensor


def _declared(
    definition: KernelDefinition, parameter: Parameter, given: Given, statics: Mapping[str, Any]
) -> TensorType:
    """The type of a result: dims by their names, a dtype that is not said by that of the first tensor."""
    annotation, known = parameter.annotation, given.declared()
    numbers = {name: size for name, size in statics.items() if isinstance(size, int) and not isinstance(size, bool)}
    sizes = {name: Dim.constant(size) for name, size in numbers.items() if size >= 0} | given.sizes()
    assert annotation is not None
    unknown = sorted({name for dim in annotation.dims if str(dim) not in known for name in dim.symbols} - sizes.keys())
    if unknown:
        raise KernelError(
            f"the dim `{unknown[0]}` of the result `{parameter.name}` is not one of what `{definition.name}` reads",
            span=definition.source.span(definition.source.tree),
            fix=f"name a dim of an operand, write a number, or let it be given: `*, {unknown[0]}: int`",
        )
    dtype = annotation.dtype or next((type.dtype for type in given.types), None)
    if dtype is None:
        raise KernelError(
            f"the result `{parameter.name}` has no dtype", span=None, fix="write it last, as in `..., f32]`"
        )
    return TensorType(tuple(known.get(str(dim), dim.substitute(sizes)) for dim in annotation.dims), dtype)


def return_tiles(b: KernelBuilder, definition: KernelDefinition, given: Given, value: Any) -> None:
    """Store what the kernel returns, where its rows and columns are in the whole."""
    if value is None:
        if not b.result_buffers:
            raise KernelError(
                f"`{definition.name}` gives nothing",
                span=definition.source.span(definition.source.tree),
                fix="return a tile, or store to a parameter",
            )
        return
    values = several(value) if is_several(value) else (value,)
    from tessera.frontend.kernel.definition import result_annotations  # noqa: PLC0415 - which calls this

    declared = result_annotations(definition)
    for number, item in enumerate(values):
        tile = item.materialized() if isinstance(item, Operand) else item
        if not isinstance(tile, Tile):
            raise no_tile(b, f"`{definition.name}` returns {type(item).__name__}, not a tile", item)
        annotation = declared[number] if len(declared) == len(values) else None
        _return(b, tile, given, annotation, f"out{number}" if len(values) > 1 else "out")


def _return(b: KernelBuilder, tile: Tile, given: Given, annotation: TensorAnnotation | None, name: str) -> None:
    is_inside = _is_of_triangle(b, tile)
    b.is_triangle = is_inside and (b.is_triangle or not b.result_buffers)
    if is_inside and is_foldable(b):
        b.zeroed[len(b.result_buffers)] = None  # blocks that no program has are zero too
    if is_inside:
        tile = _triangle(b, tile)
    batch = sorted(axis for axis in b.axes if axis.startswith("_b"))
    dims = [b.axes[axis].extent for axis in batch]
    spots = [Spot(Dim.symbol(axis)) for axis in batch]
    for place, (axis, size) in enumerate(zip(tile.axes, tile.shape, strict=True)):
        found = _placed(b, axis)
        if found is None or found.dim is None:
            raise b.fail(
                f"axis {place} of the returned tile, of {size} elements, is no part of a tensor that was loaded",
                'store it yourself: give the kernel a parameter such as `out: KTile["M", "N", f32]` and `tile.store`',
            )
        dims.append(found.dim)
        spots.append(Spot(Dim.symbol(found.name), found, size))
    _check_alone(b, tile)
    dtype = annotation.dtype if annotation is not None and annotation.dtype is not None else tile.dtype
    result = TensorType(tuple(dims), dtype)
    if annotation is not None:
        _check(b, annotation, result, given)
    number = b.result_memory(result)
    tensor = TensorRef(name, number, result, is_result=True)
    b.result_buffers.append(tensor)
    place_ = place_of(b, spots)
    source = converted(b, tile, tensor, "return")
    b.emit("store", [number_of(b, source), number, *place_.operands], {**place_.values, "mode": "set"})


def _check_alone(b: KernelBuilder, tile: Tile) -> None:
    """One program alone has each returned cell: proved, refused, or a guard.

    Programs along an axis that the tile does not have would all write the same cells, each what its own block gave.
    """
    names = {axis.name for axis in tile.axes if axis is not None}
    for name, whole in (("_m", "rows"), ("_n", "columns")):
        axis = b.axes.get(name)
        if axis is None or name in names or axis.extent == UNKNOWN:
            continue
        blocks = axis.blocks.value
        if blocks is not None and blocks > 1:
            raise b.fail(
                f"the returned tile has no `{name[1:]}`, and {blocks} programs along it would write the same cells",
                f"load all {whole} at once, with `T.d` or `:`, or carry the result through a loop over them",
                f"a program has {axis.size} of {axis.extent} {whole}",
            )
        rule = f"the returned tile has no `{name[1:]}`, so one program has all {whole}: `T.d` or `:` loads them"
        b.same(axis.blocks, Dim.constant(1), rule)


def _placed(b: KernelBuilder, axis: Axis | None) -> Axis | None:
    """Where an axis lies in the whole: rows and columns of the grid, or a whole dim."""
    if axis is None:
        return None
    known = b.axes.get(axis.name)
    return Axis(known.name, known.extent, known.extent) if known is not None else axis


def _is_of_triangle(b: KernelBuilder, tile: Tile) -> bool:
    """Whether a result lies in the triangle that the schedule computes alone."""
    names = [axis.name if axis is not None else "" for axis in tile.axes]
    return b.schedule.triangular is not None and names == ["_m", "_n"]


def _triangle(b: KernelBuilder, tile: Tile) -> Tile:
    """Zero outside the triangle."""
    rows, columns = row_index()[:, None], col_index()[None, :]
    kept = where(columns <= rows if b.schedule.triangular == "lower" else columns >= rows, tile, 0)
    kept.axes = tile.axes
    return kept


def _check(b: KernelBuilder, annotation: TensorAnnotation, result: TensorType, given: Given) -> None:
    if annotation.rank != result.rank:
        raise b.misfit(f"the result is declared {annotation}, and is {result}")
    sizes = given.sizes()
    for axis, (declared, dim) in enumerate(zip(annotation.dims, result.shape, strict=True)):
        if declared.symbols <= sizes.keys():
            b.same(declared.substitute(sizes), dim, f"dim {axis} of the result is declared `{declared}`")
