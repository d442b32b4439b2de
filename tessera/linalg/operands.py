"""Operands of linear algebra: matrices of known sizes in one dtype, and programs that an eager call compiles once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from inspect import signature
from typing import Any

from tessera.api.jit import Jit
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.complex.dispatch import has_complex, is_complex
from tessera.frontend.complex.parts import promote_complex
from tessera.frontend.complex.tensor import ComplexTensor, adopt_complex
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, is_tensor, promote_operands
from tessera.frontend.functions.operands import dtype_of as real_dtype_of
from tessera.frontend.pytree import flatten, unflatten
from tessera.frontend.subprograms import type_of
from tessera.ir.base import dispatch
from tessera.types.dtype import DType, f32, i64
from tessera.types.promotion import FLOATING

LEAF = 32
"""Rows or columns that are computed one after the other: on a CPU 64 take longer at 64 and 256 rows, and with 16 there
is as much to do and twice as much to compile."""
LEAVES = 16
"""Leaves of a recursion at most, so that programs of large matrices are no longer than those of 1024 rows."""
PROGRAMS = 512
"""Compiled programs that eager calls keep; each is for one shape and dtype."""


class Program:
    """A function of tensors, traced into the trace around its call, or compiled for the shapes of an eager call.

    Its keyword arguments are settings. Each shape has a `Jit` of its own, so that none is compiled again and again.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._compiled = functools.lru_cache(maxsize=PROGRAMS)(self._compile)

    def _compile(self, types: tuple[Any, ...], settings: tuple[tuple[str, Any], ...]) -> Jit:
        return Jit(functools.partial(self.function, **dict(settings)))

    def __call__(self, *tensors: Any, **settings: Any) -> Any:
        if dispatch.tracing() is not None:
            return self.function(*tensors, **settings)
        types = tuple(_type_of(tensor) for tensor in tensors)
        return self._compiled(types, tuple(sorted(settings.items())))(*tensors)


def dtype_of(x: Any) -> Any:
    """The dtype of a tensor, real or complex."""
    return x.dtype if isinstance(x, ComplexTensor) else real_dtype_of(x)


def _type_of(tensor: Any) -> Any:
    return ("complex", type_of(tensor.real)) if isinstance(tensor, ComplexTensor) else type_of(tensor)


def take_tensors(op: str, *values: Any) -> list[Any]:
    """Values as tensors of one floating or complex dtype: integers become floats."""
    if has_complex(values):
        return [*promote_complex(op, [adopt_complex(value) if is_complex(value) else value for value in values])]
    return promote_operands(op, [as_tensor(value) for value in values], FLOATING)


