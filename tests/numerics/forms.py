"""Forms of ops: operands with named dims, the sizes those take, values to fill them, and ways to lay them out."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any, TypeAlias, cast

import numpy as np

from tessera.api.jit import Jit
from tessera.diagnostics.error import TesseraError
from tessera.frontend.pytree import as_tuple
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.samples import SPECIAL_VALUES, retype, sample_dtype
from tessera.runtime.tensor import Tensor
from tessera.types import dtype as dt
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import BY_NAME, DType
from tessera.types.promotion import integer_range
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, Rules

Values: TypeAlias = "Callable[[np.random.Generator, tuple[int, ...], DType], Array]"
Sizes: TypeAlias = "Mapping[str, int]"
Attributes: TypeAlias = "Callable[[Mapping[str, Dim], DType], Mapping[str, Any]]"


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normal floats with full mantissas, integers of at most 50, coin flips."""
    if dtype.is_float:
        return (rng.standard_normal(shape) * 2).astype(numpy_dtype(dtype))
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    low, high = integer_range(dtype)
    return rng.integers(max(low, -50), min(high, 50), shape, endpoint=True).astype(numpy_dtype(dtype))


def positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Positive numbers over several decades."""
    if not dtype.is_float:
        return abs(numbers(rng, shape, dtype))
    return np.exp(rng.standard_normal(shape)).astype(numpy_dtype(dtype))


def everything(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers over the whole range of integers; of floats also infinities, NaN, zeros and the largest."""
    made = numbers(rng, shape, dtype)
    if dtype.is_bool or dtype is dt.i4:
        return made
    flat = made.reshape(-1)
    at = rng.permutation(flat.size)[: flat.size // 2]
    if dtype.is_float:
        flat[at] = retype(rng.choice(np.array(SPECIAL_VALUES, np.float32), at.size), dtype)
    else:
        low, high = integer_range(dtype)
        flat[at] = rng.integers(low, high, at.size, endpoint=True, dtype=numpy_dtype(dtype))
    return flat.reshape(shape)


@dataclass(frozen=True)
class Operand:
    """One operand: dims by name or number, its dtype (`T` is the one under test), what fills it.

    An operand that is not `passed` only brings free dims into the program.
    """

    dims: tuple[str | int, ...]
    dtype: str = "T"
    values: Values = numbers
    passed: bool = True

    def dtype_in(self, dtype: DType) -> DType:
        return dtype if self.dtype == "T" else BY_NAME[self.dtype]


def no_attributes(dims: Mapping[str, Dim], dtype: DType) -> Mapping[str, Any]:
    """The attributes of an op that takes none."""
    return {}


@dataclass(frozen=True)
class Form:
    """A way to call an op, for which one compilation serves all `sizes`.

    `attributes` gets the dims by name: symbols in the free program, numbers in the static ones and in the reference.
    A form of `is_fixed` has sizes in its attributes that only Python sees, and is one program for each of them.
    """

    name: str
    operands: tuple[Operand, ...]
    sizes: tuple[Sizes, ...]
    attributes: Attributes = no_attributes
    is_fixed: bool = False

    def shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        return [tuple(sizes[dim] if isinstance(dim, str) else dim for dim in operand.dims) for operand in self.operands]

    def elements(self, sizes: Sizes) -> int:
        """How many elements the largest operand has, or places the space of all dims."""
        spaces = [*self.shapes(sizes), tuple(sizes.values())]
        return max(int(np.prod(space, dtype=np.int64)) for space in spaces)


def from_samples(spec: OpSpec, dtype: DType) -> list[Form]:
    """The forms of an op that `FAMILIES` does not name, made of its samples.

    Where its shape rule takes them, the dims of a sample become symbolic, equal sizes one dim, and other sizes are
    tried too. A sample is tried at its own sizes, known while compiling, in the op's first dtype, and in all of them
    where its dims are never symbolic.
    """

    def exactly(array: Array) -> Values:
        return lambda rng, shape, dtype: retype(array, dtype)

    varied, forms = numpy_dtype(BY_NAME[sample_dtype(spec)]), list[Form]()
    for sample in spec.samples:
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(7))]
        is_symbolic = False
        if all(array.dtype == varied for array in arrays):
            symbolic = list(_with_symbolic_dims(spec, sample.name, arrays, sample.attributes))
            is_symbolic = bool(symbolic)
            forms += symbolic
        if is_symbolic and dtype.name != sample_dtype(spec):
            continue
        operands = tuple(
            Operand(array.shape, "T" if array.dtype == varied else dtype_of(array).name, exactly(array))
            for array in arrays
        )
        forms.append(Form(sample.name, operands, ({},), constantly(**sample.attributes), is_fixed=True))
    return forms


