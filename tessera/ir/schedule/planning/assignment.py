"""Choosing a strategy for every op, so that a program takes least time: exactly, by a solver or by a dynamic program.

A node is an op, an input or an output; each of its strategies says in which sharding it reads its operands and gives
its results, and what it takes by itself. Where a value is not in the sharding that a reader wants, it is converted, at
a price; what one reader had converted, others read too. As an integer program: one variable for each strategy, one of
which is chosen, and one for each conversion, which is paid where both ends are chosen. SciPy's HiGHS solves that where
SciPy is installed. The dynamic program goes through the nodes in order and keeps the cheapest choice for every state of
the values that are still read, as `sharding.py` does; both find the same time, and tests try all choices of small
programs too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product as combinations_of
from math import inf
from typing import Any, TypeAlias

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

MOST_STATES = 200_000
"""States that the dynamic program keeps at most: some seconds of Python; beyond, a solver is asked for."""

Convert: TypeAlias = Callable[[str, str, str], float]
"""Nanoseconds of a value in one sharding becoming another."""


@frozen
class Strategy:
    """How a node runs: the sharding of each operand (`*` for any) and of each result, its nanoseconds, and bytes."""

    reads: tuple[str, ...]
    gives: tuple[str, ...]
    time: float
    bytes: float = 0.0
    """Memory of a rank that an input takes in it."""


@frozen
class Node:
    """An op, an input (which reads nothing) or an output (which gives nothing), with its strategies.

    Nodes of one `tie` choose the same number among their strategies, as a parameter and its gradient do.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    strategies: tuple[Strategy, ...]
    tie: str = ""


@frozen
class Assignment:
    """The strategy of each node by its number, nanoseconds in all, and the conversions: value, from, to."""

    choice: tuple[int, ...]
    time: float
    conversions: tuple[tuple[str, str, str], ...]


class AssignmentProblem:
    """Nodes in order, each behind those whose results it reads, and what conversions cost.

    `most_bytes` bounds the sum of what inputs take in memory.
    """

    def __init__(self, nodes: Sequence[Node], convert: Convert, most_bytes: float = inf) -> None:
        self.nodes, self.most_bytes = tuple(nodes), most_bytes
        self._convert = convert
        self._prices: dict[tuple[str, str, str], float] = {}
        self._check()

    def price(self, value: str, source: str, target: str) -> float:
        """What a conversion costs; nothing where none is needed."""
        if target in ("*", source):
            return 0.0
        key = value, source, target
        if key not in self._prices:
            self._prices[key] = self._convert(*key)
        return self._prices[key]

    @cached_property
    def makers(self) -> dict[str, int]:
        """The node that gives each value."""
        return {value: at for at, node in enumerate(self.nodes) for value in node.results}

    def _check(self) -> None:
        known: set[str] = set()
        for node in self.nodes:
            missing = [value for value in node.operands if value not in known]
            if missing or not node.strategies:
                what = f"reads `{missing[0]}`, which is not there" if missing else "has no strategy"
                raise ScheduleError(f"`{node.name}` {what}", span=None, fix="list nodes behind those that they read")
            known |= set(node.results)

    def evaluate(self, choice: Sequence[int]) -> Assignment:
        """What a choice takes, whether or not it keeps to the ties and the memory."""
        chosen = [node.strategies[at] for node, at in zip(self.nodes, choice, strict=True)]
        held = {
            value: own for node, one in zip(self.nodes, chosen, strict=True)
            for value, own in zip(node.results, one.gives, strict=True)
        }  # fmt: skip
        wanted = dict.fromkeys(
            (value, held[value], target)
            for node, one in zip(self.nodes, chosen, strict=True)
            for value, target in zip(node.operands, one.reads, strict=True)
            if target not in ("*", held[value])
        )
        time = sum(one.time for one in chosen) + sum(self.price(*one) for one in wanted)
        return Assignment(tuple(choice), time, tuple(wanted))

    def is_allowed(self, choice: Sequence[int]) -> bool:
        """Whether ties and memory are kept to."""
        ties: dict[str, int] = {}
        for node, at in zip(self.nodes, choice, strict=True):
            if node.tie and ties.setdefault(node.tie, at) != at:
                return False
        used = sum(node.strategies[at].bytes for node, at in zip(self.nodes, choice, strict=True))
        return used <= self.most_bytes


