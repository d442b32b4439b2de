"""Emit the tile kernels of every body."""

from __future__ import annotations

from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from tessera.ir.base.build import tape_of
from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.effects import DETERMINISTIC, declare_effects, deterministic_scope, is_deterministic
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.policies import declare_policies, policy_over
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import (
    KernelLibrary,
    Request,
    drop_plain_roundings,
    prefetched_arguments,
    set_prefetch,
)
from tessera.ir.schedule.kinds import KernelKind, kernel_kinds
from tessera.ir.schedule.ops.plan import stages_of
from tessera.ir.schedule.plan import (
    PLAN,
    RecordedChooser,
    body_of,
    choices_for,
    fusions_in,
    overwritten_arguments,
    resolve_annotations,
    tiles_of,
    write_choice,
)
from tessera.ir.schedule.typed_ops import FuseOp
from tessera.ir.tile.facets import Gather, Library, Pointwise, View
from tessera.types.effect import PURE
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.policy import SILENT, Policy


@frozen
class EmitTiles(Pass):
    """Emit the `ttile` kernels of each body once, and remove the body: no op of Graph IR is left.

    Before: `tsched.fuse @softmax_1f(%x)` and `tgraph.func @softmax_1f`. After: `ttile.kernel @softmax_1f`, named by
    the group's `kernels`. What an emitter chose beside the knobs of the group becomes a `tsched.tile` too.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))
    chooser: Chooser = field(default_factory=StaticChooser)
    library: KernelLibrary | None = None

    def run(self, module: ModuleOp) -> None:
        resolve_annotations(module)
        functions = symbol_table(module)
        made: dict[str, tuple[str, ...]] = {}
        asked: dict[str, RecordedChooser] = {}
        prefetched: dict[str, dict[int, str]] = {}
        scopes: dict[str, Attribute] = {}
        bodies: dict[str, Tape] = {}
        for fuse in fusions_in(module):
            if fuse.body not in bodies:
                bodies[fuse.body] = tape_of(body_of(fuse, functions).regions[0].block)
            prefetched.setdefault(fuse.body, {}).update(prefetched_arguments(fuse, bodies[fuse.body]))
            # A kernel that several groups call is as deterministic as the strictest of them.
            if is_deterministic(fuse) and (scope := deterministic_scope(fuse)) is not None:
                scopes[fuse.body] = scope
        for fuse in fusions_in(module):
            name = fuse.body
            if name not in made:
                function = functions[name]
                chooser = asked[name] = RecordedChooser(self.chooser, choices_for(fuse), fuse)
                body = bodies[name]
                request = Request(
                    name,
                    body,
                    self.machine,
                    chooser,
                    policy_over(fuse),
                    tuple(fuse.axes),
                    self.library,
                    in_place=overwritten_arguments(fuse),
                )
                kind = _kind_of(fuse, body, request)
                kernels = kind.emit(request)
                _check_asked(fuse, {*chooser.asked, *(knob for knob, _ in kind.knobs(self.machine))})
                effects = PURE.join(*(spec_of(record).effects_for(record.attributes) for record in body.records))
                policies = _policies(fuse, body)
                for kernel in kernels:
                    set_prefetch(kernel, stages_of(fuse.pipeline) or _chosen_stages(fuse), prefetched[name])
                    declare_effects(kernel, effects)
                    kernel.attributes.update({DETERMINISTIC: scopes[name]} if name in scopes else {})
                    drop_plain_roundings(kernel, policies)
                    declare_policies(kernel, policies, always=bool(policy_over(fuse)))
                    module.body.block.insert_op_before(kernel, function)
                made[name] = tuple(kernel.value("symbol") for kernel in kernels)
                function.detach()
                function.erase()
            fuse.kernels = made[name]
            for knob, (candidates, choice) in asked[name].new.items():
                write_choice(fuse, knob, candidates, choice)


def _kind_of(fuse: FuseOp, body: Tape, request: Request) -> KernelKind:
    """The kind of a group; refuses (T0401) a group whose kernel would not compute its body, or is not at hand."""
    kind = kernel_kinds().get(fuse.kind)
    if kind is None:
        refuse(fuse, "a group whose tiles are emitted has a `kind`, and this one has none")
    facets = [spec_of(record).lower for record in body.records]
    if any(isinstance(facet, Library) for facet in facets) and request.library is None:
        refuse(fuse, f"`@{fuse.body}` is computed by a kernel of the library, and there is none here")
    heads = sum(isinstance(facet, kind.facets) for facet in facets)
    others = [facet for facet in facets if not isinstance(facet, (Pointwise, View, Gather, *kind.facets, *kind.takes))]
    if others or (kind.takes_epilogue and heads != 1):
        advice = "leave `kind` out, so that the ops say it, or split the group"
        refuse(fuse, f"a group of kind {fuse.kind} does not compute the ops of `@{fuse.body}`", advice)
    return kind


def _check_asked(fuse: FuseOp, asked: set[str]) -> None:
    """Refuse (T0401) a choice of a plan that nobody asked for."""
    for op in tiles_of(fuse):
        if op.source == PLAN and op.knob not in asked:
            listed = ", ".join(sorted(asked)) or "none"
            refuse(op, f"the kernel of this group has no choice `{op.knob}`", f"leave it out; its choices: {listed}")


def _chosen_stages(fuse: FuseOp) -> int:
    choice = choices_for(fuse).get("pipeline.stages")
    return 0 if choice is None else int(choice.value)


def _policies(fuse: FuseOp, body: Tape) -> set[Policy]:
    """The policies of the ops of a body: their own, and that of the program where they have none.

    A kernel that its user wrote has the policy that it says itself, whatever it is called under.
    """
    if any("kernel" in record.attributes for record in body.records):
        return {SILENT}
    outer = policy_over(fuse)
    return {record.policy or outer for record in body.records if record.operands} or {outer}
