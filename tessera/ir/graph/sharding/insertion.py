"""Inserting collectives along one mesh axis: the state each op takes and gives, and the cheapest conversions.

Along an axis a value is whole on every rank (`R`), cut along a dim (`S0`, `S1`, ...), or terms of a reduction (`Psum`,
`Pmax`, ...). A strategy of an op is a state for each operand and result under which ranks need nothing of each other:
all whole, one factor cut, or terms through an op that is linear. The search goes through the ops in order and keeps the
cheapest insertion for every set of states that values still to be read are in; what one reader had converted, others
read too. It is exact where the program is short, and keeps the best few in longer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.sharding.factors import FactorRule
from tessera.ir.graph.sharding.propagate import CONSTRAINT, ProgramRules
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

WHOLE, TERMS, ANY = "R", "P", ""
"""States: whole, and terms of a reduction by its name (`Psum`); cut along dim 1 is `S1`. An operand may be `ANY`."""

EXACT_RECORDS, EXACT_WIDTH = 12, 1024
"""Up to so many ops all ways are tried, as far as so many sets of states."""
USUAL_WIDTH, MOST_WORK = 12, 3000
"""Of longer programs the best so many are kept, fewer where there are more ops: some seconds at most."""


@frozen
class Strategy:
    """States under which an op communicates with nobody; `cut` is the factor of which each rank has a part."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    cut: int | None = None


@frozen
class Conversion:
    """A value in another state: by a collective, or by nothing but reading a part (`slice`); `bytes` a rank sends."""

    value: int
    source: str
    target: str
    call: str
    bytes: int


