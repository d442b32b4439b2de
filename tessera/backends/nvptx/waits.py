"""Bounded waits: in a debug build, a wait that takes too long is reported and stops the kernel; all are counted.

The first thread that times out writes where it is into a record that the host reads (`runtime/devices/cuda/`), and
traps. A wait is known by a number; what the numbers mean is `Waits.labels`, beside the kernel. A warp that went on adds
to the counters of its wait: that it passed, and whether it was blocked, for how many cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.op import SpecOp

LIMIT = 2_000_000_000
"""Nanoseconds that a wait may take: a pipeline that moves waits for microseconds."""
RECORD, TAKEN = "wait_record", "wait_taken"
"""Variables of a module: the address of its record, and whether a thread writes it already."""
COUNTS, MOST_COUNTED = "wait_counts", 64
"""The variable with three words for each wait, and how many waits have some: those of more ops are not counted."""
GLOBALS = (
    f"@{RECORD} = addrspace(1) externally_initialized global i64 0, align 8\n"
    f"@{TAKEN} = addrspace(1) externally_initialized global i32 0, align 4\n"
    f"@{COUNTS} = addrspace(1) externally_initialized global [{3 * MOST_COUNTED} x i64] zeroinitializer, align 8\n"
)


ELSEWHERE = 0xFFFFFFFF
"""What a record has in place of a barrier's address where a wait polls a word of global memory."""


class Waits:
    """The waits of one kernel as they are written, each with the op that it is for.

    `shared` is where the kernel's own shared memory ends, `most` what there may be: mbarriers are put between them in
    place of named barriers, which cannot time out.
    """

    def __init__(self, shared: int = 0, most: int = 0) -> None:
        self.labels: list[str] = []
        self.shared = shared
        self._most = most
        self._here = "a barrier"

    def enter(self, op: SpecOp, is_producer: bool) -> None:
        """What is emitted next belongs to an op of a role."""
        role = "the producer" if is_producer else "a consumer"
        where = f" at {op.span}" if op.span is not None else ""
        self._here = f"{role} in `{op.name}`{_which(op)}{where}"

    def number(self, what: str = "") -> int:
        """A number for the wait that is emitted here; `what` is it for, where the op does not say so."""
        label = f"{self._here}, {what}" if what else self._here
        if label not in self.labels:
            self.labels.append(label)
        return self.labels.index(label)

    def allocate_barriers(self, threads: Sequence[int]) -> int | None:
        """The offset of mbarriers for so many threads each; None where they do not all fit in shared memory."""
        offset = -(-self.shared // 8) * 8
        if offset + 8 * len(threads) > self._most:
            return None
        self.shared = offset + 8 * len(threads)
        return offset


def _which(op: SpecOp) -> str:
    """Which ring of its kernel an op uses."""
    ring = op.operands[0].owner if op.operands else None
    if not isinstance(ring, SpecOp) or ring.name != "ttarget.ring":
        return ""
    block = ring.parent_block()
    rings = [part for part in block.ops if part.name == "ttarget.ring"] if block is not None else [ring]
    return f" of ring {rings.index(ring)} ({ring.value('stages')} stages)"


def bounded_wait(number: int) -> str:
    """The assembly of a wait: `$0` is the barrier, `$1` the parity of the phase that has to end."""
    # Whether it is blocked is tested without waiting: `try_wait` takes a while before it says no.
    first = "mbarrier.test_wait.parity.shared::cta.b64 P1, [$0], $1;"
    return _bounded_assembly(number, "", "mbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1;", ("$0", "$1"), first)


def bounded_barrier(number: int) -> str:
    """The assembly of threads that synchronize at a barrier, `$0`: a thread arrives, and waits for the others.

    It waits for the phase in which it arrived, so that nobody counts phases.
    """
    begin = ".reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [$0]; "
    return _bounded_assembly(number, begin, "mbarrier.test_wait.shared::cta.b64 P1, [$0], state;", ("$0", "0"))


def bounded_poll(number: int) -> str:
    """The assembly of a wait for a word of global memory, 8 bytes behind `$0`, to become `$1`."""
    poll = "ld.acquire.gpu.global.u64 seen, [$0+8]; setp.eq.u64 P1, seen, $1;"
    return _bounded_assembly(number, ".reg .b64 seen; ", poll, (str(ELSEWHERE), "0"))


def _bounded_assembly(number: int, begin: str, poll: str, details: tuple[str, str], first: str = "") -> str:
    """Poll until P1 says that it is done, or until the time is over: then `details` go into the record, and it traps.

    `first` is the first poll, where that is another instruction.
    """
    parts = zip((16, 20), details, strict=True)
    stores = "".join(f"mov.b32 word, {what}; st.global.b32 [place+{at}], word; " for at, what in parts)
    return (
        "{ .reg .pred P1, P2, P3; .reg .b64 begun, now, place, cycles; .reg .b32 word; "
        f"{begin}mov.u64 cycles, %clock64; mov.u64 begun, %globaltimer; {first or poll} mov.pred P3, P1; "
        f"@P1 bra DONE; AGAIN: {poll} @P1 bra DONE; "
        f"mov.u64 now, %globaltimer; sub.u64 now, now, begun; setp.lt.u64 P2, now, {LIMIT}; @P2 bra AGAIN; "
        f"ld.global.u64 place, [{RECORD}]; setp.eq.u64 P1, place, 0; @P1 bra STOP; "
        f"atom.global.cas.b32 word, [{TAKEN}], 0, 1; setp.ne.b32 P1, word, 0; @P1 bra AGAIN; "
        f"mov.b32 word, {number}; st.global.b32 [place+4], word; "
        "mov.u32 word, %ctaid.x; st.global.b32 [place+8], word; mov.u32 word, %tid.x; st.global.b32 [place+12], word; "
        f"{stores}membar.sys; mov.b32 word, 1; st.global.b32 [place], word; membar.sys; "
        f"STOP: trap; DONE: {_count_assembly(number)}}}"
    )


def _count_assembly(number: int) -> str:
    """One thread of those that went on together counts; P3 says that nothing blocked them."""
    if number >= MOST_COUNTED:
        return ""
    at = f"{COUNTS}+{24 * number}"
    return (
        "activemask.b32 word; brev.b32 word, word; clz.b32 word, word; { .reg .b32 lane; mov.u32 lane, %laneid; "
        "setp.ne.b32 P2, word, lane; } @P2 bra COUNTED; mov.b64 now, 1; "
        f"red.global.add.u64 [{at}], now; @P3 bra COUNTED; red.global.add.u64 [{at}+8], now; "
        f"mov.u64 now, %clock64; sub.u64 now, now, cycles; red.global.add.u64 [{at}+16], now; COUNTED: "
    )
