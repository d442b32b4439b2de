"""Inserting collectives: which sharding each value of a program has, and the cheapest conversions between them.

Along one mesh axis a value is replicated (`R`), sharded along a dim (`S0`, `S1`, ...), or partial (`P`): ranks hold
terms of a sum. An op runs without communication under some of these (a matmul sharded along K gives a partial result);
where a value is not in the state that its reader takes, a collective converts it: `P` to `R` is an all_reduce, `P` to
`S` a reduce_scatter, `S` to `R` an all_gather, `S` to another `S` an all_to_all; `R` to `S` is a slice, and free. What
one reader had converted, others read too. An op whose operands are all replicated is computed by every rank in full,
and that counts as well. The search goes through the ops in order and keeps, for every set of states that values still
to be read may be in, the cheapest insertion: it is exact, and short where few values are alive together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

REPLICATED, PARTIAL = "R", "P"

Cost: TypeAlias = Callable[[str, int], float]
"""Nanoseconds of a collective by its name and bytes."""


@frozen
class Op:
    """An op by the labels of its dims: `Op("y", ("x", "w"), ("mk", "kn"), "mn")` is a matmul.

    Labels that its result lacks are summed. One that `is_linear` maps sums of its first operand to sums: it takes
    terms and gives terms.
    """

    name: str
    operands: tuple[str, ...]
    labels: tuple[str, ...]
    result: str
    is_linear: bool = False


@frozen
class Conversion:
    """A value in another state: by a collective of its bytes, or by nothing (`slice`)."""

    value: str
    source: str
    target: str
    call: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.value}: {self.source} -> {self.target} by {self.call} of {self.bytes} bytes"


@frozen
class Insertion:
    """The cheapest insertion: conversions in order, the state of each result, and nanoseconds in all."""

    conversions: tuple[Conversion, ...]
    states: Mapping[str, str]
    time: float

    @property
    def collectives(self) -> tuple[Conversion, ...]:
        return tuple(one for one in self.conversions if one.call != "slice")

    def render(self) -> str:
        """A line for each conversion."""
        return "\n".join([f"{len(self.collectives)} collectives, {self.time:.0f} ns", *map(str, self.conversions)])


@frozen
class Program:
    """Ops in order, the size of each label, ranks of the axis, and what a collective costs.

    `bytes` are those of an element, and `compute` the nanoseconds of an op for each combination of its labels.
    """

    ops: tuple[Op, ...]
    inputs: Mapping[str, str]
    """The labels of each input."""
    sizes: Mapping[str, int]
    ranks: int
    cost: Cost
    bytes: int = 4
    compute: float = 0.0

    def labels(self, value: str) -> str:
        return next((op.result for op in self.ops if op.name == value), self.inputs.get(value, ""))

    def bytes_of(self, value: str) -> int:
        return self.bytes * prod(self.sizes[label] for label in self.labels(value))

    def states(self, value: str) -> list[str]:
        """The states that a value may be in: sharded along a dim only where ranks divide it."""
        dims = [f"S{at}" for at, label in enumerate(self.labels(value)) if self.sizes[label] % self.ranks == 0]
        return [REPLICATED, PARTIAL, *dims]

    def convert(self, value: str, source: str, target: str) -> Conversion | None:
        """How a value gets from one state to another in a step; None where nothing does it."""
        calls = {(PARTIAL, REPLICATED): "all_reduce", (PARTIAL, "S"): "reduce_scatter", ("S", REPLICATED): "all_gather"}
        calls |= {("S", "S"): "all_to_all", (REPLICATED, "S"): "slice"}
        call = calls.get((source[0], target[0]))
        if call is None or source == target:
            return None
        size = self.bytes_of(value)
        # An exchange counts what a rank has, other collectives the whole tensor.
        return Conversion(value, source, target, call, size // self.ranks if call == "all_to_all" else size)

    def price(self, conversion: Conversion) -> float:
        return 0.0 if conversion.call == "slice" else self.cost(conversion.call, conversion.bytes)

    def work(self, op: Op, operands: Sequence[str]) -> float:
        """Nanoseconds of an op on one rank, of which each has a part where an operand is sharded."""
        size = prod(self.sizes[label] for label in dict.fromkeys("".join(op.labels)))
        return size * self.compute / (self.ranks if any(state[0] == "S" for state in operands) else 1)

    def strategies(self, op: Op) -> Iterator[tuple[tuple[str, ...], str]]:
        """States of the operands under which an op communicates with nobody, and that of its result."""
        yield (REPLICATED,) * len(op.operands), REPLICATED
        for label in dict.fromkeys("".join(op.labels)):
            if self.sizes[label] % self.ranks == 0:
                taken = tuple(f"S{own.index(label)}" if label in own else REPLICATED for own in op.labels)
                yield taken, f"S{op.result.index(label)}" if label in op.result else PARTIAL
        if op.is_linear:
            yield (PARTIAL, *(REPLICATED,) * (len(op.operands) - 1)), PARTIAL


State: TypeAlias = tuple[tuple[str, frozenset[str]], ...]
"""The states in which each value that is still read is at hand."""
Found: TypeAlias = tuple[float, tuple[Conversion, ...], tuple[tuple[str, str], ...]]


def insert_collectives(program: Program, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Insertion:
    """The cheapest conversions with which a program runs from inputs in some states to outputs in others.

    Raises ScheduleError (T0401) where a name, a label or a state is none.
    """
    _check(program, inputs, outputs)
    best: dict[State, Found] = {tuple((name, frozenset([state])) for name, state in inputs.items()): (0.0, (), ())}
    for at, op in enumerate(program.ops):
        alive = {name for later in program.ops[at + 1 :] for name in later.operands} | set(outputs)
        following: dict[State, Found] = {}
        for state, found in best.items():
            for operands, result in program.strategies(op):
                for reached, done in _bring(program, dict(state), found, list(zip(op.operands, operands, strict=True))):
                    kept = {**reached, op.name: frozenset([result])}
                    key = tuple((name, held) for name, held in kept.items() if name in alive)
                    time = done[0] + program.work(op, operands)
                    made = (time, done[1], (*done[2], (op.name, result)))
                    if key not in following or _is_better(made, following[key]):
                        following[key] = made
        best = following
    ends = [
        done for state, found in best.items() for _, done in _bring(program, dict(state), found, list(outputs.items()))
    ]
    time, conversions, states = min(ends, key=lambda done: (done[0], len(done[1])))
    return Insertion(conversions, dict(states), time)


def _is_better(first: Found, second: Found) -> bool:
    return (first[0], len(first[1])) < (second[0], len(second[1]))


def _bring(
    program: Program, held: dict[str, frozenset[str]], found: Found, wanted: Sequence[tuple[str, str]]
) -> Iterator[tuple[dict[str, frozenset[str]], Found]]:
    """Every way to have values in the states that are wanted, in a step from what is at hand or in two."""
    if not wanted:
        yield held, found
        return
    (name, target), *others = wanted
    for path in _paths(program, name, held[name], target):
        time = found[0] + sum(program.price(step) for step in path)
        more = {**held, name: held[name] | {step.target for step in path}}
        yield from _bring(program, more, (time, (*found[1], *path), found[2]), others)


def _paths(program: Program, name: str, held: frozenset[str], target: str) -> Iterator[tuple[Conversion, ...]]:
    if target in held:
        yield ()
        return
    for source in sorted(held):
        direct = program.convert(name, source, target)
        if direct is not None:
            yield (direct,)
        for middle in program.states(name):
            first, second = program.convert(name, source, middle), program.convert(name, middle, target)
            if first is not None and second is not None and middle not in held:
                yield (first, second)


def _check(program: Program, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    known = set(program.inputs)
    for op in program.ops:
        missing = [name for name in op.operands if name not in known]
        if missing or len(op.operands) != len(op.labels):
            what = f"reads `{missing[0]}`, which is not there" if missing else "has labels for other operands"
            raise ScheduleError(f"`{op.name}` {what}", span=None, fix="list ops behind those that they read")
        for name, labels in zip(op.operands, op.labels, strict=True):
            if [program.sizes.get(a) for a in labels] != [program.sizes.get(b) for b in program.labels(name)]:
                raise ScheduleError(
                    f"`{op.name}` reads `{name}` as `{labels}`, and its dims are `{program.labels(name)}`",
                    span=None,
                    fix="give each dim a label of its size",
                )
        known.add(op.name)
    for name, state in (*inputs.items(), *outputs.items()):
        allowed = program.states(name)
        if name not in known or state not in allowed:
            raise ScheduleError(
                f"`{name}` cannot be in state `{state}`: over {program.ranks} ranks it is one of {', '.join(allowed)}",
                span=None,
                fix="shard a dim that the ranks divide",
            )