def solve(problem: AssignmentProblem, solver: str = "") -> Assignment:
    """The fastest assignment, by `milp` (where SciPy is installed) or `dynamic`.

    Raises ScheduleError (T0401) where memory allows none, or there is no such solver.
    """
    solver = solver or ("milp" if importlib.util.find_spec("scipy") else "dynamic")
    if solver not in _SOLVERS:
        raise ScheduleError(
            f"there is no solver `{solver}`", span=None, fix=f"write one of {', '.join(map(repr, _SOLVERS))}"
        )
    return _SOLVERS[solver](problem)


def _nothing_fits(problem: AssignmentProblem) -> ScheduleError:
    least = sum(min(one.bytes for one in node.strategies) for node in problem.nodes)
    return ScheduleError(
        f"no sharding keeps the inputs of a rank below {problem.most_bytes:.0f} bytes: they take {least:.0f} at least",
        span=None,
        fix="take a mesh of more ranks, or allow more memory",
    )


# By trying all: what tests compare with.


def try_all(problem: AssignmentProblem) -> Assignment:
    """The fastest of all choices, one by one: for programs of a few nodes."""
    numbers = [range(len(node.strategies)) for node in problem.nodes]
    allowed = (choice for choice in combinations_of(*numbers) if problem.is_allowed(choice))
    best = min((problem.evaluate(choice) for choice in allowed), key=lambda one: one.time, default=None)
    if best is None:
        raise _nothing_fits(problem)
    return best


# By dynamic programming over the values that are alive.

_Held: TypeAlias = tuple[tuple[tuple[str, str, frozenset[str]], ...], tuple[tuple[str, int], ...]]
"""Of each value that is still read, its sharding and those it was converted to; and what open ties chose."""
_Front: TypeAlias = list[tuple[float, float, tuple[int, ...]]]
"""Times, bytes and choices, of which none is worse than another in both."""


def solve_dynamic(problem: AssignmentProblem) -> Assignment:
    """The fastest assignment by going through the nodes in order."""
    last_read = {value: at for at, node in enumerate(problem.nodes) for value in node.operands}
    last_tie = {node.tie: at for at, node in enumerate(problem.nodes) if node.tie}
    fronts: dict[_Held, _Front] = {((), ()): [(0.0, 0.0, ())]}
    for at, node in enumerate(problem.nodes):
        following: dict[_Held, _Front] = {}
        for (values, ties), front in fronts.items():
            for number, strategy in enumerate(node.strategies):
                if node.tie and dict(ties).get(node.tie, number) != number:
                    continue
                held, price = _read(problem, node, strategy, values)
                made = {value: (own, frozenset[str]()) for value, own in zip(node.results, strategy.gives, strict=True)}
                alive = tuple((value, *own) for value, own in (held | made).items() if last_read.get(value, -1) > at)
                open_ties = dict(ties) | ({node.tie: number} if node.tie else {})
                key = alive, tuple(one for one in open_ties.items() if last_tie[one[0]] > at)
                for time, bytes, choice in front:
                    done = (time + price + strategy.time, bytes + strategy.bytes, (*choice, number))
                    if done[1] <= problem.most_bytes:
                        _insert(following.setdefault(key, []), done)
        fronts = following
        if sum(map(len, fronts.values())) > MOST_STATES:
            raise ScheduleError(
                f"at `{node.name}` more than {MOST_STATES} states are alive, and no solver is installed",
                span=None,
                fix="install SciPy, whose HiGHS solves it, or shard a smaller part",
            )
    if not fronts:
        raise _nothing_fits(problem)
    best = min((one for front in fronts.values() for one in front), key=lambda one: one[0])
    return problem.evaluate(best[2])


def _read(
    problem: AssignmentProblem, node: Node, strategy: Strategy, values: tuple[tuple[str, str, frozenset[str]], ...]
) -> tuple[dict[str, tuple[str, frozenset[str]]], float]:
    """The values behind a node's conversions, and what these cost."""
    held = {value: (own, converted) for value, own, converted in values}
    price = 0.0
    for value, target in zip(node.operands, strategy.reads, strict=True):
        own, converted = held[value]
        if target not in ("*", own) and target not in converted:
            price += problem.price(value, own, target)
            held[value] = own, converted | {target}
    return held, price


def _insert(front: _Front, one: tuple[float, float, tuple[int, ...]]) -> None:
    if any(time <= one[0] and bytes <= one[1] for time, bytes, _ in front):
        return
    front[:] = [own for own in front if own[0] < one[0] or own[1] < one[1]]
    front.append(one)


# By integer programming.


