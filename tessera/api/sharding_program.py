"""A traced function as a problem of assignment: what every op takes under every sharding, and what conversions take.

Every op may run under each assignment of mesh axes to its factors (`ir/graph/sharding`), and takes what its operations
and bytes take on one rank, at measured rates; where a factor that is summed is sharded, its result is reduced by an
all_reduce, or by a reduce_scatter along a dim. Between ops, values are converted by the collectives of the topology.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as combinations_of
from math import inf, prod

from tessera.diagnostics.codes import ArgumentError
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph import dialect
from tessera.ir.graph.sharding.factors import FactorRule, Factors
from tessera.ir.graph.sharding.partition import lower_composites
from tessera.ir.graph.sharding.rules import factor_rule
from tessera.ir.schedule.costs import flops_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.planning.assignment import Assignment, AssignmentProblem, Node, Strategy, solve
from tessera.ir.schedule.planning.collectives import plan_collective, topology_of_axis
from tessera.types.frozen import frozen
from tessera.types.rates import Rates
from tessera.types.shape import TensorType
from tessera.types.sharding import Sharding
from tessera.types.topology import Topology

assert dialect is not None, "ops of Graph IR are declared where their dialect is imported"


@frozen
class ShardingChoice:
    """How a function is sharded, and what that takes, by the model.

    `naive` are nanoseconds of plans that need no search: `replicated`, every rank computes all; `data parallel`, the
    first dim of the batch is cut over all axes and all other arguments are whole; `fully sharded`, all arguments are
    cut along their first dim, and gathered where they are read. Those of `unfit` take more memory than allowed.
    """

    mesh: Mapping[str, int]
    inputs: Mapping[str, Sharding]
    outputs: tuple[Sharding, ...]
    ops: tuple[tuple[str, str], ...]
    conversions: tuple[str, ...]
    time: float
    naive: Mapping[str, float]
    unfit: tuple[str, ...]
    solver: str

    def render(self) -> str:
        """The choice as text: a line for each input, op that is sharded, and conversion, and the comparison."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.mesh.items())
        lines = [f"on mesh {sizes}: {self.time:.0f} ns by the model ({self.solver})"]
        lines += [f"  {name}: {own}" for name, own in self.inputs.items()]
        lines += [f"  {name} -> {own}" for name, own in self.ops]
        lines += [f"  output {at}: {own}" for at, own in enumerate(self.outputs)]
        lines += [f"  convert {one}" for one in self.conversions]
        for name, time in self.naive.items():
            text = f"{name}: {time:.0f} ns, {time / max(self.time, 1e-9):.2f} times as long"
            lines.append(text + (", and takes more memory than allowed" if name in self.unfit else ""))
        return "\n".join(lines)

    __str__ = render


