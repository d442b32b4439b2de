"""Choose the tile sizes of every group, and record each choice with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import tape_of
from tessera.ir.base.compilation import Choice, Chooser, StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policy_over
from tessera.ir.base.spec import Cost
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.costs import nanoseconds
from tessera.ir.schedule.kinds import GroupKind, kernel_kinds
from tessera.ir.schedule.plan import body_of, choices_for, fusions_in, write_choice
from tessera.ir.schedule.typed_ops import FuseOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class ChooseTiles(Pass):
    """Ask the chooser for every knob of every group, and estimate how long each group takes.

    Before: `%a = tsched.fuse @matmul_3f(%x, %w)`. After: the same, and `tsched.tile %a candidates = [[64, 128, 64],
    ...] chosen = [64, 128, 64] {source = "default", knob = "contraction.block"}`. Groups of one body get one answer.
    The schedule that a kernel's author gave is recorded beside, with `schedule` as its source.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))
    chooser: Chooser = field(default_factory=StaticChooser)

    def run(self, module: ModuleOp) -> None:
        answers: dict[str, Choice] = {}
        recorded: dict[str, Sequence[tuple[str, Any]]] = {}
        bodies = symbol_table(module)
        for fuse in fusions_in(module):
            self._estimate(fuse)
            kind = kernel_kinds().get(fuse.kind, GroupKind())
            known = choices_for(fuse)
            for knob, candidates in kind.knobs(self.machine):
                if knob in known:
                    continue  # a plan says it
                key = f"{knob}@{fuse.body}"
                if key not in answers:
                    context = context_of(fuse, kind, bodies, self.machine)
                    answers[key] = self.chooser.choose(key, candidates, context)
                write_choice(fuse, knob, candidates, answers[key])
            if fuse.body in bodies:
                if fuse.body not in recorded:
                    recorded[fuse.body] = kind.read_choices(tape_of(body_of(fuse, bodies).regions[0].block))
                for knob, value in recorded[fuse.body]:
                    write_choice(fuse, knob, (), Choice(value, "schedule"))

    def _estimate(self, fuse: FuseOp) -> None:
        if fuse.flops is not None and fuse.bytes is not None:
            fuse.time = nanoseconds(Cost(fuse.flops, fuse.bytes), self.machine)


def context_of(fuse: FuseOp, kind: GroupKind, bodies: Mapping[str, SpecOp], machine: Machine) -> dict[str, Any]:
    """What a model may look at; a group that is for few rows has as many of them."""
    body = body_of(fuse, bodies) if fuse.body in bodies else None
    return {
        **(kind.context(tape_of(body.regions[0].block), policy_over(fuse)) if body is not None else {}),
        **({"m": Dim.constant(fuse.rows)} if fuse.rows >= 0 else {}),
        "machine": machine,
        "flops": fuse.flops,
        "bytes": fuse.bytes,
        "types": tuple(getattr(value.type, "data", None) for value in (*fuse.operands, *fuse.results)),
    }
