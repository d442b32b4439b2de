"""What is proved of a tape without xDSL: its effects, and the ranges of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import EffectOrderError, RangeError
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, range_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.base.types import TensorAttr
from tessera.ir.graph.ops import REGISTRY, interval_of
from tessera.types.effect import PURE, Effects

# Which values are equal on all ranks of a mesh axis, and whether all ranks reach collectives in one order.

Axes: TypeAlias = "frozenset[str]"
"""Mesh axes along which a value is uniform, or along which all ranks execute an op."""

_UNIFORM_RESULTS = ("tgraph.all_reduce", "tgraph.all_gather", "tgraph.replicated")
"""Ops whose results are equal on all ranks of their axis."""


def check_collective_order(function: SpecOp) -> None:
    """Raises EffectOrderError (T0302) for a collective that some ranks of its axis could skip, or reach out of order.

    Arguments may differ from rank to rank; constants do not, and neither does what was reduced or gathered along an
    axis, or is promised to be `replicated`.
    """
    _UniformityWalk(function).run()


class _UniformityWalk:
    """For each value, the axes along which it is uniform."""

    def __init__(self, function: SpecOp) -> None:
        self.function = function
        self.every: Axes = frozenset(axis for op in function.walk() if (axis := _axis(op)))
        self.uniform: dict[SSAValue, Axes] = {}

    def run(self) -> None:
        block = self.function.regions[0].block
        unknown: Axes = frozenset()
        self._block(block, [unknown] * len(block.args), self.every, None)

    def _block(self, block: Block, arguments: Sequence[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        """The uniformity of what a block yields; ranks of `together` execute it, and `around` is why others do not."""
        self.uniform.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            assert isinstance(op, SpecOp)
            operands = [self.uniform[value] for value in op.operands]
            if op.spec.is_terminator:
                return operands
            if op.regions:
                results = self._flow(op, operands, together, around)
            else:
                _check(op, together, around)
                results = [self._result(op, operands)] * len(op.results)
            self.uniform.update(zip(op.results, results, strict=True))
        return []

    def _result(self, op: SpecOp, operands: Sequence[Axes]) -> Axes:
        found = self.every.intersection(*operands)
        axis = _axis(op)
        if "io" in op.spec.effects:
            return frozenset()
        if axis and op.name in _UNIFORM_RESULTS:
            return found | {axis}
        return found - {axis} if axis else found

    def _flow(self, op: SpecOp, operands: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        if op.spec.region_names == ("then", "otherwise"):
            return self._branch(op, operands, together, around)
        if op.name == "tgraph.fori":
            index = operands[0] & operands[1]
            return self._loop(op, operands[2:], (index,), index, together, around)
        if "carried" not in op.kinds:
            # A checkpointed or custom function: its body, the first region, runs once; rules run in its place.
            return self._block(op.regions[0].block, operands, together, around)
        return self._loop(op, operands, (), self.every, together, around)

    def _branch(self, op: SpecOp, operands: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        decided, operands = operands[0], operands[1:]
        alike = len({_signature(region.block) for region in op.regions}) == 1
        inside, why = (together, around) if alike else (together & decided, op if together - decided else around)
        branches = [self._block(region.block, operands, inside, why) for region in op.regions]
        return [left & right & decided for left, right in zip(*branches, strict=True)]

    def _loop(
        self,
        op: SpecOp,
        operands: Sequence[Axes],
        index: tuple[Axes, ...],
        repeated: Axes,
        together: Axes,
        around: SpecOp | None,
    ) -> list[Axes]:
        """A loop, to a fixed point: what it carries is uniform where it starts and stays so, and `repeated` is too."""
        count, others = op.value("carried"), list(operands[op.value("carried") :])
        carried = list(operands[:count])
        while True:
            # Errors are raised after the fixed point alone: later iterations may see less uniform values.
            yielded, decided = self._iteration(op, [*index, *carried, *others], repeated, self.every, None)
            merged = [own & new & decided for own, new in zip(carried, yielded, strict=False)]
            if merged == carried:
                break
            carried = merged
        inside, why = together & decided, op if together - decided else around
        yielded, _ = self._iteration(op, [*index, *carried, *others], repeated, inside, why)
        return [*carried, *(own & decided for own in yielded[count:])]

    def _iteration(
        self, op: SpecOp, arguments: list[Axes], repeated: Axes, together: Axes, around: SpecOp | None
    ) -> tuple[list[Axes], Axes]:
        *tests, body = (region.block for region in op.regions)
        for test in tests:
            repeated = repeated & self._block(test, arguments, together, around)[0]
        return self._block(body, arguments, together, around), repeated


def _axis(op: Any) -> str:
    """The mesh axis that an op communicates over, if it has more than one rank."""
    if not isinstance(op, SpecOp) or not {"axis", "size"} <= op.kinds.keys():
        return ""
    sizes = op.value("size")
    return "" if sizes and sizes[0].value == 1 else str(op.value("axis"))


def _check(op: SpecOp, together: Axes, around: SpecOp | None) -> None:
    axis = _axis(op)
    if "collective" not in op.spec.effects or not axis or axis in together:
        return
    assert around is not None, "all ranks execute what no control flow is around"
    flow = around.spec.short_name
    raise EffectOrderError(
        f"ranks of `{axis}` could reach `{op.spec.short_name}` in different orders: "
        f"the condition of the `{flow}` around it may differ between them",
        span=op.span,
        notes=(f"the `{flow}` is at {around.span}",) if around.span is not None else (),
        fix=f"branch on a value that all ranks share: reduce it with `dist.all_reduce(value, {axis!r}, 'max')`, "
        f"or promise it with `dist.replicated(value, {axis!r})`",
    )


def _signature(block: Block) -> tuple[Any, ...]:
    """The collectives of a block in order, with all that ranks must agree on; loops and branches as nested lists."""
    found: list[Any] = []
    for op in block.ops:
        if not isinstance(op, SpecOp):
            continue
        if _axis(op) and "collective" in op.spec.effects:
            types = tuple(value.type.data for value in op.operands if isinstance(value.type, TensorAttr))
            found.append((op.name, tuple(sorted((name, str(value)) for name, value in op.values().items())), types))
        inner = [_signature(region.block) for region in op.regions]
        if any(inner):
            # How often a loop runs is not known here, so no two of them are equal.
            found.append((op.name, id(op), *inner))
    return tuple(found)


# Effects: a state has the name of the argument that it belongs to.


def tape_effects(tape: Tape) -> Effects:
    """What the records of a tape do, and those of its bodies: `state(cache)` where a state is an argument's.

    A state that the program makes itself has no name.
    """
    return _effects(tape, dict(zip(tape.inputs, map(_owner, tape.names), strict=True)))


def _effects(tape: Tape, owners: Mapping[int, str]) -> Effects:
    found, known = PURE, dict(owners)
    for record in tape.records:
        effects = Effects(REGISTRY[record.op].effects_for(record.attributes))
        if "state" in effects:
            owner = known.get(record.operands[0], "") if record.operands else ""
            known.update(dict.fromkeys(record.results, owner))
            effects = effects.without(["state"]).join([f"state({owner})" if owner else "state"])
        found = found.join(effects)
        for body in record.bodies:
            found = found.join(_effects(body, _body_owners(record, body, known)))
        _carry_owners(record, known)
    return found


def _body_owners(record: Record, body: Tape, known: Mapping[int, str]) -> dict[int, str]:
    """The owners of what a body takes: its inputs are the last operands of its op, in order."""
    skipped = len(record.operands) - len(body.inputs)
    operands = record.operands[skipped:] if skipped >= 0 else ()
    return {inner: known[outer] for inner, outer in zip(body.inputs, operands, strict=False) if known.get(outer)}


def _carry_owners(record: Record, known: dict[int, str]) -> None:
    """What control flow carries of a state is still that state."""
    count = record.attributes.get("carried")
    if isinstance(count, int):
        skipped = 2 if record.op.endswith(".fori") else 0
        carried = zip(record.results[:count], record.operands[skipped : skipped + count], strict=True)
        known.update({result: known[start] for result, start in carried if known.get(start)})


def _owner(path: str) -> str:
    """The object that a path of a call leads into: `cache.K` belongs to `cache`."""
    owner = path.rpartition(".")[0] or path
    return "" if set(owner) & set("(),{}") else owner


# Ranges: each value is proved to stay in its bounds, refuted, or left unproved.

Bounds = tuple[float, float]


def infer_intervals(tape: Tape, inputs: Mapping[int, Interval]) -> dict[int, Interval]:
    """The interval of every value of a tape; inputs that are not given lie anywhere in their type."""
    known: dict[int, Interval] = {}
    for value in tape.inputs:
        # Nobody says that inputs go to the ends of their type: only what is given counts as reached.
        own = inputs.get(value) or range_of(tape.types[value].dtype).without_reach()
        known[value] = Interval(own.low, own.high, own.may_be_nan, own.is_reached, frozenset((value,)))
    for record in tape.records:
        known.update(zip(record.results, _result_intervals(record, tape, known), strict=True))
    return known


def _result_intervals(record: Record, tape: Tape, known: Mapping[int, Interval]) -> list[Interval]:
    facet = interval_of(REGISTRY[record.op]) or ANYTHING
    types = tuple(tape.types[value] for value in record.operands)
    operands = tuple(known[value] for value in record.operands)
    is_repeated = len(set(record.operands)) == 1
    results = (tape.types[value] for value in record.results)
    return [facet.result(IntervalQuery(operands, types, record.attributes, one, is_repeated)) for one in results]


def find_unproved(tape: Tape, bounded: Bounds | None, inputs: Mapping[str, Bounds]) -> list[int]:
    """The numbers of records whose values intervals do not prove finite and `bounded`.

    Inputs lie where `inputs` says, else in `bounded`. Raises RangeError (T0305) at a value that inputs can bring out.
    """
    known_inputs: dict[int, Interval] = {}
    for value, name in zip(tape.inputs, tape.names, strict=False):
        limits = inputs.get(name, bounded)
        if limits is not None and tape.types[value].dtype.is_float:
            known_inputs[value] = Interval(*limits, is_reached=True)
    known = infer_intervals(tape, known_inputs)
    return [
        number
        for number, record in enumerate(tape.records)
        if not all(_is_proved(tape, record, value, known, bounded) for value in record.results)
    ]


def _is_proved(tape: Tape, record: Record, value: int, known: Mapping[int, Interval], bounded: Bounds | None) -> bool:
    dtype = tape.types[value].dtype
    if not dtype.is_float or _is_literal(tape, record, value):
        return True
    largest, found = range_of(dtype), known[value]
    low, high = bounded or (largest.low, largest.high)
    if found.is_within(max(low, largest.low), min(high, largest.high)):
        return True
    # The ends of an interval are moved outward by roundings: what leaves by no more than those is not refuted.
    slack = 8 * dtype.epsilon
    leaves = found.low < low - abs(low) * slack or found.high > high + abs(high) * slack
    if found.is_reached and leaves:
        raise _refute(tape, record, found, known, bounded)
    return False


def _is_literal(tape: Tape, record: Record, value: int) -> bool:
    """Whether a value is a literal of the program: what is computed from it is bounded, not the number itself."""
    is_number = record.op == "tgraph.full" and not tape.types[value].shape and value not in tape.outputs
    return is_number and abs(float(record.attributes["value"])) <= range_of(tape.types[value].dtype).high


def _refute(
    tape: Tape, record: Record, found: Interval, known: Mapping[int, Interval], bounded: Bounds | None
) -> RangeError:
    name, dtype = record.op.split(".", 1)[1], tape.types[record.results[0]].dtype
    notes = tuple(
        f"its operand {_name_of(tape, value)} lies in {known[value]}" for value in dict.fromkeys(record.operands)
    )
    if bounded is None:
        message = f"`{name}` can give {found}, and the largest {dtype} is {range_of(dtype).high:.6g}"
        fix = "scale its operands, clamp them, or compute in a wider dtype"
    else:
        message = f"`{name}` can give {found}, outside of [{bounded[0]:g}, {bounded[1]:g}]"
        fix = "clamp it, or declare tighter `inputs`"
    return RangeError(message, span=record.span, notes=notes, fix=fix)


def _name_of(tape: Tape, value: int) -> str:
    if value in tape.inputs:
        return f"`{tape.names[tape.inputs.index(value)]}`"
    made = next(record for record in tape.records if value in record.results)
    return f"from `{made.op.split('.', 1)[1]}`" + (f" at line {made.span.line}" if made.span else "")
