"""Operands and results of a kernel: its parameters by kind, the tensors its source sees, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError, KernelError
from tessera.frontend.annotations import resolve
from tessera.frontend.kernel.attention import Transposed
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder, current, has_square_blocks
from tessera.frontend.kernel.elementwise import col_index, row_index, where
from tessera.frontend.kernel.extents import Axis
from tessera.frontend.kernel.indexing import DimAccess, TensorRef, access_of
from tessera.frontend.kernel.memory import cast_for_store, load
from tessera.frontend.kernel.tiles import Operand, Tile, not_a_tile_error, number_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.schedule import NAMES
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.kernel.definition import KernelDefinition


CACHE_FIELDS = ("K", "V", "length")
BARE = ("Tile", "KTile", "Tensor")
"""Annotations without subscript: any rank, any dtype."""


@frozen
class Parameter:
    """A parameter: `tensor`, `tile` (this program's block of a tensor), `cache`, `result`, `block` or `static`."""

    name: str
    kind: str
    annotation: TensorAnnotation | None = None
    default: Any = inspect.Parameter.empty

    @property
    def rank(self) -> int | None:
        return self.annotation.rank if self.annotation is not None and self.kind != "cache" else None


def parameter_of(function: Any, item: inspect.Parameter, written: set[str]) -> Parameter:
    """The kind of a parameter, from its annotation and from how the function uses it."""
    annotation = resolve(function, item.name, item.annotation)
    word = item.annotation if isinstance(item.annotation, str) else getattr(item.annotation, "__name__", "")
    word = str(word).rsplit(".", 1)[-1]
    tensor = annotation if isinstance(annotation, TensorAnnotation) else None
    if item.name in written:
        if tensor is None:
            raise KernelError(
                f"`{item.name}` is stored to, and has no annotation",
                fix=f'write `{item.name}: KTile["M", "N", f32]`',
            )
        return Parameter(item.name, "result", tensor)
    if word == "KVCache" or (tensor is not None and tensor.head == "KVCache"):
        return Parameter(item.name, "cache", tensor)
    if word == "Tile":
        return Parameter(item.name, "tile", tensor)
    if tensor is not None or word in BARE:
        return Parameter(item.name, "tensor", tensor)
    if item.name in NAMES and item.default is inspect.Parameter.empty:
        return Parameter(item.name, "block")
    return Parameter(item.name, "static", None, item.default)


class CallOperands:
    """The operands of one call: types in order, and the first operand of each parameter."""

    def __init__(self, definition: KernelDefinition, types: Sequence[TensorType]) -> None:
        self.definition, self.types = definition, types
        self.first_operands: dict[str, int] = {}
        at = 0
        for parameter in definition.inputs:
            self.first_operands[parameter.name] = at
            at += len(CACHE_FIELDS) if parameter.kind == "cache" else 1
        self.count = at
        self.has_key = len(types) == at + 1
        if len(types) not in (at, at + 1):
            raise KernelError(f"`{definition.name}` takes {at} tensors, got {len(types)}", span=None)

    def type(self, name: str) -> TensorType:
        return self.types[self.first_operands[name]]

    @property
    def whole_dim(self) -> Dim | None:
        """The last dim of the first tensor of rank 2 or more, or of the first tensor where there is none."""
        given = [type for type in self.types[: self.count] if type.rank]
        first = next((type for type in given if type.rank > 1), given[0] if given else None)
        return first.shape[-1] if first is not None else None

    def sizes(self) -> dict[str, Dim]:
        """The sizes of dim names, from dims that are a single name."""
        found: dict[str, Dim] = {}
        for declared, dim in self._dims():
            if declared.symbol_name is not None:
                found.setdefault(declared.symbol_name, dim)
        return found

    def declared_sizes(self) -> dict[str, Dim]:
        """The sizes of annotated dims by their text, fused ones as a whole; the first occurrence decides."""
        found: dict[str, Dim] = {}
        for declared, dim in self._dims():
            found.setdefault(str(declared), dim)
        return found

    def _dims(self) -> Iterator[tuple[Dim, Dim]]:
        for parameter in self.definition.inputs:
            if parameter.annotation is not None and parameter.kind != "cache":
                yield from zip(parameter.annotation.dims, self.type(parameter.name).shape, strict=False)


def bind_operands(b: KernelBuilder, given: CallOperands) -> dict[str, Any]:
    """The tensors by parameter name; dims of one name are required to be equal."""
    env: dict[str, Any] = {}
    for parameter in given.definition.inputs:
        at = given.first_operands[parameter.name]
        if parameter.kind == "cache":
            env[parameter.name] = CacheRef(b, parameter.name, given.types[at : at + 3], at)
            continue
        policy = parameter.annotation.policy if parameter.annotation is not None else SILENT
        tensor = TensorRef(parameter.name, at, given.types[at], policy)
        env[parameter.name] = TileParameter(tensor) if parameter.kind == "tile" else tensor
    _check_names(b, given)
    if given.has_key:
        b.key = TensorRef("key", given.count, given.types[given.count])
    return env


def _check_names(b: KernelBuilder, given: CallOperands) -> None:
    sizes, owner = dict[str, Dim](), dict[str, str]()
    for parameter in given.definition.inputs:
        annotation, type = parameter.annotation, given.type(parameter.name)
        if annotation is None or parameter.kind == "cache":
            continue
        if annotation.rank != type.rank:
            raise b.misfit(f"`{parameter.name}` is declared {annotation}, got {type.rank} dims: {type}")
        if annotation.dtype is not None and annotation.dtype is not type.dtype:
            raise DTypeError(
                f"`{parameter.name}` is declared {annotation}, got {type.dtype}",
                fix=f"cast it, as in `x.cast({annotation.dtype})`",
            )
        for axis, (declared, dim) in enumerate(zip(annotation.dims, type.shape, strict=True)):
            path, name = f"{parameter.name}.shape[{axis}]", str(declared)
            if name in sizes:
                b.require_equal(sizes[name], dim, f"`{owner[name]}` and `{path}` are both `{name}`")
            elif declared.value is not None:
                b.require_equal(declared, dim, f"`{path}` is declared {declared}")
            sizes.setdefault(name, dim)
            owner.setdefault(name, path)
    _check_arithmetic(b, given)


def _check_arithmetic(b: KernelBuilder, given: CallOperands) -> None:
    """Require dims such as `2*P` to have that size, where another dim binds `P`."""
    named = given.sizes()
    for parameter in given.definition.inputs:
        if parameter.annotation is None or parameter.kind == "cache":
            continue
        dims = zip(parameter.annotation.dims, given.type(parameter.name).shape, strict=True)
        for axis, (declared, dim) in enumerate(dims):
            if declared.symbol_name is None and declared.symbols and declared.symbols <= named.keys():
                b.require_equal(
                    declared.substitute(named), dim, f"`{parameter.name}.shape[{axis}]` is declared `{declared}`"
                )


class CacheRef:
    """A KV cache as a kernel sees it: keys and values, with the filled length as their size."""

    def __init__(self, b: KernelBuilder, name: str, types: Sequence[TensorType], at: int) -> None:
        keys, values = types[:2]
        length = b.emit_first("fetch", [at + 2], {"coords": (), "map": ()}, "index")
        coordinate = b.fresh_name("_length")
        # The stored length is clamped, so that nothing is read out of bounds.
        within = maximum(0, minimum(keys.shape[keys.rank - 2], Dim.symbol(coordinate)))
        b.coords[coordinate] = b.emit_first("index", [length], {"names": (coordinate,), "expr": within}, "index")
        b.coordinate_ranges[coordinate] = (Dim.constant(0), keys.shape[keys.rank - 2])
        self.length = Dim.symbol(coordinate)
        self.K = TensorRef(f"{name}.K", at, keys, filled={keys.rank - 2: self.length})  # pyright: ignore[reportConstantRedefinition]
        self.V = TensorRef(f"{name}.V", at + 1, values, filled={values.rank - 2: self.length})  # pyright: ignore[reportConstantRedefinition]


class TileParameter(Operand):
    """A parameter declared `Tile`: this program's block of a tensor, loaded at its first use.

    Its rows are the program's rows `m`; as the right operand of a dot, transposed or not, it has the columns `n`.
    """

    def __init__(self, tensor: TensorRef) -> None:
        self.tensor = tensor
        self._made: Tile | None = None

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.materialize().shape

    @property
    def T(self) -> Any:  # noqa: N802 - as NumPy has it
        return self.lazy_transpose()

    def lazy_transpose(self) -> Any:
        return TransposedTileParameter(self)

    def materialize(self) -> Tile:
        if self._made is None:
            context = current().extents()
            positions = (context.m, slice(None)) if self.tensor.type.rank > 1 else (context.m,)
            self._made = load(self.tensor, *positions)
        return self._made

    def as_dot_operand(self, which: str) -> Tile:
        if which == "left" or self._made is not None:
            return self.materialize()
        return load(self.tensor, slice(None), current().extents().n)


class TransposedTileParameter(Operand):
    """A lazily transposed tile parameter."""

    def __init__(self, whole: TileParameter) -> None:
        self.whole = whole

    @property
    def T(self) -> TileParameter:  # noqa: N802 - as NumPy has it
        return self.whole

    def as_dot_operand(self, which: str) -> Tile:
        if which == "left":
            return Transposed(self.whole.materialize()).for_dot(current())
        tile = load(self.whole.tensor, current().extents().n, slice(None))
        return Transposed(tile).for_dot(current())

    def materialize(self) -> Tile:
        return Transposed(self.whole.materialize()).materialize()


# Results: tensors that the kernel stores to, and tiles that it returns, which are blocks of whole tensors.


def declare_results(b: KernelBuilder, definition: KernelDefinition, given: CallOperands, env: dict[str, Any]) -> None:
    """Declare the parameters that the kernel stores to: their dims are dims of operands, or static arguments."""
    statics = {one.name: env[one.name] for one in definition.statics}
    for parameter in definition.results:
        type = _result_type(definition, parameter, given, statics)
        number = b.result_memory(type)
        tensor = TensorRef(parameter.name, number, type, is_result=True)
        b.result_buffers.append(tensor)
        env[parameter.name] = tensor


def _result_type(
    definition: KernelDefinition, parameter: Parameter, given: CallOperands, statics: Mapping[str, Any]
) -> TensorType:
    """The type of a result: dims by name; without a dtype, that of the first tensor."""
    annotation, known = parameter.annotation, given.declared_sizes()
    numbers = {name: size for name, size in statics.items() if isinstance(size, int) and not isinstance(size, bool)}
    sizes = {name: Dim.constant(size) for name, size in numbers.items() if size >= 0} | given.sizes()
    assert annotation is not None
    unknown = sorted({name for dim in annotation.dims if str(dim) not in known for name in dim.symbols} - sizes.keys())
    if unknown:
        raise KernelError(
            f"the dim `{unknown[0]}` of the result `{parameter.name}` is not a dim of an operand",
            span=definition.source.span(definition.source.tree),
            fix=f"use a dim of an operand, a number, or a static parameter: `*, {unknown[0]}: int`",
        )
    dtype = annotation.dtype or next((type.dtype for type in given.types), None)
    if dtype is None:
        raise KernelError(
            f"the result `{parameter.name}` has no dtype", span=None, fix="write it last, as in `..., f32]`"
        )
    return TensorType(tuple(known.get(str(dim), dim.substitute(sizes)) for dim in annotation.dims), dtype)


def return_tiles(b: KernelBuilder, definition: KernelDefinition, given: CallOperands, value: Any) -> None:
    """Store the returned tiles as blocks of whole tensors."""
    if value is None:
        if not b.result_buffers:
            raise KernelError(
                f"`{definition.name}` has no result",
                span=definition.source.span(definition.source.tree),
                fix="return a tile, or store to a parameter",
            )
        return
    values = as_tuple(value) if is_sequence(value) else (value,)
    from tessera.frontend.kernel.definition import result_annotations  # noqa: PLC0415 - which calls this

    declared = result_annotations(definition)
    for number, item in enumerate(values):
        tile = item.materialize() if isinstance(item, Operand) else item
        if not isinstance(tile, Tile):
            raise not_a_tile_error(b, f"`{definition.name}` returns {type(item).__name__}, not a tile", item)
        annotation = declared[number] if len(declared) == len(values) else None
        _return(b, tile, given, annotation, f"out{number}" if len(values) > 1 else "out")


def _return(b: KernelBuilder, tile: Tile, given: CallOperands, annotation: TensorAnnotation | None, name: str) -> None:
    is_inside = _is_of_triangle(b, tile)
    b.is_triangle = is_inside and (b.is_triangle or not b.result_buffers)
    if is_inside and has_square_blocks(b):
        b.zeroed[len(b.result_buffers)] = None  # blocks without a program are zero
    if is_inside:
        tile = _triangle(b, tile)
    batch = sorted(axis for axis in b.axes if axis.startswith("_b"))
    dims = [b.axes[axis].extent for axis in batch]
    entries = [DimAccess(Dim.symbol(axis)) for axis in batch]
    for number, (axis, size) in enumerate(zip(tile.axes, tile.shape, strict=True)):
        found = _grid_axis(b, axis)
        if found is None or found.dim is None:
            raise b.fail(
                f"axis {number} of the returned tile, of {size} elements, is not a block of a loaded tensor",
                'store it yourself: give the kernel a parameter such as `out: KTile["M", "N", f32]` and `tile.store`',
            )
        dims.append(found.dim)
        entries.append(DimAccess(Dim.symbol(found.name), found, size))
    _check_alone(b, tile)
    dtype = annotation.dtype if annotation is not None and annotation.dtype is not None else tile.dtype
    result = TensorType(tuple(dims), dtype)
    if annotation is not None:
        _check(b, annotation, result, given)
    number = b.result_memory(result)
    tensor = TensorRef(name, number, result, is_result=True)
    b.result_buffers.append(tensor)
    access = access_of(b, entries)
    source = cast_for_store(b, tile, tensor, "return")
    b.emit("store", [number_of(b, source), number, *access.operands], {**access.values, "mode": "set"})


def _check_alone(b: KernelBuilder, tile: Tile) -> None:
    """Require that one program writes each returned element: proved, refuted, or guarded.

    Programs along a grid axis that the tile lacks would all write the same elements.
    """
    names = {axis.name for axis in tile.axes if axis is not None}
    for name, whole in (("_m", "rows"), ("_n", "columns")):
        axis = b.axes.get(name)
        if axis is None or name in names or axis.extent == UNKNOWN:
            continue
        blocks = axis.blocks.value
        if blocks is not None and blocks > 1:
            raise b.fail(
                f"the returned tile has no `{name[1:]}`, and {blocks} programs along it would write the same elements",
                f"load all {whole} in one program, with `T.d` or `:`, or carry the result through a loop over them",
                f"a program has {axis.size} of {axis.extent} {whole}",
            )
        rule = f"the returned tile has no `{name[1:]}`, so one program has all {whole}: `T.d` or `:` loads them"
        b.require_one_block(axis, rule, least=1)


def _grid_axis(b: KernelBuilder, axis: Axis | None) -> Axis | None:
    """An axis in the whole tensor: rows and columns of the grid, or a whole dim."""
    if axis is None:
        return None
    known = b.axes.get(axis.name)
    return Axis(known.name, known.extent, known.extent) if known is not None else axis


def _is_of_triangle(b: KernelBuilder, tile: Tile) -> bool:
    """Whether a result is limited to the triangle of the schedule."""
    names = [axis.name if axis is not None else "" for axis in tile.axes]
    return b.schedule.triangular is not None and names == ["_m", "_n"]


def _triangle(b: KernelBuilder, tile: Tile) -> Tile:
    """The tile with zeros outside of the triangle."""
    rows, columns = row_index()[:, None], col_index()[None, :]
    kept = where(columns <= rows if b.schedule.triangular == "lower" else columns >= rows, tile, 0)
    kept.axes = tile.axes
    return kept


def _check(b: KernelBuilder, annotation: TensorAnnotation, result: TensorType, given: CallOperands) -> None:
    if annotation.rank != result.rank:
        raise b.misfit(f"the result is declared {annotation}, and is {result}")
    sizes = given.sizes()
    for axis, (declared, dim) in enumerate(zip(annotation.dims, result.shape, strict=True)):
        if declared.symbols <= sizes.keys():
            b.require_equal(declared.substitute(sizes), dim, f"dim {axis} of the result is declared `{declared}`")
