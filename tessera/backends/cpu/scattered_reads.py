"""Loops that read a stretch of memory out of order: the stretch is touched before, line by line and in order.

Sums take the elements of a leaf far apart first: a loop over its lanes reads 16 offsets of 4 KB in each iteration. The
prefetchers of a CPU follow few streams at a time, so what such a loop reads of memory beyond the caches comes at a
third of the rate that it does in order. A loop before it, which reads a byte of each line in order and asks for the
same line of the next stretch, is a stream that they follow: 32 MB of f32 take 0.7 ms instead of 3.5, where one pass in
order takes 0.9 (measured, Zen 4; prefetches alone take 1.7). Where the stretch is in L2 it only costs, a quarter of the
time, and in L3 nothing. So tensors that a core's own caches hold are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import BlockArgument, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, VectorAttr
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.typed_ops import IndexOp, LoadOp, LoopOp, ProgramsOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

LEAST_BYTES = 8 << 20
"""Bytes of a tensor from which on it is taken to be beyond a core's own caches."""
_LEAST_STRETCH, _MOST_STRETCH = 1 << 9, 1 << 13
"""Bytes of a stretch: what is shorter a core has under way together, what is longer is too much of the first cache."""
_LEAST_OFFSETS = 4
"""Offsets that an iteration reads from: a prefetcher follows fewer by itself."""


@frozen
class _Access:
    """Elements that are read together: by which op of a block, from where on, and how many."""

    op: SpecOp
    start: Dim
    elements: int


@frozen
class _Stretch:
    """What the body of a loop, or a program, reads of a buffer: where it begins, its elements, and its first reader."""

    op: SpecOp
    start: Dim
    elements: int


