"""Index maps: composing and linearizing them, dims that can be walked as one, and the maps of view ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain, permutations
from typing import TypeAlias

from tessera.types.dim import Atom, Dim, product
from tessera.types.shape import ONE, ZERO, Shape, TensorType

IndexMap: TypeAlias = tuple[Dim, ...]
"""One expression per dim of the tensor read, over the coordinates `d0`, `d1`, ... of the tensor written."""


def coordinate(axis: int) -> Dim:
    """The symbol `d<axis>`: a coordinate of the result."""
    return Dim.symbol(f"d{axis}")


@cache
def coordinates(rank: int) -> IndexMap:
    """The identity map of a rank."""
    return tuple(coordinate(axis) for axis in range(rank))


def compose(inner: IndexMap, at: Sequence[Dim]) -> IndexMap:
    """`inner` over `d0`, `d1`, ... read at the coordinates `at`."""
    return _compose(tuple(inner), tuple(at))


@lru_cache(maxsize=1 << 12)  # layers repeat, and so do their views
def _compose(inner: IndexMap, at: IndexMap) -> IndexMap:
    env = {f"d{axis}": expr for axis, expr in enumerate(at)}
    return tuple(simplify(expr.substitute(env)) for expr in inner)


def broadcast_at(operand: TensorType, out: TensorType, at: Sequence[Dim]) -> IndexMap:
    """Where an operand is read for a result at `at`: trailing dims aligned, a static 1 stretched."""
    if operand.shape == out.shape:
        return tuple(at)
    offset = out.rank - operand.rank
    return tuple(
        ZERO if dim.value == 1 and out.shape[axis + offset].value != 1 else at[axis + offset]
        for axis, dim in enumerate(operand.shape)
    )


def strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Elements between neighbours along each dim of a contiguous tensor."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def linear(at: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """The row-major offset of an element in a contiguous tensor."""
    return _linear_offset(tuple(at), tuple(shape))


@lru_cache(maxsize=1 << 12)
def _linear_offset(at: IndexMap, shape: Shape) -> Dim:
    total = ZERO
    for index, stride in zip(at, strides(shape), strict=True):
        total = total + index * stride
    return simplify(total)


def delinear(flat: Dim, shape: Sequence[Dim]) -> IndexMap:
    """Coordinates from an offset: the inverse of `linear`. The first dim of more than one element has what is left.

    Of a single element the last dim has the offset, so that it still reaches addresses.
    """
    found: list[Dim] = [ZERO] * len(shape)
    axes = [axis for axis, size in enumerate(shape) if size.value != 1] or list(range(len(shape)))[-1:]
    quotient = flat
    for axis in reversed(axes[1:]):
        found[axis] = quotient % shape[axis]
        quotient = quotient // shape[axis]
    if axes:
        found[axes[0]] = quotient
    return tuple(found)


def simplify(dim: Dim) -> Dim:
    """`c * (x mod k) + c * k * (x floordiv k)` is `c * x`, wherever both are terms of the sum.

    So is `c * (x mod k) + c * k * ((a + x floordiv k) mod m)` a multiple of one remainder, `(k * a + x) mod (k * m)`.
    """
    while (joined := _join_remainder(dim)) is not None:
        dim = joined
    return dim


def _join_remainder(dim: Dim) -> Dim | None:
    """The sum with one remainder less; None where none can be joined with anything.

    Quotients first: of `x mod 3`, `x floordiv 3 mod 3` and `x floordiv 3 floordiv 3` the last two are a quotient.
    """
    remainders = _atoms(dim, "mod")
    quotients = ((atom, whole, atom.args[0]) for atom in remainders for whole in _quotients(*atom.args))
    both = ((atom, whole, _remainder_of_both(atom, whole)) for atom, whole in permutations(remainders, 2))
    for atom, whole, joined in chain(quotients, both):
        factor, size = _coefficient(dim, atom), atom.args[1]
        if joined is not None and factor is not None and _coefficient(dim, whole) == factor * size:
            return dim + factor * (joined - _as_dim(atom) - size * _as_dim(whole))
    return None


def _remainder_of_both(atom: Atom, whole: Atom) -> Dim | None:
    """`(k * a + x) mod (k * m)` of `x mod k` and `(a + x floordiv k) mod m`; None where they are others."""
    (inner, size), (above, below) = atom.args, whole.args
    quotient = Atom("floordiv", "", (inner, size))
    factor = _coefficient(above, quotient)
    if factor is None or factor.value != 1:
        return None
    return ((above - _as_dim(quotient)) * size + inner) % (size * below)


def _atoms(dim: Dim, kind: str) -> list[Atom]:
    return list({atom: None for monomial, _ in dim.terms for atom in monomial if atom.kind == kind})


def _as_dim(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def _quotients(inner: Dim, size: Dim) -> list[Atom]:
    """The forms of `inner floordiv size`: of `a + x floordiv k` it may be one quotient by both divisors."""
    found = [Atom("floordiv", "", (inner, size))]
    for atom in _atoms(inner, "floordiv"):
        factor, (above, below) = _coefficient(inner, atom), atom.args
        if factor is not None and factor.value == 1:
            found.append(Atom("floordiv", "", ((inner - _as_dim(atom)) * below + above, below * size)))
    return found


def _coefficient(dim: Dim, atom: Atom) -> Dim | None:
    """The factor of an atom in a sum; None where it is squared or absent."""
    total: Dim | None = None
    for monomial, coefficient in dim.terms:
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            at = monomial.index(atom)
            part = Dim(((monomial[:at] + monomial[at + 1 :], coefficient),))
            total = part if total is None else total + part
    return total


def collapse(
    names: Sequence[str], extents: Sequence[Dim], addresses: Sequence[Dim], numbers: Sequence[Dim] = ()
) -> list[list[int]]:
    """Groups of neighbouring dims that every address walks as one.

    Dims `i` and `i + 1` join when each address grows by `extent[i + 1]` times as much along `i` as along `i + 1`, and
    neither is wanted as a number. Dims of one element join any neighbour.
    """
    wanted = frozenset[str]().union(*(number.symbols for number in numbers))
    groups: list[list[int]] = [[0]] if names else []
    # The last dim of the group that takes more than one value: what lies between it and the next is walked by neither.
    last = None if not names or extents[0].value == 1 else 0
    for right in range(1, len(names)):
        if extents[right].value == 1:
            groups[-1].append(right)
            continue
        joins = last is None or (
            not {names[last], names[right]} & wanted
            and all(_walks_as_one(address, names[last], names[right], extents[right]) for address in addresses)
        )
        if joins:
            groups[-1].append(right)
        else:
            groups.append([right])
        last = right
    return groups


def _walks_as_one(address: Dim, left: str, right: str, extent: Dim) -> bool:
    outer, inner = address.coefficient(left), address.coefficient(right)
    return outer is not None and inner is not None and outer[0] == inner[0] * extent


# Maps of view ops: for each dim read, an expression over the coordinates written, kept as small as can be.

Axes: TypeAlias = list[tuple[int, Dim]]


def transpose_map(axes: Sequence[int]) -> IndexMap:
    """Result axis `j` reads operand axis `axes[j]`."""
    return tuple(coordinate(list(axes).index(axis)) for axis in range(len(axes)))


def broadcast_map(x: Shape, out: Shape) -> IndexMap:
    """Trailing dims aligned; a dim of 1 is always read at 0."""
    missing = len(out) - len(x)
    return tuple(ZERO if dim.value == 1 else coordinate(axis + missing) for axis, dim in enumerate(x))


def reshape_map(x: Shape, out: Shape) -> IndexMap:
    """The same row-major position in another shape.

    Both shapes are cut where their leading sizes agree, so that kept dims stay bare coordinates, an operand dim split
    into several is a sum of products, and only operand dims merged into one need floordiv and mod.
    """
    indices = [ZERO] * len(x)
    if any(dim.value == 0 for dim in (*x, *out)):
        return tuple(indices)
    for taken, given in _matched_groups(x, out):
        linear = _linear(given)
        stride = ONE
        for position in range(len(taken) - 1, -1, -1):
            axis, dim = taken[position]
            index = linear // stride
            # the first dim of a group takes what is left, which is in range
            indices[axis] = index if position == 0 else index % dim
            stride = stride * dim
    return tuple(indices)


def _matched_groups(x: Shape, out: Shape) -> list[tuple[Axes, Axes]]:
    """Groups of operand dims and result dims with one size each; dims of 1 belong to no group."""
    taken, given = ([(axis, dim) for axis, dim in enumerate(shape) if dim.value != 1] for shape in (x, out))
    ends = {product(dim for _, dim in given[:end]): end for end in range(1, len(given) + 1)}
    groups: list[tuple[Axes, Axes]] = []
    first_taken = first_given = 0
    for end_taken in range(1, len(taken) + 1):
        end_given = ends.get(product(dim for _, dim in taken[:end_taken]))
        if end_given is not None and end_given > first_given:
            groups.append((taken[first_taken:end_taken], given[first_given:end_given]))
            first_taken, first_given = end_taken, end_given
    if first_taken < len(taken):
        # sizes that are equal by a guard only
        groups.append((taken[first_taken:], given[first_given:]))
    return groups


def _linear(axes: Axes) -> Dim:
    """The row-major position within some result dims."""
    total, stride = ZERO, ONE
    for axis, dim in reversed(axes):
        total = total + coordinate(axis) * stride
        stride = stride * dim
    return total


def insert_axes(rank: int, axes: Sequence[int]) -> list[int]:
    """The result axes that existing dims land on when dims of 1 are inserted at `axes` of a result of `rank`."""
    return [axis for axis in range(rank) if axis not in axes]


def expand_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """Dims of 1 inserted at result positions `axes`."""
    landed = insert_axes(len(x) + len(axes), axes)
    return tuple(coordinate(axis) for axis in landed)


def squeeze_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """Dims of 1 dropped from operand positions `axes`."""
    kept = iter(range(len(x)))
    return tuple(ZERO if axis in axes else coordinate(next(kept)) for axis in range(len(x)))


def slice_map(start: Sequence[Dim], step: Sequence[int]) -> IndexMap:
    """`start + d * step` on each axis."""
    return tuple(first + coordinate(axis) * by for axis, (first, by) in enumerate(zip(start, step, strict=True)))


def flip_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """The chosen axes read from their end."""
    return tuple(dim - 1 - coordinate(axis) if axis in axes else coordinate(axis) for axis, dim in enumerate(x))


def roll_map(x: Shape, shifts: Sequence[int], axes: Sequence[int]) -> IndexMap:
    """Elements move up by the shift and come back in at the start."""
    by: dict[int, int] = {}
    for shift, axis in zip(shifts, axes, strict=True):
        by[axis] = by.get(axis, 0) + shift
    return tuple(_roll_index(coordinate(axis), by.get(axis, 0), dim) for axis, dim in enumerate(x))


def _roll_index(index: Dim, shift: int, dim: Dim) -> Dim:
    if dim.value is not None:
        shift = -(-shift % dim.value) if dim.value else 0  # read ahead, so that no index is negative
    return (index - shift) % dim if shift else index


def tile_map(x: Shape, reps: Sequence[int]) -> IndexMap:
    """The whole operand again and again along each axis."""
    return tuple(
        ZERO if dim.value == 1 else (coordinate(axis) if count == 1 else coordinate(axis) % dim)
        for axis, (dim, count) in enumerate(zip(x, reps, strict=True))
    )


def repeat_map(x: Shape, repeats: int, axis: int) -> IndexMap:
    """Each element `repeats` times in a row."""
    return tuple(coordinate(own) // repeats if own == axis else coordinate(own) for own in range(len(x)))
