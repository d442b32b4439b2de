"""Give contractions whose number of rows is known at run time a plan for few rows, beside the one for many.

A block that is best for thousands of rows leaves most of a GPU idle with a few: a matmul of 768 by 3072 has 12 blocks
of 128 by 256, and 96 of 64 by 32. Programs of exact sizes have the block of theirs; here the host asks for the number
of rows, and launches the kernel whose block was chosen for about as many. Blocks change no bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region
from xdsl.rewriter import Rewriter

from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.kinds import kernel_kinds
from tessera.ir.schedule.passes.choose_tiles import context_of
from tessera.ir.schedule.plan import function_of, fusions_in, tape_in
from tessera.ir.schedule.typed_ops import FuseOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

LIMITS = {64: 64, 256: 128, 1024: 512}
"""Rows up to which other blocks may be better, and for how many those are chosen: one warpgroup's, and then the middle
between two limits."""
KNOB = "contraction.block"
"""What is chosen for each number of rows."""


@frozen
class BranchOnRows(Pass):
    """Let the host choose between groups of one body by the number of their rows, where blocks for few differ.

    Before: `%a = tsched.fuse @matmul_3f(%x, %w) {sizes = [["s0", dim<M>]]}`, with `s0` rows. After: `%a = tsched.if
    {size = M - 64} ({ %b = tsched.fuse @matmul_3f(%x, %w) ... }, { %c = tsched.fuse @matmul_3f_rows64(%x, %w) {rows =
    64} ... })`: the first where there are more than 64. A limit at which the chooser takes the block of the next one is
    none; `limits` are taken whatever it says. Groups that write over an operand, or are launched with others, stay as
    they are.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))
    chooser: Chooser = field(default_factory=StaticChooser)
    limits: tuple[int, ...] = ()

    def run(self, module: ModuleOp) -> None:
        # A CPU's blocks are those of its caches, whatever the number of rows.
        if not self.machine.is_gpu and not self.limits:
            return
        bodies = symbol_table(module)
        limits: dict[str, tuple[Dim, list[int]]] = {}
        for fuse in list(fusions_in(module)):
            if fuse.kind != "contraction" or fuse.body not in bodies or fuse.launch >= 0 or fuse.in_place:
                continue
            if fuse.body not in limits:
                limits[fuse.body] = self._limits(fuse, bodies)
                for limit in limits[fuse.body][1]:
                    _clone_body(module, bodies, fuse.body, limit)
            rows, wanted = limits[fuse.body]
            if wanted:
                _branch(fuse, rows.substitute(dict(fuse.sizes)), wanted)

    def _limits(self, fuse: FuseOp, bodies: Mapping[str, SpecOp]) -> tuple[Dim, list[int]]:
        """The rows of a group, in the sizes of its body, and the limits up to which it has blocks of their own."""
        kind = kernel_kinds()[fuse.kind]
        candidates = dict(kind.knobs(self.machine))[KNOB]
        context = context_of(fuse, kind, bodies, self.machine)
        rows: Dim = context["m"]
        if rows.value is not None or self.limits:
            return rows, [] if rows.value is not None else sorted(self.limits)

        def block(name: str, count: Dim) -> Any:
            return self.chooser.choose(f"{KNOB}@{name}", candidates, {**context, "m": count}).value

        found: list[int] = []
        after = block(fuse.body, rows)  # as its tiles are chosen: the model takes symbolic rows to be many
        for limit in reversed(LIMITS):
            own = block(_name_of(fuse.body, limit), Dim.constant(LIMITS[limit]))
            if own != after:
                found.insert(0, limit)
                after = own
        return rows, found


def variants_of(body: str) -> dict[int, str]:
    """The names under which blocks for few rows are asked for, by the rows up to which they are meant."""
    return {limit: _name_of(body, limit) for limit in LIMITS}


def _name_of(body: str, limit: int) -> str:
    return f"{body}_rows{limit}"


def _clone_body(module: ModuleOp, bodies: Mapping[str, SpecOp], body: str, limit: int) -> None:
    """The same function under the name of a limit: kernels are made for each body."""
    function = bodies[body]
    tape = tape_in(function)
    module.body.block.insert_op_before(function_of(tape, _name_of(body, limit), tape.guards), function)


def _branch(fuse: FuseOp, rows: Dim, limits: Sequence[int]) -> None:
    """Replace a group by branches: the usual one above the largest limit, then one below each of the others."""
    otherwise: SpecOp = _for_rows(fuse, limits[0])
    for limit, larger in zip(limits, [*limits[1:], None], strict=True):
        then = fuse.clone() if larger is None else _for_rows(fuse, larger)
        results = [result.type for result in fuse.results]
        regions = [_region(then), _region(otherwise)]
        otherwise = make("tsched.if", [], {"size": rows - limit}, types=results, regions=regions, span=fuse.span)
    Rewriter.replace_op(fuse, otherwise)


def _for_rows(fuse: FuseOp, limit: int) -> FuseOp:
    found = fuse.clone()
    found.body, found.rows = _name_of(fuse.body, limit), LIMITS.get(limit, limit)
    return found


def _region(op: SpecOp) -> Region:
    """A region of an op that gives its results."""
    return Region(Block([op, make("tsched.yield", list(op.results), types=(), span=op.span)]))
