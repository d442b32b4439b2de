"""The lowerings of a graph op to tiles: what `schedule` asks an op for, without knowing the op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.index_maps import IndexMap
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

Attributes: TypeAlias = Mapping[str, Any]


@frozen
class View:
    """`out[d] = x[map(d)]`: no arithmetic, no kernel of its own.

    `maps(x, outs, attributes)` gives one map per result. `space(attributes)` is the memory that what is seen is
    prefetched to, for views that are there to say so. One that `waits` has further operands, and what reads it runs
    once those are computed. `order` names the attribute of a view that gives all dims in another order, and is nothing
    but that: the dim of `x` that each dim of the result is.
    """

    maps: Callable[[TensorType, Sequence[TensorType], Attributes], Sequence[IndexMap]]
    space: Callable[[Attributes], str] | None = None
    waits: bool = False
    order: str = ""

    @property
    def moves_elements(self) -> bool:
        """Whether it does nothing else: a view with a `space`, or one that waits, is there for that."""
        return self.space is None and not self.waits


@frozen
class Pointwise:
    """`out[d] = block(inputs[d])` with NumPy broadcasting (trailing dims aligned, static 1 stretches).

    `block(builder, tiles, attributes, out)` gets one tile per operand, already in its compute dtype (narrow floats
    arrive as f32), and returns a tile (or one per result) in the compute dtype of the result. `flops` counts the work
    for one element; an `expensive` value is kept rather than rematerialized. An op that `converts` gives its operand's
    values in the result's dtype, and is nothing but that. One that `is_promise` must share the kernel of the
    contraction that is its second operand. `rounds_to(attributes)` names the format that an op rounds its operand to,
    to nearest and nothing else, which the copies of some machines can do. One that `asks_where` an element is, by
    `builder.coordinate`, means something else in another shape or order of dims.
    """

    block: Callable[[Any, Sequence[Any], Attributes, TensorType], Any]
    flops: int = 1
    expensive: bool = False
    converts: bool = False
    is_promise: bool = False
    rounds_to: Callable[[Attributes], str] | None = None
    asks_where: bool = False


@frozen
class Reduction:
    """`out = reduce(kind, x, axes)`, in the compute dtype, by the canonical recipe of `docs/guide/numerics.md`.

    `kind` is sum, prod, max, min, any, all, argmax or argmin; `axes(x, attributes)` the reduced axes, sorted.
    """

    kind: str
    axes: Callable[[TensorType, Attributes], tuple[int, ...]]


@frozen
class ContractionMaps:
    """`out[batch, m, n] = sum over k of lhs * rhs`, each extent list a loop nest, maps over its coordinates.

    Coordinates are named `b0..`, `m0..`, `n0..`, `k0..`. `out` must be the concatenation batch, m, n. `windows` lists
    (operand, expression, extent): the operand reads zero where the expression is outside `0 <= e < extent` (padding).
    `cut` is where `k` ends in batches that have less of it, over the coordinates of the batch: operands end there too.
    Operands named in `in_memory` are read as whole tensors: a view of one is written first, in the order of its dims.
    Windows that `are_copied` are read by the copies of a machine as they are, whatever its matrix instructions take.
    """

    batch: tuple[Dim, ...]
    m: tuple[Dim, ...]
    n: tuple[Dim, ...]
    k: tuple[Dim, ...]
    lhs: IndexMap
    rhs: IndexMap
    windows: tuple[tuple[int, Dim, Dim], ...] = ()
    cut: Dim | None = None
    in_memory: tuple[int, ...] = ()
    are_copied: bool = False


@frozen
class Reordered:
    """A contraction that reads one operand with its dims in another order: the view that gives them so, and the op."""

    view: str
    view_attributes: Attributes
    op: str
    attributes: Attributes


@frozen
class Contraction:
    """A sum of products over two operands: matmul, dot_general, convolution.

    `reorder(types, attributes, number, axes)` is the same contraction where the dims of operand `number` are in the
    order `axes`, so that a machine can have that operand in memory as it multiplies it; None where there is none.
    """

    maps: Callable[[Sequence[TensorType], Attributes], ContractionMaps]
    reorder: Callable[[Sequence[TensorType], Attributes, int, tuple[int, ...]], Reordered | None] | None = None


@frozen
class Gather:
    """`out[d] = x[map(d, t)]` where `t0`, `t1`, ... are the values of the index operands at their own maps.

    `maps(types, outs, attributes)` gives the map of operand 0, then the map of each further (integer) operand. An index
    out of range is clamped by the op's definition before it gets here, or is the user's error; with a `fill` it reads
    what that says.
    """

    maps: Callable[[Sequence[TensorType], Sequence[TensorType], Attributes], Sequence[IndexMap]]
    fill: Callable[[Attributes], float | int | bool] | None = None


@frozen
class Piece:
    """A box of the result: `out[start + d] = operand[map(d)]` for `d` within `extent`; operand None is `fill`."""

    operand: int | None
    start: tuple[Dim, ...]
    extent: tuple[Dim, ...]
    map: IndexMap = ()
    fill: float | int | bool = 0


@frozen
class Assembly:
    """A result put together from boxes (concat, pad); later pieces overwrite earlier ones.

    `gather` names the op of the same attributes that reads each element where it is wanted, if there is one: GPUs have
    that.
    """

    pieces: Callable[[Sequence[TensorType], Sequence[TensorType], Attributes], Sequence[Piece]]
    gather: str = ""


@frozen
class Library:
    """A kernel of the library, by name; `api` hands the compiler the library.

    A kernel that `reads_views` takes operands at index maps: one that is a view with its rows in one piece (a
    transposition of heads) need not be copied first. One that `takes_epilogue` writes pointwise ops that follow it in
    place and are promised to share its kernel. One that `overwrites` an operand, by its number, changes some of it in
    its result: where its op says `in_place`, both are one memory, and it writes the changes alone.
    """

    kernel: str
    reads_views: bool = False
    takes_epilogue: bool = False
    overwrites: int = -1