SAMPLE_SIZES = (2, 33, 3, 131, 5, 17, 8)
"""What a symbolic dim of a sample is tried at beside the sample's own size.

Dims take neighbours: large ones are apart, as an op may compute a square of one for each element of others.
"""


def _with_symbolic_dims(
    spec: OpSpec, name: str, arrays: Sequence[Array], attributes: Mapping[str, Any]
) -> Iterator[Form]:
    """The form of a sample with a symbol for each size over 1, at the sizes that the shape rule takes."""
    found = {size for array in arrays for size in array.shape if size > 1}
    letters = dict(zip(sorted(found), "ABCDEFGH", strict=False))
    if not letters or len(letters) < len(found):
        return
    filled, dtype = spec.with_defaults(attributes), dtype_of(arrays[0])

    def is_taken(sizes: Mapping[str, DimLike]) -> bool:
        shapes = [[sizes[letters[size]] if size > 1 else size for size in array.shape] for array in arrays]
        try:
            spec.infer(Rules(), [TensorType.of(shape, dtype) for shape in shapes], filled)
        except (RuleError, RuleDTypeError, TesseraError):
            return False
        return True

    if not is_taken({letter: letter for letter in letters.values()}):
        return
    own = {letter: size for size, letter in letters.items()}
    others = [{one: SAMPLE_SIZES[(at + turn) % len(SAMPLE_SIZES)] for at, one in enumerate(own)} for turn in range(7)]

    def dim_of(size: int) -> str | int:
        return letters.get(size, size)

    dims = [tuple(map(dim_of, array.shape)) for array in arrays]
    values = positive if all(array.dtype.kind == "f" and (array > 0).all() for array in arrays) else numbers
    operands = tuple(Operand(one, values=values) for one in dims)
    sizes = tuple(one for one in (own, *others) if is_taken(one))
    yield Form(f"{name}, symbolic dims", operands, sizes, constantly(**attributes))


@dataclass
class Case:
    """A form with one of its sizes: the arrays, and what the reference is to be asked."""

    arrays: list[Array]
    attributes: Mapping[str, Any]
    given: list[Any] = field(default_factory=list[Any])


def case_of(spec: OpSpec, dtype: DType, form: Form, number: int) -> Case:
    """The arrays of one size, the same in every run, laid out in a way of their own."""
    sizes = form.sizes[number]
    rng = np.random.default_rng(zlib.crc32(f"{spec.name} {dtype} {form.name} {number}".encode()))
    arrays = [
        np.asarray(operand.values(rng, shape, operand.dtype_in(dtype)))
        for operand, shape in zip(form.operands, form.shapes(sizes), strict=True)
    ]
    passed = [(array, operand) for array, operand in zip(arrays, form.operands, strict=True) if operand.passed]
    types = [TensorType.of(array.shape, operand.dtype_in(dtype)) for array, operand in passed]
    given = form.attributes({name: Dim.constant(size) for name, size in sizes.items()}, dtype)
    # What sizes decide, as lengths of segments, is part of the recipe: the reference is asked what the program is.
    case = Case([array for array, _ in passed], spec.complete(given, types))
    for at, (array, operand) in enumerate(zip(arrays, form.operands, strict=True)):
        placed = laid_out(array, number + at)
        case.given.append(Tensor.of(placed, dt.i4) if operand.dtype_in(dtype) is dt.i4 else placed)
    return case


def laid_out(array: Array, number: int) -> Array:
    """The same values in memory as they are, column by column, backwards, with gaps, or off any alignment."""
    if not array.ndim or not array.size or number % 5 == 0:
        return array
    if number % 5 == 1:
        return np.asfortranarray(array)
    if number % 5 == 2:
        return np.flip(np.flip(array).copy())
    if number % 5 == 3:
        roomy = np.zeros([2 * size + 1 for size in array.shape], array.dtype)
        view = roomy[tuple(slice(1, None, 2) for _ in array.shape)]
        view[...] = array
        return view
    shifted = np.zeros(array.size + 1, array.dtype)[1:].reshape(array.shape)
    shifted[...] = array
    return shifted


def _applied(spec: OpSpec, dtype: DType, form: Form, operands: Sequence[Any], sizes: Sizes) -> Any:
    """The op on traced operands; sizes that are not given are read from them."""
    dims = {name: Dim.constant(size) for name, size in sizes.items()}
    for operand, given in zip(form.operands, operands, strict=True):
        for dim, size in zip(operand.dims, given.type.shape, strict=True):
            if isinstance(dim, str):
                dims.setdefault(dim, size)
    passed = [given for operand, given in zip(form.operands, operands, strict=True) if operand.passed]
    return dispatch.apply(spec.name, passed, form.attributes(dims, dtype))


def unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that `jit` does not look into: a program that holds an op's spec and form is watched all through.

    What `jit` sees of the world outside is tested in `tests/api/test_captures.py`, and takes time for each program.
    """
    # A method of a dict is itself, and what the dict holds is not looked at.
    hidden = cast("Callable[[str], Callable[..., Any]]", {"": function}.get)
    return lambda *operands: hidden("")(*operands)


def turn_of(spec: OpSpec, dtype: DType) -> int:
    """A number by which dtypes of an op, and ops, take turns at what not all of them need."""
    return spec.dtypes.index(dtype.name) + zlib.crc32(spec.name.encode())


def free_program(spec: OpSpec, dtype: DType, form: Form) -> Jit:
    """The op as a jitted function in which every named dim is free."""

    def apply(*operands: Any) -> Any:
        return _applied(spec, dtype, form, operands, {})

    return _annotated(spec, unwatched(apply), zip(ascii_lowercase, _annotations(dtype, form, ""), strict=False))


def joint_program(spec: OpSpec, dtype: DType, forms: Sequence[Form]) -> Jit:
    """The op in several forms, every named dim free in each for itself: operands form by form, a result each.

    One program compiles in less time than one for each form; kernels are the same.
    """

    def apply(*operands: Any) -> Any:
        rest = iter(operands)
        parts = [[next(rest) for _ in form.operands] for form in forms]
        return [_applied(spec, dtype, form, part, {}) for form, part in zip(forms, parts, strict=True)]

    named_annotations = [
        (f"{letter}{number}", annotation)
        for number, form in enumerate(forms)
        for letter, annotation in zip(ascii_lowercase, _annotations(dtype, form, str(number)), strict=False)
    ]
    return _annotated(spec, unwatched(apply), named_annotations)


def _annotations(dtype: DType, form: Form, mark: str) -> list[TensorAnnotation]:
    """What each operand is, its dims told apart from those of other forms by a mark."""
    return [
        TensorAnnotation(
            tuple(Dim.of(f"{dim}{mark}" if isinstance(dim, str) else dim) for dim in operand.dims),
            operand.dtype_in(dtype),
        )
        for operand in form.operands
    ]


def _annotated(spec: OpSpec, function: Any, annotations: Iterable[tuple[str, TensorAnnotation]]) -> Jit:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__name__ = spec.short_name
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, annotation=one) for name, one in annotations]
    )
    return Jit(function)


def static_program(spec: OpSpec, dtype: DType, form: Form, chosen: Sequence[Sizes]) -> Jit:
    """The op at several sizes, all known while compiling: operands of one after those of the other, a result each."""
    count = len(form.operands)

    def apply(*operands: Any) -> Any:
        parts = [operands[at * count : (at + 1) * count] for at in range(len(chosen))]
        return [_applied(spec, dtype, form, part, sizes) for part, sizes in zip(parts, chosen, strict=True)]

    function = unwatched(apply)
    function.__name__ = f"static_{spec.short_name}"
    return Jit(function)


def results(outcome: Any) -> list[Array]:
    """What a program or a reference gave, as arrays."""
    return [np.asarray(item) for item in as_tuple(outcome)]


def named(names: str, *values: Sequence[int]) -> tuple[Sizes, ...]:
    """Sizes from a letter for each dim and rows of numbers.

    >>> named("AB", (3, 5))
    ({'A': 3, 'B': 5},)
    """
    return tuple(dict(zip(names, row, strict=True)) for row in values)


PAIRS = (
    (1, 1), (1, 7), (7, 1), (0, 5), (5, 0), (2, 3), (3, 5), (5, 8), (7, 16), (13, 17), (31, 32), (1, 33), (64, 64),
    (17, 67), (127, 3), (3, 257), (61, 97), (1, 1021), (521, 2), (65, 129), (257, 263),
)  # fmt: skip
"""Twenty-one matrices: empty, single, thin, prime, below and above each vector width, and of more than 2**16."""

FULL = tuple(pair for pair in PAIRS if min(pair) > 0)
MATRIX = named("AB", *PAIRS)
LINE = named("A", (1,), (0,), (7,), (32,), (131,), (1021,))
CUBE = named("ABC", (1, 1, 1), (2, 3, 5), (4, 0, 2), (7, 1, 33), (3, 17, 16), (5, 13, 67))
SCALAR = named("", ())


def constantly(**attributes: Any) -> Attributes:
    """The same attributes for all sizes and dtypes."""
    return lambda dims, dtype: attributes
