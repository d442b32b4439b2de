"""Batching of ops on one element at a time, reductions and contractions, how rules are found, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder, OpSpec
from tessera.ir.graph.building import axes_attribute, cast, size_value
from tessera.ir.graph.score_programs import BATCH, HEAD, KEY, QUERY, SCORE, Lines, ProgramWriter, evaluate
from tessera.ir.graph.transforms.tape_builder import load_rule
from tessera.ir.tile.facets import Pointwise, Reduction, View
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import ONE, Shape, TensorType

PACKAGE = "tessera.ir.graph.batching"


@frozen
class BatchedOp:
    """An op as a `batch` rule sees it: its operands, which of them have the batch as their first axis, and its size."""

    operands: tuple[Any, ...]
    is_batched: tuple[bool, ...]
    size: Dim
    attributes: Attributes
    spec: OpSpec

    def rank(self, b: Builder, at: int) -> int:
        """The rank of an operand without the batch."""
        return b.type_of(self.operands[at]).rank - self.is_batched[at]

    def emit(self, b: Builder, *operands: Any, **attributes: Any) -> Any:
        """The op itself, with some attributes changed."""
        return b.emit(self.spec.short_name, *operands, **{**self.attributes, **attributes})

    def whole(self, b: Builder, at: int) -> Any:
        """An operand with the batch, which it is broadcast to where it lacks it."""
        value = self.operands[at]
        if self.is_batched[at]:
            return value
        return b.emit("broadcast_to", value, shape=(self.size, *b.type_of(value).shape))


BatchRule = Callable[[Builder, BatchedOp], Any]


def batch_rule(spec: OpSpec) -> BatchRule | None:
    """The `batch` rule of an op: its own, or the one that its lowering implies; None where there is neither."""
    if spec.batch is not None:
        return load_rule(PACKAGE, spec.batch)
    if isinstance(spec.lower, Pointwise):
        return pointwise
    if isinstance(spec.lower, Reduction):
        return reduce
    return load_rule(PACKAGE, f"movement:{spec.short_name}") if isinstance(spec.lower, View) else None


def loop(b: Builder, op: BatchedOp) -> None:
    """None: the op runs for one element of the batch after the other."""


def align(b: Builder, op: BatchedOp, at: int, rank: int) -> Any:
    """A batched operand with axes of 1 behind the batch, so that it broadcasts against one of `rank`."""
    value = op.operands[at]
    if not op.is_batched[at]:
        return value
    size, *shape = b.type_of(value).shape
    missing = rank - len(shape)
    return b.emit("reshape", value, shape=(size, *(ONE,) * missing, *shape)) if missing > 0 else value


def pointwise(b: Builder, op: BatchedOp) -> Any:
    """The op on operands whose batches stand over each other."""
    rank = max(op.rank(b, at) for at in range(len(op.operands)))
    return op.emit(b, *(align(b, op, at, rank) for at in range(len(op.operands))))


def reduce(b: Builder, op: BatchedOp) -> Any:
    """The axes behind the batch."""
    rank = op.rank(b, 0)
    axes = tuple(axis % rank + 1 for axis in axes_attribute(op.attributes, "axes"))
    return op.emit(b, op.operands[0], axes=axes)


def first_axis(b: Builder, op: BatchedOp) -> Any:
    """One axis, `axis`, of the first operand: the one behind it."""
    return op.emit(b, op.whole(b, 0), axis=int(op.attributes["axis"]) % max(op.rank(b, 0), 1) + 1)


# Contractions.


def matmul(b: Builder, op: BatchedOp) -> Any:
    """A vector becomes a matrix of one row or column; batches broadcast as leading dims do."""
    ranks = [op.rank(b, at) for at in (0, 1)]
    lead = max(*(rank - 2 for rank in ranks), 0)
    given: list[Any] = []
    for at, rank in enumerate(ranks):
        value = op.operands[at]
        shape = b.type_of(value).shape
        own = shape[1:] if op.is_batched[at] else shape
        matrix = own if rank > 1 else (ONE, *own) if at == 0 else (*own, ONE)
        size = shape[:1] if op.is_batched[at] else ()
        missing = (ONE,) * (lead + 2 - len(matrix)) if op.is_batched[at] else ()
        given.append(_reshape(b, value, (*size, *missing, *matrix)))
    out = op.emit(b, *given)
    shape = b.type_of(out).shape
    kept = [*shape[:-2], *(shape[-2:-1] if ranks[0] > 1 else ()), *(shape[-1:] if ranks[1] > 1 else ())]
    return _reshape(b, out, tuple(kept))


def _reshape(b: Builder, value: Any, shape: Shape) -> Any:
    return value if b.type_of(value).shape == shape else b.emit("reshape", value, shape=shape)


def dot_general(b: Builder, op: BatchedOp) -> Any:
    """The batch is one more pair of batch axes where both operands have it, else a free axis, moved to the front."""
    names = (("lhs_batch", "lhs_contract"), ("rhs_batch", "rhs_contract"))
    shifted: dict[str, tuple[int, ...]] = {}
    for at, own in enumerate(names):
        for name in own:
            shifted[name] = tuple(axis + op.is_batched[at] for axis in axes_attribute(op.attributes, name))
    if all(op.is_batched):
        shifted |= {name: (0, *shifted[name]) for name in ("lhs_batch", "rhs_batch")}
        return op.emit(b, *op.operands, **shifted)
    out = op.emit(b, *op.operands, **shifted)
    batch = len(shifted["lhs_batch"])
    free = b.type_of(op.operands[0]).rank - batch - len(shifted["lhs_contract"])
    at = batch if op.is_batched[0] else batch + free
    return move_to_front(b, out, at)


def move_to_front(b: Builder, value: Any, at: int) -> Any:
    """The value with one of its axes as the first."""
    rank = b.type_of(value).rank
    order = (at, *(axis for axis in range(rank) if axis != at))
    return value if at == 0 else b.emit("transpose", value, axes=order)


def conv_windows(b: Builder, op: BatchedOp) -> Any:
    """Images join their batch; weights of their own make each element of the batch a group."""
    is_grouped = bool(op.attributes["grouped"])
    w, x = op.operands
    if not op.is_batched[0]:
        size, images, *shape = b.type_of(x).shape
        out = op.emit(b, w, b.emit("reshape", x, shape=(size * images, *shape)))
        return b.emit("reshape", out, shape=(size, images, *b.type_of(out).shape[1:]))
    x = op.whole(b, 1)
    size, images, *shape = b.type_of(x).shape
    # [size, images, (groups), in, ...] to [images, size (groups), in, ...]
    image = b.emit("transpose", x, axes=(1, 0, *range(2, 2 + len(shape))))
    weights = b.type_of(w).shape
    groups = weights[1] if is_grouped else ONE
    if is_grouped:
        image = b.emit("reshape", image, shape=(images, size * groups, *shape[1:]))
        w = b.emit("reshape", w, shape=(size * groups, *weights[2:]))
    out = op.emit(b, w, image, grouped=True)
    done = b.type_of(out).shape
    parts = (images, size, *((groups,) if is_grouped else ()), *done[2:])
    out = b.emit("reshape", out, shape=parts)
    return b.emit("transpose", out, axes=(1, 0, *range(2, len(parts))))


def conv_weights(b: Builder, op: BatchedOp) -> Any:
    """Each element of the batch is a group: sums are over its own images."""
    given: list[Any] = []
    for at in range(2):
        value = op.whole(b, at)
        size, images, *shape = b.type_of(value).shape
        moved = b.emit("transpose", value, axes=(1, 0, *range(2, 2 + len(shape))))
        inner = (size * shape[0], *shape[1:]) if op.attributes["grouped"] else (size, *shape)
        given.append(_reshape(b, moved, (images, *inner)))
    out = op.emit(b, *given, grouped=True)
    shape = b.type_of(out).shape
    groups = b.type_of(op.whole(b, 0)).shape[2:3] if op.attributes["grouped"] else ()
    return _reshape(b, out, (op.size, *groups, *shape[1:]))


def attention(b: Builder, op: BatchedOp) -> Any:
    """Joined with the batch that attention has; a mask or a length that differs in the batch of a cache is not."""
    if "cached" in op.spec.short_name and op.is_batched[3]:
        return None  # one element after the other
    # All but a mask or a length have the batch of attention.
    first = sum(not name.endswith("*") and name != "length" for name in op.spec.operands)
    given, extra = [op.whole(b, at) for at in range(first)], list[Any]()
    batch = b.type_of(given[0]).shape[1]
    for at in range(first, len(op.operands)):
        value = op.operands[at]
        if "cached" in op.spec.short_name:
            extra.append(value)
            continue
        mask = align(b, op, at, 4) if op.is_batched[at] else value
        shape = b.type_of(mask).shape
        if not op.is_batched[at] and (len(shape) < 4 or shape[0].value == 1):
            extra.append(mask)
            continue
        inner = shape[2:] if op.is_batched[at] else shape[1:]
        wide = b.emit("broadcast_to", mask, shape=(op.size, batch, *inner))
        extra.append(b.emit("reshape", wide, shape=(op.size * batch, *inner)))
    joined = [b.emit("reshape", one, shape=(op.size * batch, *b.type_of(one).shape[2:])) for one in given]
    made = op.emit(b, *joined, *extra)
    several: Sequence[Any] = (made,) if op.spec.has_one_result else made
    return [b.emit("reshape", one, shape=(op.size, batch, *b.type_of(one).shape[1:])) for one in several]


class _Rewriter(ProgramWriter):
    """Writes a program for a joined batch: captured tensors that have the batch are read at one index more."""

    def __init__(self, score: DType, captures: Sequence[TensorType], batched: Sequence[bool], size: Dim) -> None:
        super().__init__(score, captures)
        self.batched = batched
        own = self.constant(size.value, dt.i32) if size.value is not None else super().load(len(captures) - 1, ())
        self.outer = self.elementwise("floordiv", BATCH, own)
        self.inner = self.elementwise("sub", BATCH, self.elementwise("mul", self.outer, own))

    def load(self, capture: int, indices: Sequence[tuple[int, Any]]) -> int:
        first = [(self.outer, self.outer)] if self.batched[capture] else []
        return super().load(capture, [*first, *indices])

    def rewrite(self, lines: Lines) -> Lines:
        return self.finish(evaluate(lines, [SCORE, self.inner, HEAD, QUERY, KEY], self)[-1]) if lines else ()


def scored_attention(b: Builder, op: BatchedOp) -> Any:
    """Joined with the batch that attention has, in whose index programs find both."""
    first = sum(not name.endswith("*") for name in op.spec.operands)
    given = [op.whole(b, at) for at in range(first)]
    batch, lengths = b.type_of(given[0]).shape[1], list[Any]()
    if op.attributes.get("cached"):
        if op.is_batched[first]:
            return None  # one element after the other
        lengths, first = [op.operands[first]], first + 1
    captures = list(op.operands[first:])
    if batch.value is None:
        captures.append(cast(b, size_value(b, batch), dt.i32))
    types, batched = [b.type_of(one) for one in captures], op.is_batched[first:]
    compute = b.type_of(given[0]).dtype.compute
    programs = {
        name: _Rewriter(compute, types, batched, batch).rewrite(op.attributes[name]) for name in ("score", "mask")
    }
    joined = [b.emit("reshape", one, shape=(op.size * batch, *b.type_of(one).shape[2:])) for one in given]
    made = op.emit(b, *joined, *lengths, *captures, **programs)
    several: Sequence[Any] = (made,) if op.spec.has_one_result else made
    return [b.emit("reshape", one, shape=(op.size, batch, *b.type_of(one).shape[1:])) for one in several]


def kv_write(b: Builder, op: BatchedOp) -> Any:
    """Joined with the batch that caches have, where all are filled to the same length."""
    if op.is_batched[1]:
        return None  # one element after the other
    given = [op.whole(b, at) for at in (0, 2)]
    batch = b.type_of(given[0]).shape[1]
    old, new = (b.emit("reshape", one, shape=(op.size * batch, *b.type_of(one).shape[2:])) for one in given)
    made = op.emit(b, old, op.operands[1], new)
    return b.emit("reshape", made, shape=(op.size, batch, *b.type_of(made).shape[1:]))
