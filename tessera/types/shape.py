"""Shapes of symbolic dims: broadcasting, axes, slices, reshapes, what is provable, and dimension paths for errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

from tessera.types.dim import Atom, Dim, DimLike, Monomial, maximum, minimum, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# What a value is: a shape of dims and an element type.


@frozen
class TensorType:
    """A tensor's dims and dtype; the type of every value of Graph IR and of every traced value."""

    shape: tuple[Dim, ...]
    dtype: DType

    @staticmethod
    def of(shape: Iterable[DimLike], dtype: DType) -> TensorType:
        return TensorType(tuple(Dim.of(dim) for dim in shape), dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """How many elements."""
        return product(self.shape)

    @property
    def bytes(self) -> Dim:
        return self.size * self.dtype.bytes

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for dim in self.shape for name in dim.symbols)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def with_shape(self, shape: Iterable[DimLike]) -> TensorType:
        return TensorType.of(shape, self.dtype)

    def substitute(self, env: Mapping[str, DimLike]) -> TensorType:
        return TensorType(tuple(dim.substitute(env) for dim in self.shape), self.dtype)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {self.dtype}"


Shape: TypeAlias = tuple[Dim, ...]

ZERO, ONE = Dim.constant(0), Dim.constant(1)


class ShapeContext(Protocol):
    """Who decides what a shape rule cannot: proves, guards, or fails at the user's line."""

    def equal(self, left: Dim, right: Dim, what: str) -> Dim: ...

    def fail(self, message: str, *, help: str = "") -> Exception: ...


def text(shape: Iterable[Dim]) -> str:
    """A shape as users read it.

    >>> text((Dim.symbol("B"), Dim.constant(3)))
    '[B, 3]'
    """
    return f"[{', '.join(map(str, shape))}]"


def path(name: str, axis: int, dim: Dim) -> str:
    """A dim by where it stands.

    >>> path("x", 2, Dim.symbol("D"))
    '`x.shape[2] = D`'
    """
    return f"`{name}.shape[{axis}] = {dim}`"


def is_refuted(left: Dim, right: Dim) -> bool:
    """Whether two sizes can never be equal."""
    difference = left - right
    return is_at_least(difference, 1) or is_at_least(-difference, 1)


@frozen
class Named:
    """A shape with the name it has in messages."""

    name: str
    shape: Shape


def broadcast(context: ShapeContext, op: str, *operands: Named) -> Shape:
    """The shape several operands broadcast to: trailing dims aligned, a static 1 stretches, others must be equal.

    Two dims that may be equal become a guard; two that cannot be are an error naming both.
    """
    if operands and all(operand.shape == operands[0].shape for operand in operands):
        return operands[0].shape
    rank = max((len(operand.shape) for operand in operands), default=0)
    result: list[Dim] = []
    for axis in range(rank):
        chosen: tuple[Dim, str] | None = None
        for operand in operands:
            own = axis - rank + len(operand.shape)
            if own < 0 or operand.shape[own].value == 1:
                continue
            here = operand.shape[own], path(operand.name, own, operand.shape[own])
            chosen = here if chosen is None else (_broadcast_dims(context, op, operands, chosen, here), chosen[1])
        result.append(ONE if chosen is None else chosen[0])
    return tuple(result)


def _broadcast_dims(
    context: ShapeContext, op: str, operands: Sequence[Named], left: tuple[Dim, str], right: tuple[Dim, str]
) -> Dim:
    if left[0] == right[0]:
        return left[0]
    if is_refuted(left[0], right[0]):
        shapes = " with ".join(text(operand.shape) for operand in operands)
        raise context.fail(
            f"`{op}` cannot broadcast {shapes}: {left[1]} and {right[1]} differ",
            help="dims broadcast when they are equal, or when one of them is the number 1",
        )
    what = f"`{op}` broadcasts {left[1]} with {right[1]}"
    # Only a trace may assume that a symbolic dim is a broadcast 1; later stages see the 1 itself.
    stretches = getattr(context, "stretches", None)
    if stretches is not None:
        for dim, other in ((left[0], right[0]), (right[0], left[0])):
            if stretches(dim, other, what):
                return other
    return context.equal(left[0], right[0], what)


def equal_dims(context: ShapeContext, op: str, left: Dim, right: Dim, what: str) -> Dim:
    """The one size two dims must be; `what` names both for the message (`` `x.shape[0] = B` and ... ``)."""
    if left == right:
        return left
    if is_refuted(left, right):
        raise context.fail(f"`{op}` needs equal sizes: {what} differ")
    return context.equal(left, right, f"`{op}` needs equal sizes: {what}")


def normalize_axis(context: ShapeContext, op: str, axis: int, rank: int) -> int:
    """The axis counted from the front; negative axes count from the end."""
    if not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "none, as it is a scalar"
        raise context.fail(f"`{op}` has no axis {axis} on a value of rank {rank}", help=f"axes are {allowed}")
    return axis % rank


