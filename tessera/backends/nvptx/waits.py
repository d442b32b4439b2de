"""Waits that end: in kernels that are made to be debugged, one that takes too long says where it is, and stops.

The first thread that gives up writes where it is into a record that the host reads (`runtime/devices/cuda_waits.py`),
and traps. Which wait it is, the kernel says by a number; what the numbers mean is `Waits.told`, beside it.
"""

from __future__ import annotations

from tessera.ir.base.op import SpecOp

LIMIT = 2_000_000_000
"""Nanoseconds that a wait may take: a pipeline that moves waits for microseconds."""
RECORD, TAKEN = "wait_record", "wait_taken"
"""Variables of a module: where its record is, and whether somebody writes it already."""
GLOBALS = (
    f"@{RECORD} = addrspace(1) externally_initialized global i64 0, align 8\n"
    f"@{TAKEN} = addrspace(1) externally_initialized global i32 0, align 4\n"
)


class Waits:
    """The waits of one kernel as they are written, each with the op that it is for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._here = "a barrier"

    def enter(self, op: SpecOp, is_producer: bool) -> None:
        """What is written next belongs to an op of a role."""
        role = "the producer" if is_producer else "a consumer"
        where = f" at {op.span}" if op.span is not None else ""
        self._here = f"{role} in `{op.name}`{_which(op)}{where}"

    def number(self) -> int:
        """A number for the wait that is written here."""
        if self._here not in self.told:
            self.told.append(self._here)
        return self.told.index(self._here)


def _which(op: SpecOp) -> str:
    """Which ring of its kernel an op is about."""
    ring = op.operands[0].owner if op.operands else None
    if not isinstance(ring, SpecOp) or ring.name != "ttarget.ring":
        return ""
    block = ring.parent_block()
    rings = [part for part in block.ops if part.name == "ttarget.ring"] if block is not None else [ring]
    return f" of ring {rings.index(ring)} ({ring.value('stages')} stages)"


def bounded_wait(number: int) -> str:
    """The assembly of a wait: `$0` is the barrier, `$1` the parity of the phase that has to end."""
    return (
        "{ .reg .pred P1, P2; .reg .b64 begun, now, place; .reg .b32 word; mov.u64 begun, %globaltimer; "
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1; @P1 bra DONE; "
        f"mov.u64 now, %globaltimer; sub.u64 now, now, begun; setp.lt.u64 P2, now, {LIMIT}; @P2 bra AGAIN; "
        f"ld.global.u64 place, [{RECORD}]; setp.eq.u64 P1, place, 0; @P1 bra STOP; "
        f"atom.global.cas.b32 word, [{TAKEN}], 0, 1; setp.ne.b32 P1, word, 0; @P1 bra AGAIN; "
        f"mov.b32 word, {number}; st.global.b32 [place+4], word; "
        "mov.u32 word, %ctaid.x; st.global.b32 [place+8], word; mov.u32 word, %tid.x; st.global.b32 [place+12], word; "
        "st.global.b32 [place+16], $0; st.global.b32 [place+20], $1; membar.sys; "
        "mov.b32 word, 1; st.global.b32 [place], word; membar.sys; "
        "STOP: trap; DONE: }"
    )
