"""Decisions about the threads and rows of a kernel, as passes write them: attributes `nvptx.*` of kernels and ops.

They are discardable attributes, so that Tile IR and Target IR need know nothing of GPUs. Passes of `passes/` write
them, the lowering and the emitters read them; whoever wants to know why a kernel runs as it does reads its IR. What is
decided on Tile IR goes down with the kernel:

    nvptx-plan-threads        how many threads a program has
    nvptx-plan-rows           where a row is kept between loops, and how many warps share it
    nvptx-rematerialize-rows  what is computed again in place of being kept
    nvptx-place-scratch       registers, shared memory or global memory
    nvptx-unroll-loops        iterations one after the other
    nvptx-insert-barriers     where threads wait for each other

On Target IR, where offsets, guards and alignment of accesses are known:

    nvptx-choose-vectors      neighbours of a tile to a thread
    nvptx-schedule-rows       programs to a block, blocks to a multiprocessor, prefetching, moves by `ldmatrix`
    nvptx-defer-sums          accumulators that are almost never used
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from xdsl.ir import Operation

from tessera.ir.base.op import plain
from tessera.ir.base.types import attribute_of

T = TypeVar("T")


@dataclass(frozen=True)
class Decision(Generic[T]):
    """A decision: the name of its attribute, and what holds of an op that has none."""

    name: str
    default: T

    def of(self, op: Operation) -> T:
        """What was decided for an op."""
        found = op.attributes.get(self.name)
        return self.default if found is None else plain(found)

    def write(self, op: Operation, value: T) -> None:
        """Decide it for an op; what holds without an attribute needs none."""
        if value == self.default:
            op.attributes.pop(self.name, None)
        else:
            op.attributes[self.name] = attribute_of("any", value)


ALIGNED = 16
"""Bytes that arguments begin at a multiple of, unless said otherwise; the runtime sees to it."""
MEMORY, REGISTERS, REMATERIALIZED = "memory", "registers", "rematerialized"
"""Where a row is between the loops that go over it."""

# Of a `ttile.kernel`.
THREADS = Decision("nvptx.threads", 1)
"""Threads of one program."""
ALIGN = Decision("nvptx.align", ALIGNED)
"""Bytes that the kernel's arguments begin at a multiple of."""
ROWS = Decision("nvptx.rows", MEMORY)
"""Where a program keeps its row between loops: in memory, in registers, or nowhere, since it is computed twice."""
WARPS_PER_ROW = Decision("nvptx.warps_per_row", 0)
"""Warps that divide the loops of a program among them; 0 where a program has all of its threads in every iteration."""

# Of a `ttile.scratch`.
SPACE = Decision("nvptx.space", "private")
"""private (global memory), shared, or registers."""

# Of a `ttile.for`.
UNROLL = Decision("nvptx.unroll", 1)
"""Iterations that are written one after the other; 0 for all of them."""

# Of a `ttile.kernel` and of the `ttarget.kernel` that it becomes.
MOST_NEIGHBOURS = Decision("nvptx.most_neighbours", 16)
"""Neighbours of a tile that one thread has at most, as the author of the kernel asks."""

# Of a `ttarget.kernel`.
PROGRAMS = Decision("nvptx.programs", 1)
"""Programs that a block runs side by side."""
BLOCKS = Decision("nvptx.blocks", 0)
"""Blocks that a multiprocessor holds at least, which bounds the registers of a thread; 0 for any number."""
LAUNCHED = Decision("nvptx.launched", 0)
"""Blocks that are launched for each multiprocessor, which take programs in turn; 0 for one to each program."""
SLOTS = Decision("nvptx.slots", 0)
"""Programs that run at a time where each has scratch in global memory; 0 for any number."""
USES_MATRICES = Decision("nvptx.uses_matrices", False)
"""Whether lanes are numbered as `ldmatrix` deals out elements."""
SECTIONS = Decision("nvptx.sections", 0)
"""Sections of eight iterations that a warp has of a row of symbolic width."""
WIDENS_IN_EACH_LOOP = Decision("nvptx.widens_in_each_loop", False)
"""Whether bf16 stay as they are in memory and every loop widens them anew: as f32 they would fill all registers."""
FETCHES_LINES = Decision("nvptx.fetches_lines", False)
"""Whether reads of less than 128 bytes of a row bring the whole line to L2, where other blocks find it."""
KEEPS_ROWS_ONLY = Decision("nvptx.keeps_rows_only", False)
"""Whether warps that share a row keep nothing of it between loops but the row: what they compute takes no time."""
COMPUTES_LATE = Decision("nvptx.computes_late", False)
"""Whether a warp computes nothing of its iterations before its turn comes: what it would keep takes registers."""

# Of a `ttarget.load` or `ttarget.store`.
PREFETCH = Decision("nvptx.prefetch", "")
"""row: the next program's is copied to shared memory while this one computes; line: all programs read the same."""
BY_MATRIX = Decision("nvptx.by_matrix", False)
"""Whether eight iterations are moved by one `ldmatrix` or `stmatrix`."""

# Of a `ttarget.loop`.
DEFERRED = Decision[tuple[tuple[int, int], ...]]("nvptx.deferred", ())
"""Accumulators that are computed only if another is not finite: each with that other one, by number."""