def solve_milp(problem: AssignmentProblem) -> Assignment:
    """The fastest assignment by HiGHS; conversions are continuous, as whole choices make them whole."""
    # An optional dependency, which brings no stubs.
    optimize: Any = importlib.import_module("scipy.optimize")
    sparse: Any = importlib.import_module("scipy.sparse")

    starts = [0]
    for node in problem.nodes:
        starts.append(starts[-1] + len(node.strategies))
    chosen = starts[-1]
    costs = [one.time for node in problem.nodes for one in node.strategies]
    rows: list[tuple[Mapping[int, float], float, float]] = [
        ({starts[at] + number: 1.0 for number in range(len(node.strategies))}, 1.0, 1.0)
        for at, node in enumerate(problem.nodes)
    ]
    rows += _tie_rows(problem, starts)
    if problem.most_bytes < inf:
        sizes = [one.bytes for node in problem.nodes for one in node.strategies]
        rows.append(({at: size for at, size in enumerate(sizes) if size}, -inf, problem.most_bytes))
    _add_conversions(problem, starts, costs, rows)
    entries = [(at, column, value) for at, (row, _, _) in enumerate(rows) for column, value in row.items()]
    matrix: Any = sparse.csr_matrix(
        ([one[2] for one in entries], ([one[0] for one in entries], [one[1] for one in entries])),
        shape=(len(rows), len(costs)),
    )
    scale = max(max(costs, default=1.0), 1e-9)
    found: Any = optimize.milp(
        [cost / scale for cost in costs],
        constraints=optimize.LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows]),
        integrality=[1] * chosen + [0] * (len(costs) - chosen),
        bounds=optimize.Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise _nothing_fits(problem)
    picks = [max(range(starts[at], starts[at + 1]), key=lambda one: found.x[one]) for at in range(len(problem.nodes))]
    return problem.evaluate([pick - starts[at] for at, pick in enumerate(picks)])


def _tie_rows(problem: AssignmentProblem, starts: Sequence[int]) -> list[tuple[Mapping[int, float], float, float]]:
    first: dict[str, int] = {}
    rows: list[tuple[Mapping[int, float], float, float]] = []
    for at, node in enumerate(problem.nodes):
        if node.tie and (other := first.setdefault(node.tie, at)) != at:
            for number in range(len(node.strategies)):
                rows.append(({starts[at] + number: 1.0, starts[other] + number: -1.0}, 0.0, 0.0))
    return rows


def _add_conversions(
    problem: AssignmentProblem,
    starts: Sequence[int],
    costs: list[float],
    rows: list[tuple[Mapping[int, float], float, float]],
) -> None:
    """A variable for each reader and each pair of shardings, which is 1 where both are chosen.

    Those of a reader add up to the choices at both ends, so that relaxed they are nearly whole. What several readers
    of a value convert alike is paid by one variable that is as large as each of theirs.
    """
    readers: dict[str, list[tuple[int, int]]] = {}
    for at, node in enumerate(problem.nodes):
        for place, value in enumerate(node.operands):
            readers.setdefault(value, []).append((at, place))
    for value, listed in readers.items():
        maker = problem.makers[value]
        own = problem.nodes[maker].results.index(value)
        givers = _group(starts[maker], [one.gives[own] for one in problem.nodes[maker].strategies])
        paid: dict[tuple[str, str], int] = {}
        for at, place in listed:
            takers = _group(starts[at], [one.reads[place] for one in problem.nodes[at].strategies])
            pairs: dict[tuple[str, str], int] = {}
            for pair in combinations_of(givers, takers):
                pairs[pair] = len(costs)
                price = problem.price(value, *pair)
                costs.append(price if len(listed) == 1 else 0.0)
                if price and len(listed) > 1:
                    if pair not in paid:
                        paid[pair] = len(costs)
                        costs.append(price)
                    rows.append(({paid[pair]: 1.0, pairs[pair]: -1.0}, 0.0, inf))
            for end, groups in enumerate((givers, takers)):
                for sharding, numbers in groups.items():
                    row = {number: 1.0 for pair, number in pairs.items() if pair[end] == sharding}
                    rows.append((row | dict.fromkeys(numbers, -1.0), 0.0, 0.0))


def _group(start: int, shardings: Sequence[str]) -> dict[str, list[int]]:
    """The variables of strategies by a sharding of theirs."""
    found: dict[str, list[int]] = {}
    for number, one in enumerate(shardings):
        found.setdefault(one, []).append(start + number)
    return found


_SOLVERS: dict[str, Callable[[AssignmentProblem], Assignment]] = {"milp": solve_milp, "dynamic": solve_dynamic}
