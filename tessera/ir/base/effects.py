"""Effects of IR at every level: what an op has, what a function declares, and the order of ops that have any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from xdsl.ir import Attribute, Operation

from tessera.diagnostics.codes import DeterminismError, EffectError
from tessera.diagnostics.error import Span
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.types import ValueAttr, attribute_of
from tessera.types.effect import ALL, Effects, may_swap
from tessera.types.frozen import frozen

EFFECTS = "tessera.effects"
"""The attribute of functions and kernels that says what they do besides computing; none means nothing."""

DETERMINISTIC = "tessera.deterministic"
"""The attribute of a function, or of an op with bodies, inside which all runs must be the same."""


def effects_of(op: Operation) -> Effects:
    """What an op does, itself and by its bodies; an op of another dialect does everything."""
    if not isinstance(op, SpecOp):
        return ALL
    # Many ops are of few classes.
    kinds = {inner.__class__ for inner in ops_inside(op)}
    found = [kind.spec.effects if issubclass(kind, SpecOp) else ALL for kind in kinds]
    if any(issubclass(kind, SpecOp) and kind.spec.more_effects is not None for kind in kinds):
        found += [own_effects(inner) for inner in ops_inside(op)]
    return own_effects(op).join(*found)


def own_effects(op: Operation) -> Effects:
    """What an op does by itself, without its bodies."""
    if not isinstance(op, SpecOp):
        return ALL
    return Effects(op.spec.effects if op.spec.more_effects is None else op.spec.effects_for(op.values()))


def declared_effects(op: Operation) -> Effects | None:
    """What an op says that it does; None where it says nothing. Raises EffectError for what is no set of effects."""
    found = _plain(op.attributes.get(EFFECTS))
    if found is None:
        return None
    try:
        return Effects(found)
    except EffectError as error:
        message = f'`{EFFECTS}` is a list of effects, such as ["random"]: {error.message}'
        raise EffectError(message, span=_span_of(op)) from error


def _span_of(op: Operation) -> Span | None:
    return op.span if isinstance(op, SpecOp) else None


def undeclared_error(op: Operation, function: SpecOp, declared: Effects, extra: Effects) -> EffectError:
    """The error of an op with effects that the function around it does not declare."""
    texts = ", ".join(f'"{effect}"' for effect in sorted({*declared, *extra}))
    return EffectError(
        f"`{op.name}` has effect {extra}, and `@{function.value('symbol')}` declares {declared!r}",
        span=_span_of(op),
        fix=f"declare it: `{EFFECTS} = [{texts}]`",
    )


def declare_effects(op: Operation, effects: Effects) -> None:
    """Write down what an op does; a pure one says nothing."""
    if effects:
        op.attributes[EFFECTS] = attribute_of("any", tuple(sorted(effects)))
    else:
        op.attributes.pop(EFFECTS, None)


def keep_promises(source: Operation, target: Operation) -> None:
    """Carry what is said of an op beside its own form (`tessera.effects` and the like) down to what it becomes."""
    target.attributes.update(source.attributes)


def is_deterministic(op: Operation) -> bool:
    """Whether an op stands inside of, or is, what must be the same at every run."""
    return bool(_plain(deterministic_scope(op)))


def deterministic_scope(op: Operation) -> Attribute | None:
    """What the innermost scope around an op says of its runs; None where none says anything."""
    at: Operation | None = op
    while at is not None:
        if DETERMINISTIC in at.attributes:
            return at.attributes[DETERMINISTIC]
        at = at.parent_op()
    return None


def check_kernel_order(kernel: SpecOp) -> None:
    """Raises DeterminismError where a deterministic kernel adds floats in the order in which programs come."""
    if not is_deterministic(kernel):
        return
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.kinds.get("mode") == "str" and op.value("mode") == "atomic_add":
            dtype, name = getattr(op.operands[0].type, "dtype", None), kernel.value("symbol")
            if dtype is not None and dtype.is_float:
                raise DeterminismError(
                    f"kernel `@{name}` is `{DETERMINISTIC}`, and `{op.name}` adds {dtype} atomically: "
                    "the order of additions differs from run to run",
                    span=op.span,
                    fix="let one program own each cell, or add integers",
                )


def _plain(attribute: Attribute | None) -> Any:
    return attribute.data if isinstance(attribute, ValueAttr) else None


def check_kernel_effects(kernel: SpecOp) -> None:
    """Raises EffectError where a kernel declares more than to draw random numbers and to write its memory.

    Nor does it communicate: a kernel with collectives was split into kernels with exchanges between them.
    """
    first = next((op for op in ops_inside(kernel) if own_effects(op).has("collective")), None)
    if first is not None:
        raise EffectError(
            f"kernel `@{kernel.value('symbol')}` communicates by `{first.name}`, and what runs are the parts of it "
            "between its collectives",
            span=_span_of(first),
            fix="split it: `split_at_collectives` makes the parts, and the host program exchanges between them",
        )
    declared = declared_effects(kernel)
    extra = declared.without(["random", "memory"]) if declared is not None else None
    if extra:
        raise EffectError(
            f"kernel `@{kernel.value('symbol')}` declares {declared!r}, and a kernel cannot have {extra!r}",
            span=kernel.span,
            fix="effects on the outside world, other ranks or a state belong in the host program",
        )


@frozen
class Step:
    """An op with an effect, as the order of a program sees it: how it is told from others, and what it does."""

    key: str
    effects: Effects
    number: int = 0

    def __str__(self) -> str:
        return f"`{self.key.split(' ', 1)[0]}`"


def steps_of(root: Operation) -> list[Step]:
    """The ops with effects that keep an order, in the order of the text; equal ones are numbered."""
    counts: dict[str, int] = {}
    found: list[Step] = []
    for op in ops_inside(root):
        effects = Effects(op.spec.effects).without(["random"]) if isinstance(op, SpecOp) else ALL
        if not effects:
            continue
        key = f"{op.name} {_identity(op)}"
        counts[key] = counts.get(key, 0) + 1
        found.append(Step(key, effects, counts[key]))
    return found


def ops_inside(root: Operation) -> Iterator[Operation]:
    """The ops inside an op, each before those inside it; xDSL's own walk makes a generator for every op."""
    for region in root.regions:
        for block in region.blocks:
            for op in block.ops:
                yield op
                if op.regions:
                    yield from ops_inside(op)


