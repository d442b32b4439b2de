"""How many stages rings have: as many as shared memory holds, or as the author of a kernel asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.ir.base.op import SpecOp
from tessera.ir.target import ampere_limits
from tessera.ir.target.hopper_limits import ALIGNMENT, MAX_STAGES, SHARED_BYTES
from tessera.ir.tile.matrix.plan import UnfitError
from tessera.ir.tile.matrix.rings import Ring
from tessera.types.machine import Machine

_BARRIERS = 1024
"""Bytes kept for barriers: two of eight bytes for each stage."""
_MOST_BY_THREADS = 4
"""More stages than this wait for nothing that a second CTA would not hide."""
_RESERVED = 1 << 10
"""Shared bytes that each CTA takes for the machine itself."""


def asked_stages(kernel: SpecOp) -> int | None:
    """Buffers of each tile that a schedule asks for, or a loop; None where neither does."""
    loops = [op.value("buffers") for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
    schedule: Mapping[str, Any] = kernel.value("schedule") or {}
    return schedule.get("stages") or max(loops, default=0) or None


def written_stages(rings: Sequence[Ring]) -> int:
    """The stages that loops of rings say; raises `UnfitError` where they say different ones."""
    found = sorted({ring.written for ring in rings if ring.is_turning} - {0})
    if len(found) > 1:
        raise UnfitError(f"loops have {' and '.join(map(str, found))} stages, and all that turn have as many")
    return found[0] if found else 0


def check_written(rings: Sequence[Ring], stages: Sequence[int], shared: int) -> None:
    """Raises `UnfitError` for rings that say more stages than there is room for, or fewer than their products need."""
    for ring, found in zip(rings, stages, strict=True):
        if 0 < ring.written < found:
            raise UnfitError(f"products stay in flight over {found} stages at least, and a loop says {ring.written}")
        if ring.written not in (0, found):
            raise UnfitError(
                f"{ring.written} stages of {ring.bytes} bytes do not fit beside all else in {shared}, and {found} do"
            )


def stages_by_engine(rings: Sequence[Ring], staging: int, asked: int | None = None, least: int = 2) -> list[int]:
    """As many stages as there is room for, alike for all rings that turn; raises `UnfitError` where two do not fit.

    A schedule that has `asked` for fewer gets them, down to the `least` that its products need: two where one is
    always in flight, and one where loops may wait for each.

    What is loaded once for each program gets a second stage from what is left: the next program's comes early.
    """
    turning = [ring for ring in rings if ring.is_turning]
    still = sum(_whole(ring.bytes) for ring in rings if not ring.is_turning)
    room = SHARED_BYTES - _BARRIERS - staging - still
    each = sum(_whole(ring.bytes) for ring in turning)
    wanted = MAX_STAGES if asked is None else max(least, asked)
    stages = min(wanted, MAX_STAGES, room // each if each else 1)
    if room < 0 or (turning and stages < min(wanted, 2)):
        raise UnfitError(f"two stages of {each} bytes do not fit beside {still + staging} of {SHARED_BYTES}")
    spare = room - stages * each
    found: list[int] = []
    for ring in rings:
        is_early = not ring.is_turning and ring.written != 1 and _whole(ring.bytes) <= spare
        spare -= _whole(ring.bytes) if is_early else 0
        found.append(stages if ring.is_turning else 1 + is_early)
    return found


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def stages_by_threads(
    rings: Sequence[Ring], staging: int, machine: Machine, consumers: int, asked: int | None = None
) -> list[int]:
    """Stages that leave room for a second CTA where its threads have registers, else all that fit.

    A schedule that has asked for others gets them as far as there is room, but no fewer than two.
    """
    turning = [ring for ring in rings if ring.is_turning]
    still = staging + sum(ring.bytes for ring in rings if not ring.is_turning)
    each = sum(ring.bytes for ring in turning)
    room = machine.shared
    if asked is None and consumers == 1 and still + 2 * each <= (room - _RESERVED) // 2:
        room = (room - _RESERVED) // 2
    most = _MOST_BY_THREADS if asked is None else min(ampere_limits.MAX_STAGES, max(2, asked))
    stages = min(most, (room - still) // each if each else 1)
    if still > room or (turning and stages < 2):
        raise UnfitError(f"two stages of {each} bytes do not fit beside {still} of {machine.shared}")
    return [stages if ring.is_turning else 1 for ring in rings]
