"""Products and sums over axes of complex tensors: each is a few real ones.

A product of two complex tensors is four of their parts, rather than the three of Gauss: those cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.diagnostics.codes import ShapeError
from tessera.frontend.complex.arithmetic import abs, multiply
from tessera.frontend.complex.parts import Parts, as_complex, check_dtype, join, parts_of
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import algebra, contraction, lookup, movement, reduction, statistics
from tessera.frontend.functions.creation import full, zeros
from tessera.frontend.functions.indexing import take
from tessera.frontend.functions.operands import along_axis, cast, rank_of, reduced_axes, shape_dims
from tessera.frontend.size import size_of
from tessera.types.dtype import i64


def combine(function: Callable[[Any, Any], Any], a: Parts, b: Parts) -> ComplexTensor:
    """What a function that is linear in both operands makes of complex ones."""
    if b.imag is None:
        return join(function(a.real, b.real), None if a.imag is None else function(a.imag, b.real))
    if a.imag is None:
        return join(function(a.real, b.real), function(a.real, b.imag))
    return join(
        function(a.real, b.real) - function(a.imag, b.imag), function(a.real, b.imag) + function(a.imag, b.real)
    )


def bilinear(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is linear in its first two arguments, on complex ones."""

    def call(a: Any, b: Any, *args: Any, **given: Any) -> ComplexTensor:
        return combine(lambda x, y: function(x, y, *args, **given), *parts_of(function.__name__, a, b))

    return call


def matmul(a: Any, b: Any, *, dtype: Any = None, accumulate: Any = None) -> ComplexTensor:
    """The matrix product, of four real ones; `dtype` is that of the result, `accumulate` that of sums of parts."""
    made = combine(lambda x, y: contraction.matmul(x, y, accumulate=accumulate), *parts_of("matmul", a, b))
    return made if dtype is None else as_complex(made, check_dtype("matmul", dtype))


def vecdot(a: Any, b: Any, axis: int = -1) -> ComplexTensor:
    """Sums of products along an axis, of the conjugates of `a`."""
    first, second = parts_of("vecdot", a, b)
    return combine(lambda x, y: algebra.vecdot(x, y, axis), _conj(first), second)


def _conj(parts: Parts) -> Parts:
    return Parts(parts.real, None if parts.imag is None else -parts.imag)


def einsum(equation: str, *operands: Any, dtype: Any = None) -> ComplexTensor:
    """Sums of products of operands, as `equation` pairs their axes: linear in each of them."""
    made = _einsum(equation, [], parts_of("einsum", *operands))
    return join(*made) if dtype is None else as_complex(join(*made), check_dtype("einsum", dtype))


def _einsum(equation: str, done: list[Any], left: list[Parts]) -> Parts:
    """The sums for some operands that are real, and others that are not known to be."""
    if not left:
        return Parts(contraction.einsum(equation, *done))
    one, *others = left
    whole = _einsum(equation, [*done, one.real], others)
    if one.imag is None:
        return whole
    other = _einsum(equation, [*done, one.imag], others)
    real = whole.real if other.imag is None else whole.real - other.imag
    return Parts(real, other.real if whole.imag is None else whole.imag + other.real)


# Reductions and running products.


def prod(x: Any, axis: Any = None, *, keepdims: bool = False) -> ComplexTensor:
    """Product over `axis`, in pairs of halves; sizes along it are numbers."""
    z = as_complex(x)
    axes = reduced_axes("prod", axis, rank_of(z.real))
    parts = Parts(z.real, z.imag)
    for at in axes:
        parts = _multiply_along(parts, at)
    if not keepdims and axes:
        parts = Parts(*(movement.squeeze(part, axes) for part in parts))
    return join(*parts)


def _multiply_along(parts: Parts, axis: int) -> Parts:
    """The product along an axis, which is of size 1 then."""
    size = _known_size("prod", parts.real, axis)
    if not size:
        sizes = tuple(1 if at == axis else size_of(dim) for at, dim in enumerate(shape_dims(parts.real)))
        return Parts(full(sizes, 1.0, parts.dtype), zeros(sizes, parts.dtype))
    while size > 1:
        half = size // 2
        low, high, last = (
            Parts(*(_slice(part, axis, start, stop) for part in parts))
            for start, stop in ((0, half), (half, 2 * half), (2 * half, size))
        )
        parts = multiply(low, high)
        if size % 2:
            parts = Parts(*(movement.concat(list(pair), axis) for pair in zip(parts, last, strict=True)))
        size = half + size % 2
    return parts


