"""Experts on several ranks: tokens go to the ranks of their experts and back by two all-to-alls of equal buckets.

A rank keeps a bucket for each expert. Its size, the capacity, is known before tokens are: as many times the even share
as the recipe says, beyond which tokens are dropped in the order of their positions, or all of the rank's tokens, so
that none is. What a bucket does not fill is zeros, of which experts make zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tessera.api.collectives import all_reduce, all_to_all
from tessera.diagnostics.codes import ArgumentError
from tessera.distributed.exchanges import quantized_all_to_all, size_of
from tessera.distributed.placement import Cut
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.ir.schedule.planning.all_to_all import capacity_of
from tessera.nn.feed_forward import MoE, balance_loss
from tessera.types.dtype import BY_NAME, i64

Throttle = Callable[[Any, int], Any]
"""A load-balancing hook: the tokens of this rank for each expert and the capacity, to those that each takes at most."""


class Dropped:
    """How many tokens of this rank experts did not take, over the layers of a model."""

    def __init__(self) -> None:
        self.counts: list[Any] = []

    def total(self) -> Any:
        """Their number, as a scalar of f32, to be reported as a metric."""
        found = as_tensor(0.0)
        for count in self.counts:
            found = found + ops.cast_like(count, found)
        return found


_DROPPED: ContextVar[Dropped | None] = ContextVar("dropped", default=None)


@contextmanager
def dropped_tokens() -> Generator[Dropped]:
    """Within it, what mixtures of experts drop is counted: `return loss, {"dropped": dropped.total()}`.

    It stands in a loss, around the call of the model, which is not rematerialized. Layers on one rank drop nothing.

    >>> with ts.dist.dropped_tokens() as dropped:
    ...     y, balance = ts.nn.MoE.init(ts.random.key(0), 8, 16, experts=4)(ts.ones((3, 8)))
    >>> dropped.total()
    Tensor([] f32, 0)
    """
    found = Dropped()
    token = _DROPPED.set(found)
    try:
        yield found
    finally:
        _DROPPED.reset(token)


def cuts(axis: str | None) -> dict[str, Cut]:
    """The cuts of a mixture of experts: each rank has some of them, and all have the router."""
    return {} if axis is None else {name: Cut(axis, 0) for name in ("gate", "up", "down")}


def split(module: MoE, config: Any) -> SplitMoE:
    """The layer that runs on a rank's experts."""
    wire = "" if config.wire is None else config.wire
    axes = config.sample_axes if config.shards is None else ()
    fields = (module.router, module.gate, module.up, module.down, module.top, module.bias, module.rate)
    return SplitMoE(*fields, config.expert, config.capacity, wire, axes, config.throttle)


class SplitMoE(MoE):
    """A mixture of experts of which each rank has some; its tokens are those of this rank."""

    axis: str = ""
    capacity: float | None = None
    wire: str = ""
    balanced_axes: tuple[str, ...] = ()
    throttle: Throttle | None = None

    def _run(self, x: Any) -> tuple[tuple[Any, Any], Any]:
        ranks, width = size_of(self.axis), self.gate.shape[1]
        experts = self.gate.shape[0] * ranks
        tokens = x.reshape(-1, width)
        probabilities, weights, chosen = self._route(tokens)
        assigned = chosen.reshape(-1)
        slots, sizes, capacity = self._slots(assigned, experts, tokens.shape[0])
        rows = ops.take(tokens, ops.iota((assigned.shape[0],)) // self.top)
        buckets = ops.scatter_add(ops.zeros((experts * capacity, width), dtype_of(x)), slots, rows, mode="drop")
        made = self._run_buckets(buckets, experts, capacity)
        mixed = ops.take(made, slots, mode="drop").reshape(-1, self.top, width)
        mixed = mixed * ops.cast_like(ops.expand_dims(weights, -1), mixed)
        return (mixed.sum(axis=1).reshape(x.shape), self._balance(probabilities, sizes)), self._loads(sizes)

    def _slots(self, assigned: Any, experts: int, tokens: int) -> tuple[Any, Any, int]:
        """The place of each assignment in the buckets, behind their end where it is dropped; tokens of each expert."""
        capacity = tokens if self.capacity is None else capacity_of(tokens, experts, self.top, self.capacity)
        capacity = min(capacity, tokens)  # an expert is chosen once by a token
        is_own = (ops.expand_dims(assigned, 1) == ops.iota((1, experts), 1)).astype(i64)
        sizes = is_own.sum(axis=0)
        place = ((ops.cumsum(is_own, axis=0) - 1) * is_own).sum(axis=1)
        most = ops.full((experts,), capacity, i64)
        if self.throttle is not None:
            most = ops.minimum(most, ops.astype(self.throttle(sizes, capacity), i64))
        is_kept = place < ops.take(most, assigned)
        counted = _DROPPED.get()
        if counted is not None:
            counted.counts.append((1 - is_kept.astype(i64)).sum())
        return ops.where(is_kept, assigned * capacity + place, as_tensor(experts * capacity, i64)), sizes, capacity

    def _run_buckets(self, buckets: Any, experts: int, capacity: int) -> Any:
        """What experts make of buckets [experts * capacity, width], on the ranks that have them."""
        ranks, width = size_of(self.axis), buckets.shape[1]
        own = experts // ranks
        arrived = self._exchange(buckets.reshape(experts, capacity, width))
        rows = arrived.reshape(ranks, own, capacity, width).transpose(1, 0, 2, 3).reshape(own, ranks * capacity, width)
        hidden = ops.silu(ops.matmul(rows, self.gate)) * ops.matmul(rows, self.up)
        made = ops.matmul(hidden, self.down).reshape(own, ranks, capacity, width).transpose(1, 0, 2, 3)
        return self._exchange(made.reshape(experts, capacity, width)).reshape(experts * capacity, width)

    def _exchange(self, rows: Any) -> Any:
        if size_of(self.axis) == 1:
            return rows
        return quantized_all_to_all(rows, self.axis, BY_NAME[self.wire]) if self.wire else all_to_all(rows, self.axis)

    def _loads(self, sizes: Any) -> Any:
        """The tokens of each expert on all ranks that have other tokens: biases are the same on all of them."""
        if self.bias is None:
            return sizes
        for axis in self.balanced_axes or (self.axis,):
            sizes = all_reduce(sizes, axis) if size_of(axis) > 1 else sizes
        return sizes

    def _balance(self, probabilities: Any, sizes: Any) -> Any:
        """The balance of all ranks' tokens, or of each shard by itself where bits do not depend on ranks."""
        mean, share = probabilities.mean(axis=0), ops.cast_like(sizes, probabilities)
        ranks = 1
        for axis in self.balanced_axes:
            if size_of(axis) > 1:
                ranks *= size_of(axis)
                mean, share = all_reduce(mean, axis, "mean"), all_reduce(share, axis)
        return balance_loss(mean, share, probabilities.shape[0] * self.top * ranks)


def check_wire(name: str | None) -> None:
    """Raise ArgumentError (T0202) for a dtype that tokens do not travel in."""
    known = [name for name, dtype in BY_NAME.items() if dtype.is_float and dtype.bits == 8]
    if name is not None and name not in known:
        raise ArgumentError(f"tokens travel in {', '.join(known)}, got {name!r}", fix='write `wire="f8e4m3"`')
