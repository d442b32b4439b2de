"""Index maps: composing them, making them linear, and finding dims that can be walked as one."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.tile.facets import IndexMap
from tessera.types.dim import Atom, Dim, product
from tessera.types.tensor_type import TensorType

ZERO = Dim.constant(0)


def compose(inner: IndexMap, at: Sequence[Dim]) -> IndexMap:
    """`inner` over `d0`, `d1`, ... read at the coordinates `at`."""
    env = {f"d{axis}": expr for axis, expr in enumerate(at)}
    return tuple(simplify(expr.substitute(env)) for expr in inner)


def broadcast_at(operand: TensorType, out: TensorType, at: Sequence[Dim]) -> IndexMap:
    """Where an operand is read for a result at `at`: trailing dims aligned, a static 1 stretched."""
    offset = out.rank - operand.rank
    return tuple(
        ZERO if dim.value == 1 and out.shape[axis + offset].value != 1 else at[axis + offset]
        for axis, dim in enumerate(operand.shape)
    )


def strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Elements between neighbours along each dim of a contiguous tensor."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def linear(at: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """The place of an element in a contiguous tensor."""
    total = ZERO
    for index, stride in zip(at, strides(shape), strict=True):
        total = total + index * stride
    return simplify(total)


def delinear(flat: Dim, shape: Sequence[Dim]) -> IndexMap:
    """Coordinates from a place: `linear` undone. The first dim of more than one element has what is left.

    Of a single element the last dim has the place, so that it still reaches addresses.
    """
    found: list[Dim] = [ZERO] * len(shape)
    axes = [axis for axis, size in enumerate(shape) if size.value != 1] or list(range(len(shape)))[-1:]
    rest = flat
    for axis in reversed(axes[1:]):
        found[axis] = rest % shape[axis]
        rest = rest // shape[axis]
    if axes:
        found[axes[0]] = rest
    return tuple(found)


def simplify(dim: Dim) -> Dim:
    """`c * (x mod k) + c * k * (x floordiv k)` is `c * x`, wherever both stand in the sum."""
    changed = True
    while changed:
        changed = False
        for atom in _atoms(dim, "mod"):
            inner, size = atom.args
            rest_of = _coefficient(dim, atom)
            for whole in _quotients(inner, size):
                count_of = _coefficient(dim, whole)
                if rest_of is not None and count_of is not None and count_of == rest_of * size:
                    dim = dim - rest_of * _as_dim(atom) - count_of * _as_dim(whole) + rest_of * inner
                    changed = True
                    break
            if changed:
                break
    return dim


def _atoms(dim: Dim, kind: str) -> list[Atom]:
    return list({atom: None for monomial, _ in dim.terms for atom in monomial if atom.kind == kind})


def _as_dim(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def _quotients(inner: Dim, size: Dim) -> list[Atom]:
    """The ways in which `inner floordiv size` is written: of a quotient it may be one by both divisors."""
    found = [Atom("floordiv", "", (inner, size))]
    for atom in _atoms(inner, "floordiv"):
        if _as_dim(atom) == inner:
            found.append(Atom("floordiv", "", (atom.args[0], atom.args[1] * size)))
    return found


def _coefficient(dim: Dim, atom: Atom) -> Dim | None:
    """The factor of an atom in a sum; None where it stands squared or not at all."""
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