def narrow_floats(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function whose first `count` arguments may be narrow floats: it computes in f32, and rounds once at the end."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        names = tuple(signature(function).parameters)[:count]

        @functools.wraps(function)
        def call(*args: Any, **settings: Any) -> Any:
            named = names[len(args) :]
            if named and all(name in settings for name in named):
                args = (*args, *(settings[name] for name in named))
                settings = {name: value for name, value in settings.items() if name not in named}
            given = [value for value in args[:count] if is_tensor(value) and not is_complex(value)]
            if not any(dtype_of(value).is_float and dtype_of(value).bits < 32 for value in given):
                return function(*args, **settings)
            narrow = dtype_of(promote_operands(function.__name__, given, FLOATING)[0])
            wide = [cast(value, f32) if is_tensor(value) and narrow.bits < 32 else value for value in args[:count]]
            made, tree = flatten(function(*wide, *args[count:], **settings))
            return unflatten(tree, [cast(one, narrow) if dtype_of(one) is f32 else one for one in made])

        return call

    return wrap


def take_matrix(op: str, value: Any, name: str = "a") -> Any:
    """A tensor of matrices; raises ShapeError (T0101) unless both sizes of its matrices are known."""
    (a,) = take_tensors(op, value)
    check_matrix(op, a, name)
    return a


def take_square(op: str, value: Any, name: str = "a") -> Any:
    """A tensor of square matrices."""
    a = take_matrix(op, value, name)
    check_square(op, a, name)
    return a


def check_matrix(op: str, a: Any, name: str = "a") -> None:
    """Raise ShapeError (T0101) unless the last two dims are those of matrices, of sizes that are known."""
    if len(a.shape) < 2:
        raise ShapeError(
            f"`{op}` takes `{name}` as matrices, in its last two dims, got {list(a.shape)}",
            fix=f"write `{name}[:, None]` for a matrix of one column",
        )
    for axis in (-2, -1):
        check_known(op, a, axis, name)


def check_known(op: str, a: Any, axis: int, name: str) -> int:
    """The size of an axis; raises ShapeError (T0101) where it is symbolic."""
    size = a.shape[axis]
    if not isinstance(size, int):
        raise ShapeError(
            f"`{op}` takes matrices of known sizes, got `{name}.shape[{axis}] = {size}`",
            notes=("rule: the blocks of a factorization are decided at compile time; leading dims may be symbolic",),
            fix=f"write the number of rows and columns in the annotation of `{name}`",
        )
    return size


_OF_ANY_SHAPE = {
    "solve": "lstsq",
    "solve_triangular": "lstsq",
    "inv": "pinv",
    "eigh": "svd",
    "eigvalsh": "svdvals",
}
"""Functions of square matrices, and what does the same for others."""


def check_square(op: str, a: Any, name: str = "a") -> None:
    """Raise ShapeError (T0101) for matrices that are not square."""
    rows, columns = a.shape[-2:]
    if rows != columns:
        other = _OF_ANY_SHAPE.get(op)
        raise ShapeError(
            f"`{op}` takes square matrices, got {rows} rows and {columns} columns",
            notes=(f"`{name}` is {list(a.shape)}",),
            fix=f"use `tessera.linalg.{other}`, which takes others too" if other else "give it as many rows as columns",
        )


def check_rows(op: str, a: Any, b: Any, *, is_vector: bool = False, is_transposed: bool = False) -> None:
    """Raise ShapeError (T0101) unless a right-hand side has as many rows as the matrix.

    Where a vector was given, `b` is that as one column; where it `is_transposed`, its columns were given.
    """
    if len(b.shape) < 2:
        raise ShapeError(f"`{op}` takes `b` as a vector or as matrices, got a scalar", fix="write `b[None]`")
    rows = b.shape[-2]
    if isinstance(rows, int) and rows != a.shape[-2]:
        of_columns = is_transposed and not is_vector
        given = b.shape[:-1] if is_vector else (*b.shape[:-2], b.shape[-1], rows) if of_columns else b.shape
        is_batch = not is_vector and not of_columns and b.shape[-1] == a.shape[-2]
        dim = "columns" if of_columns else "rows"
        raise ShapeError(
            f"`{op}` takes `b` with as many {dim} as `a`, got {rows} and {a.shape[-2]}",
            notes=(
                f"`a` is {list(a.shape)}, and `b` is {list(given)}",
                *(("rule: only a `b` of one dim is a vector",) if is_batch else ()),
            ),
            fix="write `b[..., None]` for a batch of vectors" if is_batch else f"give `b` {a.shape[-2]} {dim}",
        )


def check_choice(op: str, name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ArgumentError (T0202) for a setting that is none of those there are."""
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        listed = ", ".join(map(repr, choices))
        raise ArgumentError(f"`{op}` takes `{name}` as one of {listed}, got {value!r}")


# Shapes: every factorization computes on [batch, rows, columns].


def as_batch(a: Any) -> Any:
    """Matrices in one batch, [B, rows, columns]: one matrix has the shapes of many, and so the same bits."""
    return ops.reshape(a, (math.prod(a.shape[:-2]), *a.shape[-2:]))


def like_batch(x: Any, a: Any, rank: int = 2) -> Any:
    """What was computed of `as_batch(a)`, with the leading dims of `a`; `rank` dims of it are those of one result."""
    return ops.reshape(x, (*a.shape[:-2], *x.shape[len(x.shape) - rank :]))


def broadcast_batch(*matrices: Any) -> list[Any]:
    """Matrices with their leading dims broadcast to each other."""
    first, *others = matrices
    if all(tuple(one.shape[:-2]) == tuple(first.shape[:-2]) for one in others):
        return [*matrices]
    marks = ops.broadcast_arrays(*(ops.zeros(tuple(one.shape[:-2]), dtype_of(one)) for one in matrices))
    return [ops.broadcast_to(one, (*marks[0].shape, *one.shape[-2:])) for one in matrices]


def index_of(size: int) -> Any:
    """The numbers 0, 1, ... of the rows or columns of a matrix."""
    return ops.iota((size,), dtype=i64)


# Pieces of matrices.


def transpose(a: Any) -> Any:
    """The transpose, without conjugation."""
    return ops.swapaxes(a, -1, -2)


def adjoint(a: Any) -> Any:
    """The conjugate transpose."""
    return ops.swapaxes(ops.conj(a), -1, -2)


def eye_like(a: Any, rows: int | None = None) -> Any:
    """The identity of the columns of `a`, to be broadcast; with `rows`, its first so many rows."""
    size = a.shape[-1]
    return ops.eye(size if rows is None else rows, size, dtype=dtype_of(a))


def diagonal(a: Any) -> Any:
    """The diagonals of matrices."""
    return ops.diagonal(a, -2, -1)


def pad_matrix(a: Any, rows: int, columns: int) -> Any:
    """Matrices with zeros below and beside them, up to so many rows and columns."""
    widths = [(0, 0)] * (len(a.shape) - 2)
    return ops.pad(a, [*widths, (0, rows - a.shape[-2]), (0, columns - a.shape[-1])])


def take_rows(a: Any, order: Any) -> Any:
    """The rows of each matrix of a batch in an order of its own: `order` is [B, rows]."""
    index = ops.broadcast_to(order[:, :, None], (*order.shape, a.shape[-1]))
    return ops.take_along_axis(a, index, 1)


def scale_of(a: Any) -> Any:
    """A power of two near the largest element of each matrix, [B, 1, 1]: with it squares neither overflow nor vanish.

    It is 1 for matrices of zeros, and for those with infinities or NaNs.
    """
    largest = ops.max(ops.abs(a), (-2, -1), keepdims=True)
    is_usual = (largest > 0) & ops.isfinite(largest)
    return ops.where(is_usual, ops.exp2(ops.floor(ops.log2(ops.where(is_usual, largest, 1.0)))), 1.0)


def split_size(size: int, leaf: int) -> int:
    """Where a recursion halves `size` rows: at a multiple of its leaves, so that most leaves are one kernel."""
    return leaf * ((-(-size // leaf) + 1) // 2)


def leaf_size(size: int, least: int = LEAF) -> int:
    """Rows or columns up to which a recursion over `size` goes one by one: it has `LEAVES` leaves at most."""
    return max(least, -(-size // (LEAVES * 8)) * 8)


def epsilon_of(dtype: DType) -> float:
    """The distance from 1 to the next number of f32 or f64."""
    return 2.0**-52 if dtype.name == "f64" else 2.0**-23