class ScatteredReads:
    """Finds stretches of arguments that are read out of order, and has them touched in order before."""

    def __init__(self, kernel: SpecOp) -> None:
        self.kernel = kernel
        self.names: dict[SSAValue, str] = {}
        """Indices that are no expression of others, by the names they have in expressions."""
        self.starts: dict[SSAValue, list[Dim]] = {}
        """Where the stretches of a program begin that are touched, by their buffers."""

    def run(self) -> None:
        """Insert a `ttarget.prefetch` before what reads such a stretch.

        A program that goes over memory several times finds it in a cache after the first.
        """
        writes = self.kernel.value("writes")
        for argument in self.kernel.regions[0].block.args:
            if argument.index not in writes and _may_be_large(argument):
                self.starts[argument] = []
        # Loops before programs: what a program reads next is what its first loop begins with.
        bodies = [op for kind in (LoopOp, ProgramsOp) for op in self.kernel.walk() if isinstance(op, kind)]
        for around in bodies if self.starts else ():
            for buffer in self.starts:
                accesses = list(self._accesses(around, buffer))
                stretch = _join(accesses) if _are_scattered(accesses) else None
                if stretch is not None and self._is_new(around, buffer, stretch):
                    self._touch(buffer, stretch)

    def _expr(self, index: SSAValue) -> Dim:
        """An index as an expression of those of loops and programs."""
        op = index.owner
        if isinstance(op, IndexOp):
            return op.expr.substitute(dict(zip(op.names, map(self._expr, op.operands), strict=True)))
        return Dim.symbol(self.names.setdefault(index, f"_i{len(self.names)}"))

    def _accesses(self, around: LoopOp | ProgramsOp, buffer: SSAValue) -> Iterator[_Access]:
        """What the ops of a body read of a buffer, in order: loads, and loops whose loads go on from lane to lane."""
        for op in around.body.block.ops:
            if isinstance(op, LoadOp) and op.buffer is buffer and _is_plain(op):
                type = op.result.type
                assert isinstance(type, VectorAttr)
                yield _Access(op, self._offset(op), type.sizes[-1])
            elif isinstance(op, LoopOp):
                yield from self._accesses_of_loop(op, buffer)

    def _accesses_of_loop(self, loop: LoopOp, buffer: SSAValue) -> Iterator[_Access]:
        low, high = (self._expr(value).value for value in (loop.low, loop.high))
        if low is None or high is None or high <= low:
            return
        lane = self._expr(loop.body.block.args[0])
        for load in loop.body.block.ops:
            if isinstance(load, LoadOp) and load.buffer is buffer and _is_plain(load):
                offset = self._offset(load)
                start = offset.substitute({name: Dim.constant(low) for name in lane.symbols})
                if offset - lane == start - low:
                    yield _Access(loop, start, high - low)

    def _offset(self, load: LoadOp) -> Dim:
        return load.offset.substitute(dict(zip(load.coords, map(self._expr, load.at), strict=False)))

    def _is_new(self, around: LoopOp | ProgramsOp, buffer: SSAValue, stretch: _Stretch) -> bool:
        """Whether no stretch that begins here was touched yet, and what lies behind it is read next."""
        indices = around.body.block.args
        if not indices:
            return False
        index, step = (indices[0], around.step) if isinstance(around, LoopOp) else (indices[-1], 1)
        name = self.names.get(index, "")
        low = self._expr(around.low) if isinstance(around, LoopOp) else Dim.symbol(name)
        first = stretch.start.substitute({name: low})
        nexts = [stretch.start.substitute({name: Dim.symbol(name) + step})]
        if isinstance(around, ProgramsOp):
            nexts += [start.substitute({name: Dim.symbol(name) + 1}) for start in self.starts[buffer]]
        left = [(start - stretch.start).value for start in nexts]
        is_followed = any(by is not None and by <= 2 * stretch.elements <= 4 * by for by in left)
        if first in self.starts[buffer] or not is_followed:
            return False
        self.starts[buffer].append(first)
        return True

    def _touch(self, buffer: SSAValue, stretch: _Stretch) -> None:
        block = stretch.op.parent
        assert block is not None
        assert isinstance(buffer.type, BufferAttr)
        size = stretch.elements * buffer.type.dtype.bytes
        if not _LEAST_STRETCH <= size <= _MOST_STRETCH:
            return
        used = {name: index for index, name in self.names.items() if name in stretch.start.symbols}
        values = {
            "coords": tuple(used),
            "offset": stretch.start,
            "elements": stretch.elements,
            "ahead": size,
            "least": 0 if buffer.type.data.bytes.value is not None else LEAST_BYTES,
        }
        made = make(DIALECT["prefetch"], [buffer, *used.values()], values, types=(), span=stretch.op.span)
        block.insert_op_before(made, stretch.op)


def _join(accesses: Sequence[_Access]) -> _Stretch | None:
    """The memory from the first element of some accesses to the last; None where they are not known to be near."""
    first = accesses[0]
    apart = [(access.start - first.start).value for access in accesses]
    known = [at for at in apart if at is not None]
    if len(known) < len(apart):
        return None
    end = max(at + access.elements for at, access in zip(known, accesses, strict=True))
    return _Stretch(first.op, first.start + min(known), end - min(known))


def _are_scattered(accesses: Sequence[_Access]) -> bool:
    """Whether accesses are several, and one is behind the next that is read, or a loop alternates among them."""
    apart = [(access.start - accesses[0].start).value or 0 for access in accesses]
    is_looped = len({access.op for access in accesses}) < len(accesses)
    return len(set(apart)) >= _LEAST_OFFSETS and (is_looped or apart != sorted(apart))


def _may_be_large(argument: BlockArgument) -> bool:
    assert isinstance(argument.type, BufferAttr)
    bytes_ = argument.type.data.bytes.value
    return bytes_ is None or bytes_ >= LEAST_BYTES


def _is_plain(load: LoadOp) -> bool:
    """Whether a load reads neighbours, all of which are there."""
    return load.pattern == "contiguous" and len(load.axes) == 1 and not load.guarded and not load.windows
