"""What a kernel is given: its parameters by kind, and the tensors, caches and tiles that its source sees."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError, KernelError
from tessera.frontend.annotations import resolve
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.matrix import Turned
from tessera.frontend.kernel.memory import load
from tessera.frontend.kernel.places import TensorRef
from tessera.frontend.kernel.tiles import Operand, Tile
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.schedule import NAMES
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.frontend.kernel.definition import KernelDefinition

CACHE_FIELDS = ("K", "V", "length")
BARE = ("Tile", "KTile", "Tensor")
"""Names that may stand alone as an annotation: any rank, any dtype."""


@frozen
class Parameter:
    """A parameter: `tensor`, `tile` (this program's part of a tensor), `cache`, `result`, `block` or `static`."""

    name: str
    kind: str
    annotation: TensorAnnotation | None = None
    default: Any = inspect.Parameter.empty

    @property
    def rank(self) -> int | None:
        return self.annotation.rank if self.annotation is not None and self.kind != "cache" else None


def parameter_of(function: Any, item: inspect.Parameter, written: set[str]) -> Parameter:
    """The kind of a parameter, from its annotation and from what the function does with it."""
    annotation = resolve(function, item.name, item.annotation)
    word = item.annotation if isinstance(item.annotation, str) else getattr(item.annotation, "__name__", "")
    word = str(word).rsplit(".", 1)[-1]
    tensor = annotation if isinstance(annotation, TensorAnnotation) else None
    if item.name in written:
        if tensor is None:
            raise KernelError(
                f"`{item.name}` is stored to, and nothing says what it is",
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


class Given:
    """The operands of one call: types in order, and which parameter each belongs to."""

    def __init__(self, definition: KernelDefinition, types: Sequence[TensorType]) -> None:
        self.definition, self.types = definition, types
        self.places: dict[str, int] = {}
        at = 0
        for parameter in definition.inputs:
            self.places[parameter.name] = at
            at += len(CACHE_FIELDS) if parameter.kind == "cache" else 1
        self.count = at
        self.has_key = len(types) == at + 1
        if len(types) not in (at, at + 1):
            raise KernelError(f"`{definition.name}` takes {at} tensors, got {len(types)}", span=None)

    def type(self, name: str) -> TensorType:
        return self.types[self.places[name]]

    @property
    def whole(self) -> Dim | None:
        """The last dim of the first tensor with rows and columns, or of the first at all where none has both."""
        given = [type for type in self.types[: self.count] if type.rank]
        first = next((type for type in given if type.rank > 1), given[0] if given else None)
        return first.shape[-1] if first is not None else None

    def sizes(self) -> dict[str, Dim]:
        """What the names of annotations stand for, from dims that are one name."""
        found: dict[str, Dim] = {}
        for declared, dim in self._dims():
            if declared.symbol_name is not None:
                found.setdefault(declared.symbol_name, dim)
        return found

    def declared(self) -> dict[str, Dim]:
        """What the dims of annotations stand for by their text, fused ones as a whole: the first that has it says."""
        found: dict[str, Dim] = {}
        for declared, dim in self._dims():
            found.setdefault(str(declared), dim)
        return found

    def _dims(self) -> Iterator[tuple[Dim, Dim]]:
        for parameter in self.definition.inputs:
            if parameter.annotation is not None and parameter.kind != "cache":
                yield from zip(parameter.annotation.dims, self.type(parameter.name).shape, strict=False)


def bound_operands(b: KernelBuilder, given: Given) -> dict[str, Any]:
    """The tensors by the names of parameters; dims of one name are equal."""
    env: dict[str, Any] = {}
    for parameter in given.definition.inputs:
        at = given.places[parameter.name]
        if parameter.kind == "cache":
            env[parameter.name] = CacheRef(b, parameter.name, given.types[at : at + 3], at)
            continue
        policy = parameter.annotation.policy if parameter.annotation is not None else SILENT
        tensor = TensorRef(parameter.name, at, given.types[at], policy)
        env[parameter.name] = Whole(tensor) if parameter.kind == "tile" else tensor
    _check_names(b, given)
    if given.has_key:
        b.key = TensorRef("key", given.count, given.types[given.count])
    return env


def _check_names(b: KernelBuilder, given: Given) -> None:
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
            place, name = f"{parameter.name}.shape[{axis}]", str(declared)
            if name in sizes:
                b.same(sizes[name], dim, f"`{owner[name]}` and `{place}` are both `{name}`")
            elif declared.value is not None:
                b.same(declared, dim, f"`{place}` is declared {declared}")
            sizes.setdefault(name, dim)
            owner.setdefault(name, place)
    _check_arithmetic(b, given)


def _check_arithmetic(b: KernelBuilder, given: Given) -> None:
    """Dims such as `2*P` are what they say, where a dim of another tensor is `P` itself."""
    named = given.sizes()
    for parameter in given.definition.inputs:
        if parameter.annotation is None or parameter.kind == "cache":
            continue
        dims = zip(parameter.annotation.dims, given.type(parameter.name).shape, strict=True)
        for axis, (declared, dim) in enumerate(dims):
            if declared.symbol_name is None and declared.symbols and declared.symbols <= named.keys():
                b.same(declared.substitute(named), dim, f"`{parameter.name}.shape[{axis}]` is declared `{declared}`")


class CacheRef:
    """A cache as a kernel sees it: keys and values, of which only the filled part has a shape."""

    def __init__(self, b: KernelBuilder, name: str, types: Sequence[TensorType], at: int) -> None:
        keys, values = types[:2]
        said = b.first("fetch", [at + 2], {"coords": (), "map": ()}, "index")
        coordinate = b.fresh("_length")
        # Whatever the length says, nothing is read outside of the tensors.
        within = maximum(0, minimum(keys.shape[keys.rank - 2], Dim.symbol(coordinate)))
        b.coords[coordinate] = b.first("index", [said], {"names": (coordinate,), "expr": within}, "index")
        b.ends[coordinate] = (Dim.constant(0), keys.shape[keys.rank - 2])
        self.length = Dim.symbol(coordinate)
        self.K = TensorRef(f"{name}.K", at, keys, filled={keys.rank - 2: self.length})  # pyright: ignore[reportConstantRedefinition]
        self.V = TensorRef(f"{name}.V", at + 1, values, filled={values.rank - 2: self.length})  # pyright: ignore[reportConstantRedefinition]


class Whole(Operand):
    """A parameter declared `Tile`: this program's part of a tensor, loaded where it is first used.

    Its rows are the program's rows `m`; on the right of a product, turned or not, it gives the program's columns `n`.
    """

    def __init__(self, tensor: TensorRef) -> None:
        self.tensor = tensor
        self._made: Tile | None = None

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.materialized().shape

    @property
    def T(self) -> Any:  # noqa: N802 - as NumPy has it
        return self.turned()

    def turned(self) -> Any:
        return TurnedWhole(self)

    def materialized(self) -> Tile:
        if self._made is None:
            context = current().extents()
            positions = (context.m, slice(None)) if self.tensor.type.rank > 1 else (context.m,)
            self._made = load(self.tensor, *positions)
        return self._made

    def as_side(self, which: str) -> Tile:
        if which == "left" or self._made is not None:
            return self.materialized()
        return load(self.tensor, slice(None), current().extents().n)


class TurnedWhole(Operand):
    """Such a parameter, turned."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole

    @property
    def T(self) -> Whole:  # noqa: N802 - as NumPy has it
        return self.whole

    def as_side(self, which: str) -> Tile:
        if which == "left":
            return Turned(self.whole.materialized()).for_product(current())
        tile = load(self.whole.tensor, current().extents().n, slice(None))
        return Turned(tile).for_product(current())

    def materialized(self) -> Tile:
        return Turned(self.whole.materialized()).materialized()
