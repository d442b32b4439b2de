"""Halos: the elements of its neighbours that a rank reads where a stencil's input is sharded, inferred exactly.

An access says which elements of the input a result element reads along one dim: `scale * i + o` for each of some
offsets. Windows of convolutions, slices, pads, shifts and index expressions are such accesses, and so are compositions
of them. Where the result is sharded in blocks and the input is too, a rank reads beyond its own block as far as the
offsets lead; elements outside the tensor (padding) are nobody's, and need not be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import ScheduleError
from tessera.types.dim import Dim, DimLike
from tessera.types.frozen import frozen

MOST_OFFSETS = 1 << 16
"""Offsets of an access at most: a window of 65,536 elements is no stencil."""


@frozen
class Access:
    """Along one dim, result element `i` reads elements `scale * i + o` of the input, for each `o` of `offsets`.

    >>> window = convolution(kernel=3, dilation=2, pad=2)
    >>> str(window), str(window.of(convolution(kernel=3, pad=1)))
    ('i + [-2, 0, 2]', 'i + [-3, -2, -1, 0, 1, 2, 3]')
    """

    scale: int
    offsets: tuple[int, ...]

    def of(self, inner: Access) -> Access:
        """What this reads of a value that is itself computed with `inner` accesses."""
        found = {inner.scale * own + other for own in self.offsets for other in inner.offsets}
        return access(inner.scale * self.scale, found)

    def beside(self, other: Access) -> Access:
        """What a result reads that reads both, as a sum of two shifts does; raises where they move differently."""
        if self.scale != other.scale:
            raise ScheduleError(
                f"one value is read at {self} and at {other}: steps {self.scale} and {other.scale} have no common halo",
                span=None,
                fix="infer the halo of each by itself, and take the wider one",
            )
        return access(self.scale, {*self.offsets, *other.offsets})

    def __str__(self) -> str:
        head = "i" if self.scale == 1 else f"{self.scale}*i"
        return f"{head} + {list(self.offsets)}"


def access(scale: int, offsets: Iterable[int]) -> Access:
    """An access of these offsets; raises ScheduleError (T0401) where it is none that halos can be inferred of."""
    found = tuple(sorted(set(offsets)))
    if scale < 1 or not found or len(found) > MOST_OFFSETS:
        raise ScheduleError(
            f"a stencil reads at a positive step with 1 to {MOST_OFFSETS} offsets, got {scale} and {len(found)}",
            span=None,
            fix="reverse the dim first, or shard another one",
        )
    return Access(scale, found)


IDENTITY = Access(1, (0,))


def convolution(kernel: int, stride: int = 1, dilation: int = 1, pad: int = 0) -> Access:
    """The window of a convolution or a pool: element `stride * i + dilation * k - pad` for each `k`."""
    if kernel < 1 or dilation < 1:
        raise ScheduleError(
            f"a window has at least 1 element and 1 as dilation, got {kernel} and {dilation}", span=None, fix="give 3"
        )
    return access(stride, (dilation * at - pad for at in range(kernel)))


def slice_access(start: int, step: int = 1) -> Access:
    """`x[start::step]`."""
    return access(step, (start,))


def pad_access(low: int) -> Access:
    """A pad of `low` elements in front; elements of the padding are outside of the input."""
    return access(1, (-low,))


def shift(by: int) -> Access:
    """`x` moved by so many elements towards higher indices: result `i` is input `i - by`."""
    return access(1, (-by,))


def access_of(expression: DimLike, index: str, windows: Mapping[str, int] | None = None) -> Access:
    """The access of an index expression such as `2*i + 3*k - 1`, `k` one of the `windows` (below its size).

    >>> str(access_of("2*i + 3*k - 1", "i", {"k": 3}))
    '2*i + [-1, 2, 5]'
    """
    dim, sizes = Dim.of(expression), dict(windows or {})
    parts = dim.coefficient(index)
    unknown = dim.symbols - {index, *sizes}
    if parts is None or parts[0].value is None or unknown:
        what = (
            f"`{sorted(unknown)[0]}` is neither the index nor a window" if unknown else f"it is not linear in `{index}`"
        )
        raise ScheduleError(
            f"no halo can be inferred of `{dim}`: {what}", span=None, fix="name the sizes of all windows, as numbers"
        )
    scale, offsets = parts[0].value, [parts[1]]
    for name, size in sizes.items():
        offsets = [offset.substitute({name: at}) for offset in offsets for at in range(size)]
    return access(scale, (int(offset.value or 0) for offset in offsets))


@frozen
class Halo:
    """Elements below and above its own block that ranks need of a sharded dim, at most and for each rank.

    `hops` is over how many neighbours that reaches: 1 where a halo is no wider than a block.
    """

    low: int
    high: int
    each: tuple[tuple[int, int], ...]
    hops: int

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]"


def infer_halo(read: Access, size: int, results: int, ranks: int) -> Halo:
    """The halo of an input of `size` elements, of which `results` are computed, both in blocks over `ranks`.

    Raises ScheduleError (T0401) where the ranks do not divide both.
    """
    for what, count in (("input", size), ("result", results)):
        if ranks < 1 or count % ranks:
            raise ScheduleError(
                f"the {what} of a stencil has {count} elements, which {ranks} ranks do not divide",
                span=None,
                fix=f"pad it to {-(-count // max(1, ranks)) * max(1, ranks)}",
            )
    own, made = size // ranks, results // ranks
    each: list[tuple[int, int]] = []
    hops = 0
    for rank in range(ranks):
        least, most = _range(read, rank * made, (rank + 1) * made, size)
        low, high = max(0, rank * own - least), max(0, most - (rank + 1) * own + 1)
        each.append((low, high))
        hops = max(hops, -(-low // own) if own else 0, -(-high // own) if own else 0)
    return Halo(max(low for low, _ in each), max(high for _, high in each), tuple(each), hops)


def _range(read: Access, first: int, end: int, size: int) -> tuple[int, int]:
    """The least and the greatest element of the input that results `first` to `end` read; its own first where none."""
    least, most = size, -1
    for offset in read.offsets:
        low = max(first, -(offset // read.scale))  # the first that reads element 0 or a later one
        high = min(end - 1, (size - 1 - offset) // read.scale)
        if low <= high:
            least, most = min(least, read.scale * low + offset), max(most, read.scale * high + offset)
    return least, most


def exchanged_bytes(halo: Halo, row_bytes: int) -> int:
    """Bytes that all ranks receive together, where an element of the dim is a row of so many."""
    return sum(low + high for low, high in halo.each) * row_bytes


def halos_of_window(
    kernel: Sequence[int],
    sizes: Sequence[int],
    ranks: Mapping[int, int],
    *,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
) -> dict[int, Halo]:
    """The halo of each sharded dim of a convolution over several; `ranks` says over how many each is sharded."""
    count = len(kernel)
    given: list[tuple[str, Any, int]] = [("stride", stride, 1), ("dilation", dilation, 1), ("pad", pad, 0)]
    for name, values, _ in given:
        if values is not None and len(values) != count:
            raise ScheduleError(
                f"a window of {count} dims has {count} of `{name}`, got {len(values)}", span=None, fix=""
            )
    steps, holes, pads = ([default] * count if values is None else list(values) for _, values, default in given)
    found: dict[int, Halo] = {}
    for dim, number in ranks.items():
        if not 0 <= dim < count:
            raise ScheduleError(f"dim {dim} is none of the {count} dims of a window", span=None, fix="count from 0")
        read = convolution(kernel[dim], steps[dim], holes[dim], pads[dim])
        results = (sizes[dim] + 2 * pads[dim] - holes[dim] * (kernel[dim] - 1) - 1) // steps[dim] + 1
        found[dim] = infer_halo(read, sizes[dim], results, number)
    return found