@frozen
class Costs:
    """Nanoseconds of collectives and of computing: a latency, bytes and operations per nanosecond.

    The defaults are the orders of magnitude of ranks of one machine over shared memory.
    """

    latency: float = 20_000.0
    bandwidth: float = 5.0
    memory: float = 10.0
    flops: float = 50.0

    def collective(self, sent: int) -> float:
        return self.latency + sent / self.bandwidth

    def op(self, record: Record, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
        """Nanoseconds of an op on whole operands."""
        spec = REGISTRY[record.op]
        if spec.cost is None:
            return 0.0
        cost = spec.cost(operands, results, record.attributes)
        return (cost.flops.value or 0) / self.flops + (cost.bytes.value or 0) / self.memory


class AxisProgram:
    """A tape as one mesh axis of `ranks` sees it: strategies, conversions and their costs."""

    def __init__(self, tape: Tape, ranks: int, costs: Costs, rules: ProgramRules | None = None) -> None:
        self.tape, self.ranks, self.costs = tape, ranks, costs
        self.rules = (rules or ProgramRules(tape)).rules
        # Asked thousands of times by the search.
        self._bytes = [type.bytes.value or 0 for type in tape.types]
        self._cheapest: dict[tuple[int, frozenset[str], str], tuple[Conversion, ...] | None] = {}

    def strategies(self, at: int) -> list[Strategy]:
        """All strategies of a record; on whole operands first."""
        record, rule = self.tape.records[at], self.rules[at]
        whole = (WHOLE,) * len(record.results)
        if rule is None:
            return [Strategy((WHOLE,) * len(record.operands), whole)]
        made = [Strategy(self._operands(rule, {}), whole)]
        for factor in range(len(rule.sizes)):
            if rule.can_shard(factor, self.ranks):
                taken = {
                    number: f"S{axis}"
                    for number, dims in enumerate(rule.operands)
                    if (axis := rule.axis_of(dims, factor)) is not None
                }
                kind = rule.reductions.get(factor, "")
                places = [rule.axis_of(dims, factor) for dims in rule.results]
                given = tuple(f"{TERMS}{kind}" if axis is None else f"S{axis}" for axis in places)
                made.append(Strategy(self._operands(rule, taken), given, factor))
        for group in rule.linear:
            taken = dict.fromkeys(group, f"{TERMS}sum")
            made.append(Strategy(self._operands(rule, taken), (f"{TERMS}sum",) * len(record.results)))
        return made

    def _operands(self, rule: FactorRule, taken: Mapping[int, str]) -> tuple[str, ...]:
        return tuple(
            ANY if number in rule.ignored else taken.get(number, WHOLE) for number in range(len(rule.operands))
        )

    def bytes_of(self, value: int) -> int:
        return self._bytes[value]

    def states(self, value: int) -> list[str]:
        """The states that a value can be converted to."""
        dims = self.tape.types[value].shape
        return [WHOLE, *(f"S{axis}" for axis, dim in enumerate(dims) if dim.value and dim.value % self.ranks == 0)]

    def convert(self, value: int, source: str, target: str) -> Conversion | None:
        """How a value gets from one state to another in a step; None where nothing does it."""
        if source == target or target[0] == TERMS:
            return None
        whole = self.bytes_of(value)
        part = whole // self.ranks
        others = self.ranks - 1
        match source[0], target[0]:
            case "P", "R":
                return Conversion(value, source, target, "all_reduce", 2 * part * others)
            case "P", "S":
                return Conversion(value, source, target, "reduce_scatter", part * others)
            case "S", "R":
                return Conversion(value, source, target, "all_gather", part * others)
            case "S", "S":
                return Conversion(value, source, target, "all_to_all", part // self.ranks * others)
            case _:
                return Conversion(value, source, target, "slice", 0)

    def cheapest(self, value: int, held: frozenset[str], target: str) -> tuple[Conversion, ...] | None:
        """The cheapest way from the states at hand to another; None where there is none."""
        key = (value, held, target)
        if key not in self._cheapest:
            found = paths_to(self, value, held, target)
            self._cheapest[key] = min(found, key=lambda path: sum(map(self.price, path)), default=None)
        return self._cheapest[key]

    def price(self, conversion: Conversion) -> float:
        if conversion.call == "slice":
            return self.bytes_of(conversion.value) / self.ranks / self.costs.memory
        return self.costs.collective(conversion.bytes)

    def work(self, at: int, strategy: Strategy) -> float:
        """Nanoseconds of a record on one rank."""
        record, types = self.tape.records[at], self.tape.types
        operands, results = ([types[value] for value in own] for own in (record.operands, record.results))
        return self.costs.op(record, operands, results) / (1 if strategy.cut is None else self.ranks)


Held: TypeAlias = "dict[int, frozenset[str]]"


@frozen
class Step:
    """What was decided for one record (or the end, -1), and before it."""

    at: int
    strategy: Strategy | None
    conversions: tuple[Conversion, ...]
    before: Step | None


@frozen
class Found:
    """A way through the first ops: its cost, how many conversions, the states at hand, and its last step."""

    time: float
    count: int
    held: Held
    step: Step | None


@frozen
class AxisPlan:
    """What each record does along an axis, and the conversions in front of it; `ending` are those of the outputs."""

    strategies: tuple[Strategy, ...]
    conversions: tuple[tuple[Conversion, ...], ...]
    ending: tuple[Conversion, ...]
    time: float

    def all_conversions(self) -> tuple[Conversion, ...]:
        return (*(one for own in self.conversions for one in own), *self.ending)


def plan_axis(
    program: AxisProgram, inputs: Mapping[int, str], fixed: Mapping[int, str], expected: Mapping[int, str] | None = None
) -> AxisPlan:
    """The cheapest plan from inputs in some states to one where every `fixed` value is in its state.

    Outputs of the tape are among the fixed, and so are results of constraints, where they are made. `expected` are the
    states that propagation found: in a long program a way counts what is missing to them before it is dropped, so that
    half of a conversion is not taken for all of it.
    """
    tape = program.tape
    is_short = len(tape.records) <= EXACT_RECORDS
    width = EXACT_WIDTH if is_short else max(2, min(USUAL_WIDTH, MOST_WORK // len(tape.records)))
    last, missing = _last_reads(tape), _Missing(program, expected or {})
    best = [Found(0.0, 0, {value: frozenset([state]) for value, state in inputs.items()}, None)]
    for at, record in enumerate(tape.records):
        strategies = _strategies(program, at, fixed)
        reached: dict[tuple[tuple[int, frozenset[str]], ...], Found] = {}
        for strategy in strategies:
            work = program.work(at, strategy)
            wanted = [pair for pair in zip(record.operands, strategy.operands, strict=True) if pair[1] != ANY]
            for found in best:
                for time, held, path in _bring(program, found.held, wanted, all_paths=is_short):
                    kept = {value: own for value, own in held.items() if last[value] > at}
                    for value, state in zip(record.results, strategy.results, strict=True):
                        if last.get(value, -1) > at:
                            kept[value] = frozenset([state])
                    made = Found(
                        found.time + time + work,
                        found.count + len(path),
                        kept,
                        Step(at, strategy, path, found.step),
                    )
                    key = tuple(kept.items())
                    old = reached.get(key)
                    if old is None or (made.time, made.count) < (old.time, old.count):
                        reached[key] = made
        best = list(reached.values())
        if not best:  # whole operands always do, so it is a constraint
            raise refuse_terms(program, record.operands[0])
        if len(best) > width:
            best = sorted(best, key=lambda one: (one.time + missing.price(one.held), one.count))[:width]
    return _finish(program, best, fixed, is_short)


def _strategies(program: AxisProgram, at: int, fixed: Mapping[int, str]) -> list[Strategy]:
    """Those of a record; a constraint has the one that it states."""
    record = program.tape.records[at]
    if record.op != CONSTRAINT:
        return program.strategies(at)
    target = fixed[record.results[0]]
    return [Strategy((target,), (target,), None)]


class _Missing:
    """What it costs to bring all values that are held to the states that are expected of them."""

    def __init__(self, program: AxisProgram, expected: Mapping[int, str]) -> None:
        self.program, self.expected = program, expected
        self._known: dict[tuple[int, frozenset[str]], float] = {}

    def price(self, held: Held) -> float:
        return sum(self._price(value, own) for value, own in held.items())

    def _price(self, value: int, own: frozenset[str]) -> float:
        if (value, own) not in self._known:
            target, price = self.expected.get(value, ""), 0.0
            if target and target not in own:
                path = self.program.cheapest(value, own, target)
                price = sum(map(self.program.price, path or ()))
            self._known[value, own] = price
        return self._known[value, own]


def _finish(program: AxisProgram, best: Sequence[Found], fixed: Mapping[int, str], is_short: bool) -> AxisPlan:
    tape = program.tape
    wanted = [(value, fixed[value]) for value in dict.fromkeys(tape.outputs)]
    ends = [
        Found(found.time + time, found.count + len(path), held, Step(-1, None, path, found.step))
        for found in best
        for time, held, path in _bring(program, found.held, wanted, all_paths=is_short)
    ]
    if not ends:
        terms = [value for value, state in wanted if state[0] == TERMS]
        raise refuse_terms(program, terms[0])
    end = min(ends, key=lambda one: (one.time, one.count))
    steps: list[Step] = []
    step = end.step
    while step is not None:
        steps.append(step)
        step = step.before
    ending, *others = steps
    others.reverse()
    strategies = tuple(one.strategy for one in others if one.strategy is not None)
    return AxisPlan(strategies, tuple(one.conversions for one in others), ending.conversions, end.time)


def refuse_terms(program: AxisProgram, value: int) -> ShardingError:
    """The error for a value that is to be terms of a sum, and is none."""
    return ShardingError(
        f"results of `{ProgramRules(program.tape).names[value]}` cannot be terms of a sum over {program.ranks} ranks: "
        "no op gives them so",
        fix="let each rank have the whole result, or a part of it",
    )


def _last_reads(tape: Tape) -> dict[int, int]:
    """The number of the last record that reads a value; that behind all for outputs."""
    found = dict.fromkeys(tape.inputs, -1)
    for at, record in enumerate(tape.records):
        found.update(dict.fromkeys(record.operands, at))
    found.update(dict.fromkeys(tape.outputs, len(tape.records)))
    return found


def _bring(
    program: AxisProgram, held: Held, wanted: Sequence[tuple[int, str]], *, all_paths: bool
) -> Iterator[tuple[float, Held, tuple[Conversion, ...]]]:
    """Ways to have values in the states that are wanted, each in at most two steps: all of them, or the cheapest."""
    if all(state in held[value] for value, state in wanted):
        yield 0.0, held, ()
        return
    (value, target), others = wanted[0], wanted[1:]
    cheapest = None if all_paths else program.cheapest(value, held[value], target)
    paths = paths_to(program, value, held[value], target) if all_paths else [] if cheapest is None else [cheapest]
    for path in paths:
        price = sum(map(program.price, path))
        more = {**held, value: held[value] | {step.target for step in path}} if path else held
        for time, reached, rest in _bring(program, more, others, all_paths=all_paths):
            yield price + time, reached, (*path, *rest)


def paths_to(program: AxisProgram, value: int, held: frozenset[str], target: str) -> list[tuple[Conversion, ...]]:
    """All ways from the states at hand to another, in a step or in two."""
    if target in held:
        return [()]
    found: list[tuple[Conversion, ...]] = []
    for source in sorted(held):
        direct = program.convert(value, source, target)
        found += [] if direct is None else [(direct,)]
        for middle in program.states(value):
            first, second = program.convert(value, source, middle), program.convert(value, middle, target)
            if first is not None and second is not None and middle not in held:
                found.append((first, second))
    return found