class ShardingProgram:
    """A tape as a problem of assignment."""

    def __init__(
        self,
        tape: Tape,
        mesh: dict[str, int],
        topology: Topology,
        rates: Rates,
        ties: Mapping[int, str],
        memory: float,
    ) -> None:
        tape = lower_composites(tape)
        self.tape, self.mesh, self.rates, self.memory = tape, mesh, rates, memory
        self.links = {axis: topology_of_axis(topology, mesh, axis) for axis in mesh}
        self.names = dict(zip(tape.inputs, tape.names, strict=True))
        unknown = next((name for name in ties.values() if name not in tape.names), None)
        if unknown is not None or any(not 0 <= at < len(tape.outputs) for at in ties):
            raise ArgumentError(
                f"`outputs` of `auto_shard` names `{unknown}`" if unknown else f"`outputs` has {list(ties)}",
                fix=f"inputs are {', '.join(tape.names)}, and there are {len(tape.outputs)} outputs",
            )
        self.ties = ties
        self._shardings: dict[tuple[TensorType, bool], tuple[Sharding, ...]] = {}

    # Nodes.

    def nodes(self) -> Iterator[Node]:
        """Inputs before their first reader, so that few values are alive together, then ops and outputs."""
        waiting = dict.fromkeys(self.tape.inputs)
        for at, record in enumerate(self.tape.records):
            for value in dict.fromkeys(record.operands):
                if value in waiting:
                    del waiting[value]
                    yield self._input(value)
            operands, results = map(_keys, (record.operands, record.results))
            yield Node(f"{at} {record.op.partition('.')[2]}", operands, results, tuple(self._strategies(record)))
        for value in waiting:
            yield self._input(value)
        for at, value in enumerate(self.tape.outputs):
            tied = self.ties.get(at)
            made = tuple(Strategy((str(one),), (), 0.0) for one in self._all(self.tape.types[value]))
            free = made if tied is not None else (Strategy(("*",), (), 0.0),)
            yield Node(f"output {at}", (str(value),), (), free, tied or "")

    def _input(self, value: int) -> Node:
        type = self.tape.types[value]
        made = tuple(Strategy((), (str(one),), 0.0, self._bytes(type, one)) for one in self._all(type))
        name = self.names[value]
        return Node(name, (), (str(value),), made, name if name in self.ties.values() else "")

    def _all(self, type: TensorType) -> tuple[Sharding, ...]:
        """Every sharding of a tensor on the mesh whose parts are equal."""
        key = type, True
        if key not in self._shardings:
            found: list[Sharding] = []
            for places in combinations_of((None, *range(type.rank)), repeat=len(self.mesh)):
                dims = [
                    tuple(axis for axis, at in zip(self.mesh, places, strict=True) if at == dim)
                    for dim in range(type.rank)
                ]
                if all(self._divides(type, dim, axes) for dim, axes in enumerate(dims)):
                    found.append(Sharding(tuple(dims)))
            self._shardings[key] = tuple(found)
        return self._shardings[key]

    def _divides(self, type: TensorType, dim: int, axes: Sequence[str]) -> bool:
        size, parts = type.shape[dim].value, prod(self.mesh[axis] for axis in axes)
        return parts == 1 or (size is not None and size > 0 and size % parts == 0)

    def _strategies(self, record: Record) -> Iterator[Strategy]:
        operands = [self.tape.types[value] for value in record.operands]
        results = [self.tape.types[value] for value in record.results]
        rule = factor_rule(spec_of(record), operands, results, record.attributes)
        flops = float(flops_of(self.tape, record).value or 0)
        count = 0 if rule is None else len(rule.sizes)
        for chosen in combinations_of((None, *range(count)), repeat=len(self.mesh)):
            axes = {at: tuple(a for a, own in zip(self.mesh, chosen, strict=True) if own == at) for at in range(count)}
            used = {at: own for at, own in axes.items() if own}
            if rule is None:
                reads, gives = (
                    [Sharding.whole(one.rank) for one in operands],
                    [Sharding.whole(one.rank) for one in results],
                )
                yield self._strategy(operands, results, reads, gives, flops, 0.0, rule)
                return
            if not all(rule.can_shard(at, prod(self.mesh[a] for a in own)) for at, own in used.items()):
                continue
            reads, gives = ([_cut(rule, one, used) for one in own] for own in (rule.operands, rule.results))
            summed = {axis: rule.reductions[at] for at, own in used.items() if at in rule.reductions for axis in own}
            parts = prod(self.mesh[axis] for own in used.values() for axis in own)
            for after, time in self._reduce(results, gives, summed):
                yield self._strategy(operands, results, reads, after, flops / parts, time, rule)

    def _strategy(
        self,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
        reads: Sequence[Sharding],
        gives: Sequence[Sharding],
        flops: float,
        collectives: float,
        rule: FactorRule | None,
    ) -> Strategy:
        moved = sum(self._bytes(type, own) for type, own in zip((*operands, *results), (*reads, *gives), strict=True))
        kind = str(results[0].dtype) if results else "f32"
        rate = self.rates.compute(kind)
        rate = self.rates.compute("f32") if rate == inf else rate
        time = max(flops / rate, moved / self.rates.bandwidth(moved or 1.0))
        ignored = rule.ignored if rule is not None else frozenset[int]()
        wanted = tuple("*" if at in ignored else str(own) for at, own in enumerate(reads))
        return Strategy(wanted, tuple(map(str, gives)), time + collectives)

    def _reduce(
        self, results: Sequence[TensorType], gives: Sequence[Sharding], summed: Mapping[str, str]
    ) -> Iterator[tuple[list[Sharding], float]]:
        """The shardings of results behind the reductions over some axes, and what these take: whole, or by parts."""
        if not summed:
            yield list(gives), 0.0
            return
        local = [self._bytes(type, own) for type, own in zip(results, gives, strict=True)]
        yield list(gives), sum(self._collective("all_reduce", axis, sum(local)) for axis in summed)
        if len(results) > 1 or len(summed) > 1 or "sum" not in summed.values():
            return
        (axis,) = summed
        for dim in range(results[0].rank):
            cut = (*gives[0].dims[dim], axis)
            if sorted(cut, key=list(self.mesh).index) == list(cut) and self._divides(results[0], dim, cut):
                made = Sharding(tuple(cut if at == dim else own for at, own in enumerate(gives[0].dims)))
                yield [made], self._collective("reduce_scatter", axis, local[0])

    # Costs.

    def _bytes(self, type: TensorType, sharding: Sharding) -> float:
        parts = prod(self.mesh[axis] for axis in sharding.axes)
        return float(type.bytes.value or 0) / parts

    def _collective(self, call: str, axis: str, bytes: float) -> float:
        return plan_collective(call, round(bytes), self.links[axis]).time if self.mesh[axis] > 1 else 0.0

    def convert(self, value: str, source: str, target: str) -> float:
        """Nanoseconds from one sharding to another: slices first, which are free, then exchanges, gathers last."""
        return sum(time for _, time in self.steps(int(value), Sharding.parse(source), Sharding.parse(target)))

    def steps(self, value: int, source: Sharding, target: Sharding) -> list[tuple[str, float]]:
        """The collectives of a conversion in order, with their times."""
        type, held, found = self.tape.types[value], [list(own) for own in source.dims], list[tuple[str, float]]()
        wanted = [list(own) for own in target.dims]

        def bytes_now() -> float:
            return float(type.bytes.value or 0) / prod(self.mesh[axis] for own in held for axis in own)

        for axis in self.mesh:  # an axis that cuts one dim innermost, and is to cut another
            first = next((at for at, own in enumerate(held) if own[-1:] == [axis]), None)
            second = next((at for at, own in enumerate(wanted) if own[-1:] == [axis]), None)
            if first is not None and second not in (None, first) and held[second] == wanted[second][:-1]:
                found.append(("all_to_all", self._collective("all_to_all", axis, bytes_now())))
                held[first].pop()
                held[second].append(axis)
        for own, goal in zip(held, wanted, strict=True):
            while own != goal[: len(own)]:  # parts of parts come together from the innermost on
                axis = own.pop()
                found.append(("all_gather", self._collective("all_gather", axis, bytes_now())))
        return found

    # The choice.

    def choose(self, solver: str, batch: str) -> ShardingChoice:
        """The plan of least time, beside those that need no search."""
        problem = AssignmentProblem(tuple(self.nodes()), self.convert, self.memory)
        solver = solver or ("milp" if importlib.util.find_spec("scipy") else "dynamic")
        best = _shrink_inputs(problem, solve(problem, solver))
        chosen = [node.strategies[at] for node, at in zip(problem.nodes, best.choice, strict=True)]
        held = {
            value: own
            for node, one in zip(problem.nodes, chosen, strict=True)
            for value, own in zip(node.results, one.gives, strict=True)
        }
        inputs = {self.names[value]: Sharding.parse(held[str(value)]) for value in self.tape.inputs}
        ends = [
            Sharding.parse(held[node.operands[0]] if one.reads[0] == "*" else one.reads[0])
            for node, one in zip(problem.nodes, chosen, strict=True)
            if node.name.startswith("output ") and not node.results
        ]
        ops = [
            (node.name, ", ".join(one.gives))
            for node, one in zip(problem.nodes, chosen, strict=True)
            if node.operands and node.results and any(Sharding.parse(own).axes for own in one.gives)
        ]
        calls = [self._describe(*one) for one in best.conversions]
        naive = self._naive(problem, batch)
        unfit = tuple(name for name, one in naive.items() if not problem.is_allowed(one.choice))
        times = {name: one.time for name, one in naive.items()}
        plan = (inputs, tuple(ends), tuple(ops), tuple(calls))
        return ShardingChoice(self.mesh, *plan, best.time, times, unfit, solver)

    def _describe(self, value: str, source: str, target: str) -> str:
        name = self.names.get(int(value), f"%{value}")
        calls = [call for call, _ in self.steps(int(value), Sharding.parse(source), Sharding.parse(target))]
        return f"{name}: {source} to {target} by {' and '.join(calls) or 'slice'}"

    def _naive(self, problem: AssignmentProblem, batch: str) -> dict[str, Assignment]:
        """Plans that need no search: what is cut of each input is given, and each op runs where its operands are."""
        free = [value for value in self.tape.inputs if self.names[value] not in self.ties.values()]
        first = next((value for value in free if batch in ("", self.names[value])), None)
        if batch and first is None:
            raise ArgumentError(f"`auto_shard` has no input `{batch}`", fix=f"inputs are {', '.join(self.tape.names)}")
        types = self.tape.types
        cut = [
            value for value in self.tape.inputs if types[value].rank and self._divides(types[value], 0, list(self.mesh))
        ]
        found = {"replicated": self._greedy(problem, [])}
        if first in cut:
            found["data parallel"] = self._greedy(problem, [first])
            found["fully sharded"] = self._greedy(problem, cut)
        return found

    def _greedy(self, problem: AssignmentProblem, cut: Sequence[int]) -> Assignment:
        """Inputs whole, but for those that are cut along their first dim."""
        held: dict[str, str] = {}
        choice: list[int] = []
        picks: dict[str, int] = {}
        for node in problem.nodes:
            numbers = range(len(node.strategies))
            if node.results and not node.operands:
                type = self.tape.types[int(node.results[0])]
                is_cut = int(node.results[0]) in cut
                dims = [tuple(self.mesh) if at == 0 and is_cut else () for at in range(type.rank)]
                wanted = str(Sharding(tuple(dims)))
                pick = next(at for at in numbers if node.strategies[at].gives[0] == wanted)
            elif node.tie in picks:
                pick = picks[node.tie]
            else:
                pick = min(numbers, key=lambda at: self._price(problem, node, node.strategies[at], held))
            if node.tie:
                picks.setdefault(node.tie, pick)
            choice.append(pick)
            held.update(zip(node.results, node.strategies[pick].gives, strict=True))
        return problem.evaluate(choice)

    def _price(
        self, problem: AssignmentProblem, node: Node, one: Strategy, held: Mapping[str, str]
    ) -> tuple[float, float]:
        reads = zip(node.operands, one.reads, strict=True)
        moved = sum(problem.price(value, held[value], target) for value, target in reads)
        # Whole stays whole: a naive plan cuts nothing by itself.
        cuts = sum(target not in ("*", held[value]) for value, target in zip(node.operands, one.reads, strict=True))
        return moved + (1e18 if cuts and not moved else 0.0), one.time


def _shrink_inputs(problem: AssignmentProblem, best: Assignment) -> Assignment:
    """The same plan with each input in the sharding of fewest bytes under which it takes as long."""
    for at, node in enumerate(problem.nodes):
        if node.operands or node.tie:
            continue
        for number, one in enumerate(node.strategies):
            if one.bytes < node.strategies[best.choice[at]].bytes:
                tried = problem.evaluate([*best.choice[:at], number, *best.choice[at + 1 :]])
                best = tried if tried.time <= best.time else best
    return best


def _keys(values: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _cut(rule: FactorRule, factors: Factors, used: Mapping[int, tuple[str, ...]]) -> Sharding:
    """The sharding of a tensor where factors are cut over axes."""
    return Sharding(tuple(used.get(dim[0], ()) if dim else () for dim in factors))
