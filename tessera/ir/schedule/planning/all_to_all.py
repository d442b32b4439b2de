"""All-to-alls of experts: how many tokens go from each rank to each other one, in which buckets, with how many bytes.

A router sends tokens to experts, which are divided among ranks in blocks. Each rank keeps a bucket for each expert. A
bucket has a capacity, so that memory is known before tokens are: tokens beyond it are dropped (in the order of their
positions, so that nothing depends on time), and where buckets are exchanged at one size, what is not filled is padding.
`exact` buckets send what there is, rounded up to `align` tokens, behind an exchange of the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

COUNT_BYTES = 4
"""Bytes of one count, where ranks exchange how many tokens follow: an i32."""
SCALE_BYTES = 4
"""Bytes of the scale of a quantized token: an f32."""
WIRE: Mapping[str, int] = {"": 0, "off": 0, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of an element on the wire; 0 for those of the token itself."""


@frozen
class Token:
    """What one token is on the wire: elements, bytes of each, and the dtype it is quantized to (`fp8`), if it is."""

    elements: int
    element_bytes: int = 2
    quantize: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of a token with its scale, where it has one."""
        width = WIRE[self.quantize]
        return self.elements * width + SCALE_BYTES if width else self.elements * self.element_bytes


def capacity_of(tokens: int, experts: int, top_k: int = 1, factor: float = 1.25, align: int = 1) -> int:
    """Tokens for which a rank has slots in the bucket of each expert: its even share, times `factor`, aligned.

    >>> capacity_of(tokens=4096, experts=64, top_k=2, factor=1.25, align=8)
    160
    """
    if min(tokens, experts - 1, top_k - 1, align - 1) < 0 or factor <= 0 or top_k > experts:
        raise ScheduleError(
            f"buckets of {tokens} tokens to {top_k} of {experts} experts with factor {factor}, aligned to {align}: "
            "each is positive, and a token goes to no more experts than there are",
            span=None,
            fix="write `capacity_of(tokens=4096, experts=64, top_k=2)`",
        )
    # Exactly: a share that divides evenly is not one token more because of a float.
    share = ceil(tokens * top_k * factor / experts - 1e-9)
    return -(-max(1, share) // align) * align


@frozen
class Bucket:
    """Tokens of one rank for one expert: `routed` there, `kept` within the capacity, and `slots` that are sent."""

    source: int
    expert: int
    target: int
    routed: int
    kept: int
    slots: int

    @property
    def dropped(self) -> int:
        return self.routed - self.kept

    @property
    def padding(self) -> int:
        return self.slots - self.kept


@frozen
class ExchangePlan:
    """An all-to-all in buckets, source after source and expert after expert; expert `e` is on rank `e // per_rank`."""

    ranks: int
    experts: int
    capacity: int
    token: Token
    is_exact: bool
    buckets: tuple[Bucket, ...]

    @property
    def routed(self) -> int:
        return sum(bucket.routed for bucket in self.buckets)

    @property
    def kept(self) -> int:
        return sum(bucket.kept for bucket in self.buckets)

    @property
    def dropped(self) -> int:
        return self.routed - self.kept

    @property
    def padding(self) -> int:
        return sum(bucket.padding for bucket in self.buckets)

    @property
    def count_bytes(self) -> int:
        """Bytes of counts that all ranks send each other first, where buckets are exact."""
        return self.ranks * (self.ranks - 1) * (self.experts // self.ranks) * COUNT_BYTES if self.is_exact else 0

    def matrix(self) -> tuple[tuple[int, ...], ...]:
        """Bytes from each rank (rows) to each other one (columns); what stays on a rank is on the diagonal."""
        found = [[0] * self.ranks for _ in range(self.ranks)]
        for bucket in self.buckets:
            found[bucket.source][bucket.target] += bucket.slots * self.token.bytes
        return tuple(tuple(row) for row in found)

    def bytes_from(self, rank: int) -> int:
        """Bytes of tokens that a rank sends to others."""
        row = self.matrix()[rank]
        return sum(row) - row[rank]

    def bytes_to(self, rank: int) -> int:
        """Bytes of tokens that a rank gets from others."""
        rows = self.matrix()
        return sum(row[rank] for row in rows) - rows[rank][rank]

    @property
    def bytes(self) -> int:
        """Bytes that pass between ranks, counts included."""
        return sum(self.bytes_from(rank) for rank in range(self.ranks)) + self.count_bytes

    def offsets(self, source: int) -> tuple[int, ...]:
        """The first slot of each of a rank's buckets in what it sends, and the number of all slots at the end."""
        found = [0]
        for bucket in self.buckets:
            if bucket.source == source:
                found.append(found[-1] + bucket.slots)
        return tuple(found)

    def load(self) -> tuple[int, ...]:
        """Tokens that each expert gets from all ranks: what a router is balanced by."""
        found = [0] * self.experts
        for bucket in self.buckets:
            found[bucket.expert] += bucket.kept
        return tuple(found)

    def render(self) -> str:
        """The plan as text: totals, and a row of bytes for each rank."""
        kind = "exact" if self.is_exact else "padded"
        head = f"all_to_all of {self.experts} experts over {self.ranks} ranks, {kind} buckets of {self.capacity} tokens"
        totals = f"routed = {self.routed}, kept = {self.kept}, dropped = {self.dropped}, padding = {self.padding}, "
        totals += f"bytes = {self.bytes}"
        rows = [f"rank {rank} -> {' '.join(f'{size:>8}' for size in row)}" for rank, row in enumerate(self.matrix())]
        return "\n".join([head, totals, *rows])