def _identity(op: Operation) -> str:
    """What stays with an op when it moves: its attributes and where it was written."""
    span = _span_of(op)
    return f"{sorted((name, str(value)) for name, value in op.properties.items())} {span}"


def first_swap(before: list[Step], after: list[Step]) -> tuple[Step, Step] | None:
    """Two steps whose order is fixed and was swapped; steps removed, merged or added say nothing of order."""
    positions = {(step.key, step.number): number for number, step in enumerate(before)}
    counts = Counter(step.key for step in before)
    counts.subtract(step.key for step in after)
    kept = [step for step in after if not counts[step.key]]
    for number, later in enumerate(kept):
        for earlier in kept[:number]:
            swapped = positions[later.key, later.number] < positions[earlier.key, earlier.number]
            if swapped and not may_swap(later.effects, earlier.effects):
                return later, earlier
    return None


def first_loss(before: list[Step], after: list[Step]) -> Step | None:
    """A step that meets the outside world and is not there any more."""
    left = {(step.key, step.number) for step in after}
    return next((step for step in before if step.effects.has("io") and (step.key, step.number) not in left), None)


def check_order(name: str, root: Operation, before: list[Step]) -> None:
    """Raises OpError where a pass has moved ops past each other that must keep their order, or lost one."""
    after = steps_of(root)
    swapped = first_swap(before, after)
    if swapped is not None:
        raise OpError(root, f"`{name}` moved {swapped[1]} before {swapped[0]}, and their effects must stay in order")
    lost = first_loss(before, after)
    if lost is not None:
        raise OpError(root, f"`{name}` lost {lost}, which the outside world is waiting for")
