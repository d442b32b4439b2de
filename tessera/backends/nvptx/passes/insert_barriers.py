"""Let the threads of a program wait for each other where one reads what another wrote."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.row_plan import THREADS
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.typed_ops import BarrierOp, FetchOp, KernelOp, LoadOp, ScratchOp, SortOp, StoreOp, TreeOp


class InsertBarriers(Pass):
    """Put a `ttile.barrier` before each access of private memory that threads exchange elements through.

    Private memory is in order: every access sees those before it. Where one thread's elements are another's at the
    next access, the machine keeps that order by a barrier. A sort or a tree works in memory and has one before and
    after it. A program of one thread needs none, so that those of its author go.

    Before: `ttile.store %v, %s` by rows, `ttile.load %s` by columns. After: a `ttile.barrier` before each of them.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            if THREADS.of(kernel) > 1:
                insert_barriers(kernel)
            else:
                _drop_barriers(kernel)


def insert_barriers(kernel: KernelOp) -> None:
    """Put barriers into a kernel whose programs have several threads."""
    mixed = find_exchanged_buffers(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, SortOp | TreeOp):
            _insert_before(op)
            assert op.next_op is not None
            _insert_before(op.next_op)
        elif isinstance(op, LoadOp | StoreOp | FetchOp) and op.buffer in mixed:
            _insert_before(op)


def _insert_before(op: Operation) -> None:
    span = op.span if isinstance(op, SpecOp) else None
    Rewriter.insert_op(make(DIALECT["barrier"], types=(), span=span), InsertPoint.before(op))


def _drop_barriers(kernel: KernelOp) -> None:
    for op in list(kernel.walk()):
        if isinstance(op, BarrierOp):
            Rewriter.erase_op(op)


def find_exchanged_buffers(kernel: KernelOp) -> set[SSAValue]:
    """Memory that is in order, is read and written, and not always by the same threads."""
    seen: dict[SSAValue, set[object]] = {}
    stored: set[SSAValue] = set()
    loaded: set[SSAValue] = set()
    for op in kernel.walk():
        if isinstance(op, FetchOp) and not _is_waited_for(op):
            # All threads read the one element, and who wrote it is one of them.
            seen.setdefault(op.buffer, set()).add(op)
            loaded.add(op.buffer)
        if isinstance(op, LoadOp | StoreOp):
            tile = op.tile if isinstance(op, StoreOp) else op.result
            seen.setdefault(op.buffer, set()).add((tile.type, *_access_pattern(op)))
            (stored if isinstance(op, StoreOp) else loaded).add(op.buffer)
    # Shared memory is not in order: its author has put barriers there.
    shared = {op.result for op in kernel.walk() if isinstance(op, ScratchOp) and op.space == "shared"}
    return {buffer for buffer in stored & loaded if len(seen[buffer]) > 1} - shared


def _is_waited_for(fetch: FetchOp) -> bool:
    """Whether a barrier of the author stands between an index in memory and what was last written there."""
    at = fetch.prev_op
    while at is not None and not isinstance(at, BarrierOp):
        if at.regions or (isinstance(at, StoreOp) and at.buffer is fetch.buffer):
            return False
        at = at.prev_op
    return at is not None


def _access_pattern(op: LoadOp | StoreOp) -> tuple[object, ...]:
    """How elements find their addresses: alike for two accesses whose equal elements have equal addresses."""
    axes = set(op.axes)
    found = (op.axes, *(str(part) for part in op.map if part.symbols & axes))
    indices = {f"t{number}" for number in range(len(op.operands))}
    # An element that is found by an index in a tile may be any thread's.
    return (*found, op) if any(part.symbols & indices for part in op.map) else found
