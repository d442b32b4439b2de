"""Reverse mode: the linear part of a program apart from the rest, and run backwards.

Each linear record is visited once, last first, when all cotangents of its results are known; its `transpose` rule gives
those of its linear operands. Cotangents that come together in a value are added in the order in which they come, which
is fixed by the program: gradients are the same on every run.

A program becomes two, one that computes and one that is linear in the tangents. What the second needs of the first it
gets in one of three ways: an input is read again, some values are residuals (further outputs of the first), and all
else is rematerialized from those. Which are residuals, `partition` is told by `choose`: the minimum cut for bodies
(`kept_values.py`), and for a whole program all, of which the graph stage then decides (`passes/rematerialize.py`).
Backwards, a value is rematerialized where it is first needed, and not before the cotangent that it is needed with: the
program would keep it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.derivatives.shared import Linear, transpose_rule
from tessera.ir.graph.kept_values import Value, choose_kept, estimate
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.linearize import LinearizedTape, Tangent
from tessera.ir.graph.transforms.tape_builder import (
    DerivativeBuilder,
    TapeBuilder,
    add_inputs,
    has_effects,
    remove_dead,
    silence,
    take_apart,
)
from tessera.ir.tile.facets import Gather, Pointwise, View
from tessera.types.frozen import frozen

CHECKPOINT = "tgraph.checkpoint"


def vjp_tape(linearized: LinearizedTape, seeds: Sequence[Tangent] | None = None) -> Tape:
    """The program from inputs and cotangents of outputs to outputs and cotangents of the inputs differentiated by.

    Cotangents are inputs, one for each float output, unless `seeds` are values of the tape.
    """
    joint = linearized.tape
    outputs, given = list(joint.outputs), seeds
    wanted = [at for at, tangent in enumerate(linearized.tangents_out) if tangent is not None]
    if given is not None:
        wanted = [at for at in wanted if given[at] is not None]
        # As outputs they stay in the part that computes.
        joint.outputs += [one for one in given if one is not None]
    part = partition(linearized, wanted)
    tape = part.primal
    held, tape.outputs = [tape.outputs[at] for at in part.held], outputs
    if given is None:
        floats = [output for output in outputs if tape.types[output].dtype.is_float]
        made = iter(add_inputs(tape, [tape.types[v] for v in floats], [f"cotangent_{at}" for at in range(len(floats))]))
        given = [next(made) if tape.types[output].dtype.is_float else None for output in outputs]
    cotangents = [one for at in part.changes if (one := given[at]) is not None]
    is_linear = [at >= len(part.reads) + len(held) for at in range(len(part.linear.inputs))]
    operands = [*(part.primal.inputs[at] for at in part.reads), *held, *cotangents]
    tape.outputs = [*outputs, *TapeBuilder(tape).inline(transpose_tape(part.linear, is_linear), operands)]
    remove_dead(tape)
    return tape


@frozen
class Partition:
    """A program that computes and one that is linear.

    `primal` gives the outputs of the program and then residuals; `linear` takes the inputs `reads`, the residuals and
    the tangents, and gives the tangents of the outputs `changes`. The residuals are the outputs `held` of `primal`.
    """

    primal: Tape
    linear: Tape
    reads: tuple[int, ...]
    held: tuple[int, ...]
    changes: tuple[int, ...]


Choose = Callable[[LinearizedTape, Sequence[int]], Collection[int]]
"""Which values of a tape to keep, of those behind the values that its linear records need."""


def keep_needed(linearized: LinearizedTape, needed: Sequence[int]) -> Collection[int]:
    """All that is needed as it is: nothing is rematerialized."""
    return needed


@frozen
class KeepCheapest:
    """What moves the fewest bytes to keep, where pointwise ops, views and gathers of it may be rematerialized.

    Inputs cost `input_prices` for each byte, outputs of the numbers `written` are in memory anyway and are read once,
    and all else is written for the linear part and read there. Where a body runs often, each byte is one of each trip.
    """

    input_prices: Sequence[int]
    written: Collection[int]

    def __call__(self, linearized: LinearizedTape, needed: Sequence[int]) -> Collection[int]:
        tape, linear = linearized.tape, linearized.linear
        written = {tape.outputs[at] for at in self.written}
        # Inputs for tangents have no price, and are not read by what is not linear.
        prices = dict(zip(tape.inputs, self.input_prices, strict=False))
        values = {value: Value(price * estimate(tape.types[value].bytes)) for value, price in prices.items()}
        for record in tape.records:
            if not linear.isdisjoint(record.results):
                continue
            can_recompute = is_light(tape, record)
            for value in record.results:
                price = (1 if value in written else 2) * estimate(tape.types[value].bytes)
                values[value] = Value(price, record.operands, can_recompute)
        return choose_kept(values, needed)


def is_light(tape: Tape, record: Record) -> bool:
    """Whether a record is made of pointwise ops, views and gathers alone, which take part in kernels of others."""
    spec = REGISTRY[record.op]
    if has_effects(record) or record.bodies:
        return False
    if spec.lower is None and spec.decompose is not None:
        parts = take_apart(tape, record)
        return all(is_light(parts, one) for one in parts.records)
    return isinstance(spec.lower, Pointwise | View | Gather)


GATHER = "tgraph.all_gather"


def partition(
    linearized: LinearizedTape,
    wanted: Sequence[int],
    kept: Sequence[int] = (),
    always: Sequence[int] = (),
    choose: Choose = keep_needed,
    shared: Sequence[int] = (),
) -> Partition:
    """The two programs; the linear one gives tangents of the outputs `wanted` that change, and of all `always`.

    Inputs with the numbers `kept` are residuals where they are read: a loop changes them from iteration to iteration.
    A residual that is one of the outputs `shared` is not given again.
    """
    joint, linear_values = linearized.tape, linearized.linear
    changes = tuple(at for at in wanted if linearized.tangents_out[at] is not None or at in always)
    builder = TapeBuilder(Tape(guards=list(joint.guards)))
    tape = builder.tape
    primal_inputs = [value for value in joint.inputs if value not in linearized.tangents_in]
    numbers = {value: at for at, value in enumerate(primal_inputs)}
    linear_records = [record for record in joint.records if not linear_values.isdisjoint(record.results)]
    needed = _live(linear_records, [linearized.tangents_out[at] for at in changes])
    used = dict.fromkeys(v for record in needed for v in record.operands if v not in linear_values)
    again, held = _split_values(linearized, list(used), choose)
    reads = [value for value in held if value in numbers and numbers[value] not in kept]
    residuals = [value for value in held if value not in reads]
    values: dict[int, int] = {}
    for group, label in ((reads, "input"), (residuals, "residual"), (linearized.tangents_in, "tangent")):
        made = add_inputs(tape, [joint.types[v] for v in group], [f"{label}_{at}" for at in range(len(group))])
        values.update(zip(group, made, strict=True))
    chosen, loops = {id(record) for record in (*needed, *again)}, frozenset(linearized.replaced.values())
    for record in joint.records:
        if id(record) in chosen:
            record = record if loops.isdisjoint(record.results) else silence(record)
            made = builder.copy(record, [values[v] for v in record.operands], [joint.types[v] for v in record.results])
            for result, one in zip(record.results, made, strict=True):
                values.setdefault(result, one)
    for at in changes:
        tangent = linearized.tangents_out[at]
        tape.outputs.append(builder.zeros(joint.types[joint.outputs[at]]) if tangent is None else values[tangent])
    places = {joint.outputs[at]: at for at in shared}
    more = [value for value in residuals if value not in places]
    places |= {value: len(joint.outputs) + at for at, value in enumerate(more)}
    primal = Tape(
        inputs=primal_inputs,
        names=[name for value, name in zip(joint.inputs, joint.names, strict=True) if value in numbers],
        records=[record for record in joint.records if linear_values.isdisjoint(record.results)],
        outputs=[*joint.outputs, *more],
        types=joint.types,
        guards=joint.guards,
        promises=joint.promises,
        functions=joint.functions,
    )
    remove_dead(primal)
    return Partition(primal, tape, tuple(numbers[v] for v in reads), tuple(places[v] for v in residuals), changes)


def _split_values(linearized: LinearizedTape, used: Sequence[int], choose: Choose) -> tuple[list[Record], list[int]]:
    """The records that the linear part runs again, and the values that it takes, in the order of their use.

    A value that depends on nothing (a number, an `iota`) is always made again, what has an effect never; but for a
    gather of parts, which is larger than what it is made of by the number of ranks.
    """
    joint = linearized.tape
    primal = [record for record in joint.records if linearized.linear.isdisjoint(record.results)]
    sources = {id(r) for r in primal if not r.operands and len(r.results) == 1 and not r.bodies}
    made = {v for record in primal for v in record.results if id(record) in sources}
    kept = set(choose(linearized, [value for value in used if value not in made])) - made
    needed, again = set(used), list[Record]()
    for record in reversed(primal):
        if any(v in needed and v not in kept for v in record.results) and not (
            has_effects(record) and record.op != GATHER
        ):
            needed.update(record.operands)
            again.append(record)
    again.reverse()
    made = {v for record in again for v in record.results} - kept
    order = dict.fromkeys((*used, *(v for record in again for v in record.operands)))
    return again, [value for value in order if value not in made]


def _live(records: Sequence[Record], outputs: Sequence[int | None]) -> list[Record]:
    """The records that some outputs depend on."""
    needed = {value for value in outputs if value is not None}
    kept: list[Record] = []
    for record in reversed(records):
        if not needed.isdisjoint(record.results):
            needed.update(record.operands)
            kept.append(record)
    return kept[::-1]


def transpose_tape(tape: Tape, is_linear: Sequence[bool]) -> Tape:
    """A tape that is linear in some inputs, backwards: from the others and cotangents of all outputs, to cotangents."""
    tape, builder = inline_parts(tape, is_linear), DerivativeBuilder(Tape(guards=list(tape.guards)))
    plain = [value for value, one in zip(tape.inputs, is_linear, strict=True) if not one]
    given = [value for value, one in zip(tape.inputs, is_linear, strict=True) if one]
    inputs = add_inputs(builder.tape, [tape.types[v] for v in plain], [f"input_{at}" for at in range(len(plain))])
    types = [tape.types[value] for value in tape.outputs]
    seeds = add_inputs(builder.tape, types, [f"cotangent_{at}" for at in range(len(types))])
    linear = set(given)
    records: list[Record] = []
    for record in tape.records:
        if not linear.isdisjoint(record.operands):
            linear.update(record.results)
            records.append(record)
    found: dict[int, int] = {}
    for output, seed in zip(tape.outputs, seeds, strict=True):
        if output in linear:
            found[output] = seed if output not in found else builder.add_cotangents(found[output], seed)
    again = _Rematerializer(tape, builder, dict(zip(plain, inputs, strict=True)))
    origins: dict[int, tuple[int, ...]] = {seed: (seed,) for seed in (*seeds, *found.values())}
    for record in reversed(records):
        if found.keys().isdisjoint(record.results):
            continue
        cotangents = [found.get(result) for result in record.results]
        spec = REGISTRY[record.op]
        rule = transpose_rule(spec)
        assert rule is not None, f"`LinearBuilder` let `{spec.name}` pass, which has no `transpose`"
        given_now = [one for one in cotangents if one is not None]
        after = tuple(dict.fromkeys(origin for one in given_now for origin in origins[one]))
        source = record if record.span is None else replace(record, span=record.span.as_backward())
        builder.follow(source)
        operands = [Linear(tape.types[v]) if v in linear else again.residual(v, after) for v in record.operands]
        builder.follow(source)  # again: what was rematerialized has other lines
        # Where several were added, they were in their accumulator until here.
        cotangents = [
            None if one is None else builder.convert(one, builder.cotangent_type(tape.types[result]))
            for one, result in zip(cotangents, record.results, strict=True)
        ]
        if not isinstance(spec.lower, Pointwise | View):
            after = tuple(given_now)
        for value, made in zip(record.operands, rule(builder, cotangents, operands, record.attributes), strict=True):
            if made is not None and value in linear:
                found[value] = made if value not in found else builder.add_cotangents(found[value], made)
                origins[found[value]] = after
    builder.tape.outputs = [
        builder.convert(found[v], tape.types[v]) if v in found else builder.zeros(tape.types[v]) for v in given
    ]
    remove_dead(builder.tape)
    return builder.tape


def inline_parts(tape: Tape, is_linear: Sequence[bool]) -> Tape:
    """The tape with the bodies of checkpoints in place of those, so that cotangents are added as without them.

    So are the parts of a composite op of tangents that has no `transpose`, which a body of a user's rule may have.
    """
    if not any(record.op == CHECKPOINT or _is_composite(record) for record in tape.records):
        return tape
    made = Tape(inputs=list(tape.inputs), names=list(tape.names), types=list(tape.types), guards=list(tape.guards))
    builder = TapeBuilder(made)
    linear = {value for value, one in zip(tape.inputs, is_linear, strict=True) if one}

    def inline(parts: Tape, operands: Sequence[int]) -> list[int]:
        builder.assume(parts)
        values = dict(zip(parts.inputs, operands, strict=True))
        for record in parts.records:
            given = [values[value] for value in record.operands]
            is_of_tangents = not linear.isdisjoint(given)
            if record.op == CHECKPOINT:
                results: Sequence[int] = inline(record.attributes["body"], given)
            elif is_of_tangents and _is_composite(record):
                results = inline(take_apart(parts, record), given)
            else:
                results = builder.copy(record, given, [parts.types[value] for value in record.results])
                linear.update(results if is_of_tangents else ())
            values.update(zip(record.results, results, strict=True))
        return [values[output] for output in parts.outputs]

    made.outputs = inline(tape, tape.inputs)
    return made


def _is_composite(record: Record) -> bool:
    """Whether an op is transposed as what it is made of."""
    spec = REGISTRY[record.op]
    return spec.transpose is None and spec.decompose is not None


@dataclass
class _Rematerializer:
    """Values of a tape that do not depend on tangents, computed on another one where they are first asked for."""

    tape: Tape
    builder: TapeBuilder
    values: dict[int, int]

    def __post_init__(self) -> None:
        self._makers = {v: at for at, record in enumerate(self.tape.records) for v in record.results}
        self._inputs = frozenset(self.values)
        self._residuals: dict[tuple[int, tuple[int, ...]], int] = {}

    def residual(self, value: int, after: tuple[int, ...]) -> int:
        """A value as the backward part reads it once the values `after` are there."""
        if value not in self._inputs:
            return self.value(value, after)
        found = self._residuals.get((value, after))
        if found is None:
            found = self.builder.emit("saved_value", self.values[value], *after)
            self._residuals[value, after] = found
        return found

    def value(self, value: int, after: tuple[int, ...]) -> int:
        """A value, computed once the values `after` are there where it is not yet."""
        pending, numbers = [value], set[int]()
        while pending:
            one = pending.pop()
            if one not in self.values and self._makers[one] not in numbers:
                numbers.add(self._makers[one])
                pending += self.tape.records[self._makers[one]].operands
        late: dict[int, int] = {}
        for record in (self.tape.records[number] for number in sorted(numbers)):
            self.builder.follow(record)
            for operand in record.operands:
                if operand in self._inputs and operand not in late:
                    late[operand] = self.builder.emit("optimization_barrier", self.values[operand], *after)
            operands = [late.get(v, self.values[v]) for v in record.operands]
            again = record if record.span is None else replace(record, span=record.span.with_role("rematerialized"))
            made = self.builder.copy(again, operands, [self.tape.types[v] for v in record.results])
            self.values.update(zip(record.results, made, strict=True))
        return self.values[value]