def normalize_axes(context: ShapeContext, op: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front and sorted; one given twice is an error."""
    normal = sorted(normalize_axis(context, op, axis, rank) for axis in axes)
    for left, right in pairwise(normal):
        if left == right:
            raise context.fail(f"`{op}` got axis {left} twice")
    return tuple(normal)


def without_axes(shape: Shape, axes: Sequence[int], *, keepdims: bool) -> Shape:
    """What reducing `axes` leaves of a shape."""
    if keepdims:
        return tuple(ONE if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def is_at_least(dim: Dim, bound: int) -> bool:
    """Whether `dim >= bound` for all sizes its symbols can have (0 and up); False means not proven."""
    return _lower_is(dim - bound, level=6)


def _lower_is(dim: Dim, level: int) -> bool:
    """Whether `dim >= 0` is provable, taking one max or min atom apart at a time."""
    if dim.value is not None:
        return dim.value >= 0
    for monomial, coefficient in dim.terms:
        if level and len(monomial) == 1 and monomial[0].kind in ("max", "min"):
            others = dim - Dim(((monomial, coefficient),))
            proofs = (_lower_is(others + arg * coefficient, level - 1) for arg in monomial[0].args)
            # c*max(a, b) is at least either of c*a and c*b when c > 0, and is one of them in any case
            return any(proofs) if (monomial[0].kind == "max") == (coefficient > 0) else all(proofs)
    total = 0
    for monomial, coefficient in dim.terms:
        bound = _monomial_bound(monomial, lower=coefficient > 0)
        if bound is None:
            return False
        total += coefficient * bound
    return total >= 0


def _monomial_bound(monomial: Monomial, *, lower: bool) -> int | None:
    """A bound of a product of atoms from one side; None when there is none."""
    bounds = [_atom_range(atom) for atom in monomial]
    if any(low is None for low, _ in bounds):
        return None
    result = 1
    for low, high in bounds:
        bound = low if lower else high
        if bound is None:
            return None
        result *= bound
    return result


def _atom_range(atom: Atom) -> tuple[int | None, int | None]:
    """0 where an atom is proved to be no less, and the largest value of it, where known."""
    if atom.kind == "symbol":
        return 0, None
    first, second = atom.args
    if atom.kind == "mod" and second.value is not None and second.value >= 0:
        return 0, max(second.value - 1, 0)
    return (0 if _lower_is(first, level=4) and _lower_is(second, level=4) else None), None


def is_at_most(left: Dim, right: Dim) -> bool:
    """Whether `left <= right` is provable."""
    return is_at_least(right - left, 0)


def clamp(dim: Dim, low: Dim, high: Dim) -> Dim:
    """`dim` held within `low..high`, without the parts that are provable."""
    if not is_at_most(dim, high):
        dim = high if is_at_most(high, dim) else minimum(dim, high)
    if not is_at_most(low, dim):
        dim = low if is_at_most(dim, low) else maximum(dim, low)
    return dim


def normalize_slice(
    size: Dim, start: DimLike | None, stop: DimLike | None, step: int | None
) -> tuple[Dim, Dim, int, Dim]:
    """Python's `start:stop:step` on an axis of `size`, as (start, stop, step, extent) that need no more clamping.

    Negative ints count from the end. The result walks `start, start + step, ...` up to and without `stop`, which is -1
    for a negative step that reaches element 0. Raises ValueError for a step of 0.
    """
    step = 1 if step is None else step
    if step == 0:
        raise ValueError("a slice step cannot be 0")
    is_forward = step > 0
    low, high = (ZERO, size) if is_forward else (Dim.constant(-1), size - 1)
    first = (low if is_forward else high) if start is None else _bound(size, start, low, high)
    last = (high if is_forward else low) if stop is None else _bound(size, stop, low, high)
    return first, last, step, slice_extent(first, last, step, size)


def _bound(size: Dim, given: DimLike, low: Dim, high: Dim) -> Dim:
    dim = Dim.of(given)
    if dim.value is not None and dim.value < 0:
        dim = dim + size
    return clamp(dim, low, high)


def slice_extent(start: Dim, stop: Dim, step: int, size: Dim | None = None) -> Dim:
    """How many elements `start, start + step, ...` has before `stop`; all of an axis of `size` are just that.

    An axis has at least 0 elements, also one of `N - 2`, of which nothing but a guard says so.
    """
    if size is not None and step == 1 and start == ZERO and stop == size:
        return size
    distance, stride = (stop - start, step) if step > 0 else (start - stop, -step)
    if not is_at_least(distance, 0):
        distance = ZERO if is_at_least(-distance, 0) else maximum(distance, 0)
    return distance.ceildiv(stride)


def resolve_reshape(context: ShapeContext, op: str, size: Dim, dims: Sequence[DimLike]) -> Shape:
    """The dims of a reshape with its one `-1` replaced by what is left of `size`."""
    given = [Dim.of(dim) for dim in dims]
    unknown = [axis for axis, dim in enumerate(given) if dim.value == -1]
    if not unknown:
        return tuple(given)
    if len(unknown) > 1:
        raise context.fail(f"`{op}` can work out one dim of -1, got {len(unknown)}")
    known = product(dim for dim in given if dim.value != -1)
    if known.value == 0:
        raise context.fail(f"`{op}` cannot work out -1 beside a dim of 0", help="write the size instead of -1")
    if (size % known).value not in (None, 0):
        raise context.fail(f"`{op}` cannot split {size} elements into {text(given)}: {size} is no multiple of {known}")
    given[unknown[0]] = size // known
    return tuple(given)
