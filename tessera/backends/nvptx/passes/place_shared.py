"""Give every tile and every barrier of a matrix kernel its offset in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.target_kernels import Part, check_parts, parts_of
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass

KERNELS = ("ttarget.matrix_kernel", "ttarget.warp_kernel", "ttarget.tensor_kernel")
"""Kernels that have parts in shared memory."""
_LAST = ("ttarget.shared_tile", "ttarget.tiles", "ttarget.ring", "ttarget.tensor_alloc")
"""What has the widest alignment comes first, so that nothing is lost between parts; then who is told what to do."""


class PlaceShared(Pass):
    """Give each `shared_tile`, `ring` and `tensor_alloc` its `offset`, `tiles` a `mailbox`, and a kernel its `shared`.

    Before: two `ttarget.shared_tile {stages = 4}` of 8192 bytes and a `ttarget.ring {stages = 4}` of them. After: the
    same with `offset = 0`, `offset = 32768` and, for the barriers, `offset = 65536`, in a kernel with `shared = 65600`.
    Offsets that are said are kept, and others go around them; those that overlap, that begin where such a part cannot,
    or that lie beyond the bytes that a kernel says it has are refused (T0601).
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, SpecOp) and op.name in KERNELS:
                place_shared(op)


def place_shared(kernel: SpecOp) -> None:
    """Place what has no offset; raises TargetVerifyError (T0601) for offsets that a kernel gives and that cannot be."""
    parts = parts_of(kernel)
    taken = [(part.start, part.end) for part in parts if part.is_placed]
    top = 0
    for part in sorted((part for part in parts if not part.is_placed), key=lambda part: _LAST.index(part.what)):
        start = _free(top, part, taken)
        for op in part.ops:
            op.set_value(part.attribute, start)
        top = start + part.size
    if not kernel.value("shared"):
        kernel.set_value("shared", max((part.end for part in parts), default=0))
    try:
        check_parts(kernel)
    except OpError as error:
        raise TargetVerifyError(
            error.message, span=kernel.span, fix="leave offsets out, and they are chosen"
        ) from error


def _free(top: int, part: Part, taken: Sequence[tuple[int, int]]) -> int:
    """The first offset from `top` on that a part can have beside those which are taken."""
    start = -(-top // part.alignment) * part.alignment
    for low, high in sorted(taken):
        if start < high and low < start + part.size:
            start = -(-high // part.alignment) * part.alignment
    return start