def cumprod(x: Any, axis: int = -1) -> ComplexTensor:
    """Running product along `axis`, by doubling; the size along it is a number."""
    z = as_complex(x)
    return ComplexTensor(*along_axis("cumprod", z.real, axis, lambda _, at: _run(z, at)))


def _run(z: ComplexTensor, axis: int) -> tuple[Any, Any]:
    if not rank_of(z.real):
        return movement.expand_dims(z.real, 0), movement.expand_dims(z.imag, 0)
    parts, size, step = Parts(z.real, z.imag), _known_size("cumprod", z.real, axis), 1
    while step < size:
        # Each element times that which stands so many before it.
        earlier = Parts(*(_slice(part, axis, 0, size - step) for part in parts))
        later = Parts(*(_slice(part, axis, step, size) for part in parts))
        first = Parts(*(_slice(part, axis, 0, step) for part in parts))
        made = multiply(earlier, later)
        parts = Parts(*(movement.concat(list(pair), axis) for pair in zip(first, made, strict=True)))
        step *= 2
    return parts.real, parts.imag


def _known_size(op: str, x: Any, axis: int) -> int:
    size = shape_dims(x)[axis].value
    if size is None:
        raise ShapeError(
            f"`{op}` of complex numbers needs a size that is a number, got `x.shape[{axis}] = {shape_dims(x)[axis]}`",
            fix="pass the tensor with that size static",
        )
    return size


def _slice(x: Any, axis: int, start: int, stop: int) -> Any:
    size = shape_dims(x)[axis].value
    assert size is not None, "only axes of known sizes are cut"
    sizes = (start, stop - start, size - stop)
    return movement.split(x, sizes, axis)[1]


def var(x: Any, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
    """Variance over `axis`, a real number: the sum of those of both parts."""
    z = as_complex(x)
    first, second = (reduction.var(part, axis, keepdims=keepdims, correction=correction) for part in (z.real, z.imag))
    return first + second


def norm(x: Any, axis: Any = None, *, order: float = 2, keepdims: bool = False) -> Any:
    """Vector norm over `axis`: that of the sizes of elements."""
    return reduction.norm(abs(x), axis, order=order, keepdims=keepdims)


def diff(x: Any, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None) -> ComplexTensor:
    """Differences of neighbours along `axis`, taken `n` times."""
    given = [one for one in (prepend, x, append) if one is not None]
    listed = [join(*parts) for parts in parts_of("diff", *given)]
    before = listed[0] if prepend is not None else None
    after = listed[-1] if append is not None else None
    own = listed[prepend is not None]
    made = (
        statistics.diff(
            getattr(own, part), n, axis, prepend=getattr(before, part, None), append=getattr(after, part, None)
        )
        for part in ("real", "imag")
    )
    return ComplexTensor(*made)


# Distinct elements.


def unique_all(x: Any, *, size: Any = None) -> tuple[Any, Any, Any, Any]:
    """Distinct elements by their real, then their imaginary part; as of real tensors otherwise.

    Each part of an element is a number of those that there are, so that two of them make one integer.
    """
    z = as_complex(x)
    flat = [movement.reshape(part, (-1,)) for part in (z.real, z.imag)]
    total = size_of(shape_dims(flat[0])[0])
    ranks = [lookup.unique_all(part, size=None if size is None else total)[2] for part in flat]
    numbers = ranks[0] * cast(full((), 1, i64) * total, i64) + ranks[1]
    _, where, inverse, counts = lookup.unique_all(numbers, size=size)
    found = ComplexTensor(*(take(part, where) for part in flat))
    return found, where, movement.reshape(inverse, tuple(z.real.shape)), counts


def unique(x: Any, *, size: Any = None) -> Any:
    """Distinct elements."""
    return unique_all(x, size=size)[0]
