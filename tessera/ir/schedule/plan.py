"""Reading a plan: its programs and fusion groups, the choices written down for each group, and the effects of ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.build import block_of, tape_of
from tessera.ir.base.compilation import Choice, Chooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.effects import declared_effects
from tessera.ir.base.literal import text_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import refuse
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.base.types import BufferAttr, TensorAttr
from tessera.ir.schedule import typed_ops
from tessera.types.effect import PURE, Effects
from tessera.types.shape import TensorType


def programs_in(module: ModuleOp) -> Iterator[typed_ops.ModuleOp]:
    """The programs of a module."""
    return (op for op in module.ops if isinstance(op, typed_ops.ModuleOp))


def fusions_in(module: ModuleOp) -> list[typed_ops.FuseOp]:
    """All groups of all programs, in program order."""
    return [op for program in programs_in(module) for op in program.walk() if isinstance(op, typed_ops.FuseOp)]


def body_of(fuse: typed_ops.FuseOp, functions: Mapping[str, SpecOp]) -> SpecOp:
    """The function of Graph IR that a group computes; refuses (T0401) a group whose body tiles took the place of."""
    found = functions.get(fuse.body)
    if found is None or found.name != "tgraph.func":
        what = "nothing of this module" if found is None else f"a `{found.name}`"
        advice = "run passes over groups before `schedule-emit-tiles`, which replaces bodies by kernels"
        refuse(fuse, f"`body` of a group is a function of Graph IR here, and `@{fuse.body}` is {what}", advice)
    return found


def kernel_of(call: typed_ops.CallOp, kernels: Mapping[str, SpecOp]) -> SpecOp:
    """The kernel that is called; refuses (T0401) a call of one that the module does not have."""
    found = kernels.get(call.kernel)
    if found is None or found.name != "ttile.kernel":
        what = "nothing of this module" if found is None else f"a `{found.name}`"
        refuse(call, f"a call is of a kernel of Tile IR here, and `@{call.kernel}` is {what}")
    return found


def tensor_of(value: SSAValue) -> TensorType:
    """The shape and dtype of a value of a plan or of a host program."""
    if not isinstance(value.type, TensorAttr | BufferAttr):
        op = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
        assert op is not None
        refuse(op, f"a value of a program is a tensor or a buffer here, got {value.type}")
    return value.type.data


def function_of(tape: Tape, name: str, guards: Iterable[Guard]) -> SpecOp:
    """A tape as a function of Graph IR, with guards on its sizes."""
    listed = tuple((guard.left, guard.right, guard.what) for guard in guards)
    values = {"symbol": name, "names": tuple(tape.names), "guards": listed}
    return make("tgraph.func", values=values, types=(), regions=[block_of(tape, "tgraph.return")])


def tape_in(function: SpecOp) -> Tape:
    """The tape of a function of Graph IR, with its names and guards."""
    tape = tape_of(function.regions[0].block, function.value("names"))
    tape.guards = [Guard(left, right, what) for left, right, what in function.value("guards")]
    return tape


def overwritten_arguments(fuse: typed_ops.FuseOp) -> tuple[int, ...]:
    """The argument of the kernel that each result is stored to, where a group writes over its operands; else -1.

    Kernels of the library are told by their op, and decide by themselves.
    """
    return tuple(fuse.in_place) if fuse.kind in ("map", "contraction") else ()


PLAN = "plan"
"""The source of a choice that was read from the text of a plan: it holds, or is refused."""


def tiles_of(fuse: typed_ops.FuseOp) -> list[typed_ops.TileOp]:
    """The choices that are written for a group."""
    users = [use.operation for result in fuse.results for use in result.uses]
    return list(dict.fromkeys(op for op in users if isinstance(op, typed_ops.TileOp)))


def check_candidate(op: typed_ops.TileOp, candidates: Sequence[Any]) -> None:
    """Refuse (T0401) a choice that is none of the candidates, as they are written: `32.0` and `true` are no sizes."""
    listed = [text_of(candidate) for candidate in candidates]
    if text_of(op.chosen) not in listed:
        refuse(op, f"`{op.knob}` cannot be {text_of(op.chosen)} here", f"it can be {', '.join(listed)}")


def choices_for(fuse: typed_ops.FuseOp) -> dict[str, Choice]:
    """What was chosen for a group, by knob."""
    found: dict[str, Choice] = {}
    for use in (use for result in fuse.results for use in result.uses):
        op = use.operation
        if isinstance(op, typed_ops.TileOp) and op.chosen is not None:
            found[op.knob] = Choice(op.chosen, op.source)
    return found


def write_choice(fuse: typed_ops.FuseOp, knob: str, candidates: Sequence[Any], choice: Choice) -> None:
    """Put a choice after its group and the choices that are there already."""
    values = {"candidates": tuple(candidates), "chosen": choice.value, "source": choice.source, "knob": knob}
    op = make("tsched.tile", [fuse.results[0]], values, types=(), span=fuse.span)
    block: Block | None = fuse.parent
    last: SpecOp = fuse
    assert block is not None
    while isinstance(last.next_op, typed_ops.TileOp):
        last = last.next_op
    block.insert_op_after(op, last)


@dataclass
class RecordedChooser:
    """Answers with what was chosen before; what was not is asked of `chooser`, and is then in `new`, by knob.

    What a plan chose for the group `fuse` is refused (T0401) where it is no candidate.
    """

    chooser: Chooser
    choices: Mapping[str, Choice]
    fuse: typed_ops.FuseOp | None = None
    asked: set[str] = field(default_factory=set[str])
    new: dict[str, tuple[Sequence[Any], Choice]] = field(default_factory=dict[str, tuple[Sequence[Any], Choice]])

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        knob = key.partition("@")[0]
        found = self.choices.get(knob)
        self.asked.add(knob)
        if found is not None and found.source == PLAN and self.fuse is not None:
            for op in tiles_of(self.fuse):
                if op.knob == knob:
                    check_candidate(op, candidates)
        if found is None or found.value not in tuple(candidates):
            found = self.chooser.choose(key, candidates, context)
            self.new[knob] = (candidates, found)
        return found


def resolve_annotations(module: ModuleOp) -> None:
    """Write on groups what `"tessera.schedule.pipeline"(%a, %b) {double_buffer = true}` says of those that read them.

    Refuses (T0401) an annotation of values that no group reads together, and one that a group contradicts.
    """
    for program in programs_in(module):
        for op in [op for op in program.walk() if op.name == "tessera.schedule.pipeline"]:
            assert isinstance(op, SpecOp)
            wanted = {name: value for name, value in op.values().items() if value is not None}
            readers = [use.operation for use in op.operands[0].uses if isinstance(use.operation, typed_ops.FuseOp)]
            groups = [fuse for fuse in readers if all(value in fuse.operands for value in op.operands)]
            if not groups:
                refuse(
                    op, f"no group reads these {len(op.operands)} values together: there is no loop to prefetch them in"
                )
            for fuse in groups:
                if fuse.pipeline not in (None, wanted):
                    refuse(op, f"`@{fuse.body}` has `pipeline` {fuse.pipeline}, and this says {wanted}")
                fuse.set_value("pipeline", wanted)
            op.detach()
            op.erase()


_CALLBACKS: Mapping[str, tuple[str, ...]] = {"fresh_key": ("io", "random"), "axis_index": ()}
"""The effects of calls of Python that do other things than input and output."""


def own_effects(op: Operation, kernels: Mapping[str, SpecOp]) -> Effects:
    """The effects of an op itself, what is inside it left out; a call has those that its kernel declares."""
    if not isinstance(op, SpecOp):
        return PURE
    if isinstance(op, typed_ops.CallbackOp):
        return Effects(_CALLBACKS.get(op.call, ("io",)))
    own = Effects(op.spec.effects)
    kernel = kernels.get(op.kernel) if isinstance(op, typed_ops.CallOp) else None
    return own if kernel is None else own.join(declared_effects(kernel) or ())


def all_effects(op: Operation, kernels: Mapping[str, SpecOp]) -> Effects:
    """The effects of an op and of all that is inside it; a group has those of its body."""
    found = PURE
    for inner in op.walk():
        found = found.join(own_effects(inner, kernels))
        if isinstance(inner, typed_ops.FuseOp):
            for name in (inner.body, *inner.kernels):
                found = found.join(declared_effects(kernels[name]) or () if name in kernels else ())
    return found