def plan_exchange(
    counts: Sequence[Sequence[int]], token: Token, capacity: int, *, is_exact: bool = False, align: int = 1
) -> ExchangePlan:
    """The buckets of an all-to-all of `counts[rank][expert]` tokens, each of at most `capacity`.

    Raises ScheduleError (T0401) where counts, capacity or token are none.
    """
    ranks, experts = len(counts), len(counts[0]) if counts else 0
    _check(counts, token, capacity, align)
    per_rank = experts // ranks
    buckets: list[Bucket] = []
    for source, row in enumerate(counts):
        for expert, routed in enumerate(row):
            kept = min(routed, capacity)
            slots = min(capacity, -(-kept // align) * align) if is_exact else capacity
            buckets.append(Bucket(source, expert, expert // per_rank, routed, kept, slots))
    return ExchangePlan(ranks, experts, capacity, token, is_exact, tuple(buckets))


def throttle(positions: Sequence[int], experts: int, capacity: int) -> list[bool]:
    """Whether each token, in order, is within the capacity of the expert that it is routed to.

    >>> throttle([0, 1, 0, 0], experts=2, capacity=2)
    [True, True, True, False]
    """
    filled = [0] * experts
    found: list[bool] = []
    for expert in positions:
        if not 0 <= expert < experts:
            raise ScheduleError(f"expert {expert} is none of {experts}", span=None, fix="count experts from 0")
        filled[expert] += 1
        found.append(filled[expert] <= capacity)
    return found


def _check(counts: Sequence[Sequence[int]], token: Token, capacity: int, align: int) -> None:
    ranks, experts = len(counts), len(counts[0]) if counts else 0
    if not ranks or any(len(row) != experts for row in counts) or experts % ranks or not experts:
        raise ScheduleError(
            f"counts are of {ranks} ranks for {sorted({len(row) for row in counts})} experts: each rank has as many",
            span=None,
            fix="give `counts[rank][expert]`, and as many experts on each rank",
        )
    if any(count < 0 for row in counts for count in row) or capacity < 1 or align < 1 or capacity % align:
        raise ScheduleError(
            f"buckets have counts from 0 and a capacity from 1 that is a multiple of {align}, got {capacity}",
            span=None,
            fix="take `capacity_of(tokens, experts, align=...)`",
        )
    if token.quantize not in WIRE or token.elements < 1 or token.element_bytes < 1:
        raise ScheduleError(
            f"a token has elements, and is sent as one of {', '.join(WIRE)[2:]}, got {token}",
            span=None,
            fix='write "fp8"',
        )
