"""Propagation against brute force: no solution is lost, bounds rest on their reasons, and are no looser than now."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import gcd

import pytest

from tessera.types.constraint_store import (
    BIG,
    RUNS,
    ContradictionError,
    Division,
    Linear,
    MinMaxRule,
    NotZero,
    ProductRule,
    Rule,
    Store,
    Value,
    exactly,
    plus,
    quotient,
    remainder,
)
from tessera.types.dim import Dim, maximum, minimum

SIZES = range(9)
"""Where solutions are looked for."""

Holds = Callable[[Sequence[int]], bool]
Fact = tuple[str, int, int, int]
"""What is given of a node: `low`, `high` or `class`, the node, and one or two numbers."""


def is_true(fact: Fact, values: Sequence[int]) -> bool:
    kind, node, number, other = fact
    if kind == "low":
        return values[node] >= number
    return values[node] <= number if kind == "high" else values[node] % number == other


def give(store: Store, facts: Sequence[Fact]) -> None:
    """Note facts, each with a bit of its own."""
    for index, fact in enumerate(facts):
        give_one(store, fact, 1 << index)


def give_one(store: Store, fact: Fact, why: int) -> None:
    kind, node, number, other = fact
    if kind == "low":
        store.raise_low(node, number, why)
    elif kind == "high":
        store.lower_high(node, number, why)
    else:
        store.intersect_class(node, number, other, why)


def draw_facts(choose: random.Random, nodes: int) -> list[Fact]:
    found: list[Fact] = []
    for node in range(nodes):
        low = choose.choice([0, 0, 1, 2, 3, 5])
        found.append(("low", node, low, 0))
        if choose.random() < 0.8:
            found.append(("high", node, low + choose.choice([0, 0, 1, 2, 4]), 0))
        if choose.random() < 0.4:
            modulus = choose.choice([2, 3, 4])
            found.append(("class", node, modulus, choose.randrange(modulus)))
    return choose.sample(found, len(found))


def draw_linear(choose: random.Random, store: Store, nodes: Sequence[int], why: int) -> tuple[Rule, Holds]:
    terms = tuple((choose.choice([-3, -2, -1, 1, 1, 2, 4]), node) for node in nodes)
    constant, is_equal = choose.randrange(-8, 9), choose.random() < 0.6

    def holds(values: Sequence[int]) -> bool:
        total = sum(factor * values[node] for factor, node in terms) + constant
        return total == 0 if is_equal else total >= 0

    return Linear(terms, constant, is_equal, why), holds


def draw_not_zero(choose: random.Random, store: Store, nodes: Sequence[int], why: int) -> tuple[Rule, Holds]:
    terms = tuple((choose.choice([-2, -1, 1, 2]), node) for node in nodes)
    constant = choose.randrange(-6, 7)
    return NotZero(terms, constant, why), lambda values: sum(f * values[n] for f, n in terms) + constant != 0


def draw_product(choose: random.Random, store: Store, nodes: Sequence[int], why: int) -> tuple[Rule, Holds]:
    first, *factors = nodes

    def holds(values: Sequence[int]) -> bool:
        made = 1
        for node in factors:
            made *= values[node]
        return made == values[first]

    return ProductRule(first, factors), holds


def draw_division(choose: random.Random, store: Store, nodes: Sequence[int], why: int) -> tuple[Rule, Holds]:
    def holds(values: Sequence[int]) -> bool:
        whole, part, dividend, divisor = (values[node] for node in nodes)
        return (whole, part) == (divmod(dividend, divisor) if divisor else (0, 0))

    return Division(*nodes), holds


def draw_min_max(choose: random.Random, store: Store, nodes: Sequence[int], why: int) -> tuple[Rule, Holds]:
    kind = choose.choice(["min", "max"])
    plain = max if kind == "max" else min
    result, first, second = nodes
    made = MinMaxRule(kind, result, first, second)
    return made, lambda values: values[result] == plain(values[first], values[second])


DRAWN: Mapping[str, tuple[Callable[..., tuple[Rule, Holds]], int]] = {
    "linear of two": (draw_linear, 2),
    "linear of three": (draw_linear, 3),
    "not zero of one": (draw_not_zero, 1),
    "not zero of two": (draw_not_zero, 2),
    "product": (draw_product, 3),
    "division": (draw_division, 4),
    "minimum and maximum": (draw_min_max, 3),
}
"""How a rule is drawn, of how many nodes."""


def solutions(models: Sequence[tuple[int, ...]], facts: Sequence[Fact]) -> list[tuple[int, ...]]:
    return [values for values in models if all(is_true(fact, values) for fact in facts)]


def chosen(facts: Sequence[Fact], why: int) -> list[Fact]:
    return [fact for index, fact in enumerate(facts) if why >> index & 1]


Models = Sequence[tuple[int, ...]]


def check_reasons(store: Store, models: Models, everything: Models, facts: Sequence[Fact], rule_bit: int) -> None:
    """The facts that a bound names, and the rule, are enough for it."""
    for node in range(len(everything[0])):
        for kind, why in (("low", store.low_why), ("high", store.high_why), ("class", store.class_why)):
            number = {"low": store.low, "high": store.high, "class": store.modulus}[kind][node]
            bound: Fact = (kind, node, number, store.residue[node])
            needed = models if not rule_bit or why[node] & rule_bit else everything
            for values in solutions(needed, chosen(facts, why[node])):
                assert is_true(bound, values), (bound, values, chosen(facts, why[node]))


def run_one(name: str, seed: int) -> tuple[int, int]:
    """How many numbers more than its solutions a propagated system leaves, and whether a contradiction was missed."""
    choose = random.Random(f"{name} {seed}")
    draw, nodes = DRAWN[name]
    store = Store()
    for node in range(nodes):
        assert store.symbol(f"s{node}") == node
    facts = draw_facts(choose, nodes)
    has_why = name.startswith(("linear", "not"))
    rule_bit = 1 << len(facts) if has_why else 0
    rule, holds = draw(choose, store, choose.sample(range(nodes), nodes), rule_bit)
    everything = list(product(SIZES, repeat=nodes))
    models = [values for values in everything if holds(values)]
    found = solutions(models, facts)
    try:
        give(store, facts)
        store.post(rule)
        store.propagate()
    except ContradictionError as error:
        why = error.why
    else:
        check_reasons(store, models, everything, facts, rule_bit)
        return count_excess(store, found), int(not found)
    assert not solutions(models if not has_why or why & rule_bit else everything, chosen(facts, why)), (facts, why)
    assert not found
    return 0, 0


def count_excess(store: Store, found: Models) -> int:
    """Numbers that nodes may be by the store, and are in no solution."""
    excess = 0
    for node, exact in enumerate(map(set, zip(*found, strict=True))):
        value = store.value(node)
        left = {one for one in SIZES if value.low <= one <= value.high and one % value.modulus == value.residue}
        assert exact <= left, (node, value)
        excess += len(left - exact)
    return excess


LOOSE = {
    "linear of two": (5, 2),
    "linear of three": (9, 5),
    "not zero of one": (5, 0),
    "not zero of two": (5, 0),
    "product": (28, 5),
    "division": (24, 2),
    "minimum and maximum": (12, 0),
}
"""Numbers that are left beside solutions, and contradictions that are missed: better rules lower them."""


@pytest.mark.parametrize("name", DRAWN)
def test_rules_lose_no_solution_and_are_no_looser_than_now(name: str) -> None:
    count = 40 if DRAWN[name][1] == 4 else 150
    found = [run_one(name, seed) for seed in range(count)]
    total = sum(excess for excess, _ in found), sum(missed for _, missed in found)
    assert all(own <= most for own, most in zip(total, LOOSE[name], strict=True)), total


ENDS = [(low, high) for low in range(-4, 6) for high in range(low, 6)]


def test_quotients_and_remainders_are_no_wider_than_they_are() -> None:
    for (low, high), (start, end) in product(ENDS, [ends for ends in ENDS if ends[0] >= 0]):
        pairs = list(product(range(low, high + 1), range(start, end + 1)))
        found = quotient(Value(low, high, why=1), Value(start, end, why=2))
        exact = [x // y if y else 0 for x, y in pairs]
        assert (found.low, found.high, found.why) == (min(exact), max(exact), 3), (low, high, start, end)
        found = remainder(Value(low, high, why=1), Value(start, end, why=2))
        exact = [x % y if y else 0 for x, y in pairs]
        assert (found.low <= min(exact), max(exact) <= found.high, found.why) == (True, True, 3)
        if low >= 0 and high < start:
            assert (found.low, found.high) == (low, high)
        else:
            assert found.low >= 0
            assert found.high <= max(0, min(end - 1, high if low >= 0 else end))
    for low, high in ENDS:
        for operation in (quotient, remainder):
            assert operation(Value(low, high, why=1), Value(-1, 3, why=2)) == Value(why=3)
    assert quotient(Value(5, BIG), Value(2, 3))[:2] == (1, BIG)
    assert quotient(Value(-BIG, 7), Value(2, 3))[:2] == (-BIG, 3)
    assert quotient(Value(5, 9), Value(2, BIG))[:2] == (0, 4)
    assert quotient(Value(-5, 9), Value(2, BIG))[:2] == (-3, 4)
    assert remainder(Value(5, BIG), Value(2, BIG))[:2] == (0, BIG)
    assert remainder(Value(5, 9), Value(2, BIG))[:2] == (0, 9)


def test_numbers_beyond_the_bounds_are_known_by_their_residues() -> None:
    for number in (0, 5, -5, BIG - 1, 1 - BIG):
        assert exactly(number, 4) == Value(number, number, 1, 0, 4)
    for number in (BIG, BIG + 5, -BIG, -BIG - 5, 7 * BIG):
        found = exactly(number, 4)
        assert not found.is_fixed
        assert (found.low, found.high) == ((BIG - 1, BIG) if number > 0 else (-BIG, 1 - BIG))
        assert number % found.modulus == found.residue
        assert (found.modulus, found.why) == (1 << 40, 4)
        assert plus(found, exactly(1)).residue == (number + 1) % found.modulus


def test_remainders_keep_the_class_that_both_share() -> None:
    for modulus, by in product((2, 3, 4, 6), range(1, 9)):
        for residue in range(modulus):
            found = remainder(Value(0, 40, modulus, residue), exactly(by))
            exact = {x % by for x in range(residue, 41, modulus)}
            left = {x for x in range(found.low, found.high + 1) if x % found.modulus == found.residue}
            common = gcd(modulus, by)
            assert exact <= left <= {x for x in range(by) if x % common == residue % common}, (modulus, residue, by)
    assert remainder(Value(0, 5, 2, 1), Value(6, 8)) == Value(0, 5, 2, 1)
    assert remainder(Value(0, 40, 4, 3), Value(2, 20, 2, 0))[2:4] == (2, 1)
    assert remainder(Value(0, 40, 4, 3), Value(1, 20, 2, 0))[2:4] == (2, 1)
    assert remainder(Value(0, 40, 4, 3), Value(0, 20, 2, 0))[2:4] == (1, 0)


@pytest.mark.parametrize("class_first", [True, False])
def test_a_class_moves_a_bound_only_where_it_is_none_of_it(class_first: bool) -> None:
    """A bound that was in the class keeps its own reason alone, and what has no bound gets none."""
    for low, high, residue in product((3, 4, 5), (9, 10, 11), range(3)):
        store = Store()
        node = store.symbol("A")
        facts: list[Fact] = [("low", node, low, 0), ("high", node, high, 0), ("class", node, 3, residue)]
        order = (2, 0, 1) if class_first else (0, 1, 2)
        for index in order:
            give_one(store, facts[index], 1 << index)
        first, last = (low + (residue - low) % 3, high - (high - residue) % 3)
        assert store.value(node) == Value(first, last, 3, residue, 7)
        assert store.class_why[node] == 4
        if not class_first:
            assert store.low_why[node] == (1 if first == low else 5)
            assert store.high_why[node] == (2 if last == high else 6)
    for modulus, residue in product((2, 3, 5), range(2)):
        store = Store()
        node = store.node_of(Dim.symbol("A") - Dim.symbol("B"))
        store.intersect_class(node, modulus, residue, 1)
        assert store.value(node) == Value(-BIG, BIG, modulus, residue, 1)
        assert (store.low_why[node], store.high_why[node]) == (0, 0)


class Growing:
    """A rule that makes its own node narrower each time, and so never comes to rest."""

    def __init__(self, node: int) -> None:
        self.watched, self.runs = [node], 0

    def run(self, store: Store) -> None:
        self.runs += 1
        store.raise_low(self.watched[0], self.runs, 1)


def test_a_rule_runs_so_often_in_one_pass() -> None:
    store = Store()
    rule = Growing(store.symbol("A"))
    store.post(rule)
    for passes in (1, 2):
        assert not store.propagate()
        assert rule.runs == passes * RUNS
        store.post(rule)
    assert Store().propagate()


def test_what_is_said_again_keeps_its_first_reason() -> None:
    store = Store()
    node = store.symbol("A")
    facts: list[Fact] = [("low", node, 4, 0), ("high", node, 10, 0), ("class", node, 6, 4)]
    again: list[Fact] = [
        *facts,
        ("low", node, 3, 0),
        ("high", node, 11, 0),
        ("class", node, 3, 1),
        ("class", node, 2, 0),
    ]
    give(store, [*facts, *again])
    assert (store.low_why[node], store.high_why[node], store.class_why[node]) == (1, 2, 4)


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_next_to_the_largest_stay_within_them(sign: int) -> None:
    """A class may move a bound no further than the last number that is one."""
    for bound, modulus in product(range(BIG - 5, BIG), (1, 2, 3, 4)):
        store = Store()
        node = store.node_of(Dim.symbol("A") - Dim.symbol("B"))
        raise_bound = store.raise_low if sign > 0 else store.lower_high
        raise_bound(node, sign * bound, 1)
        store.intersect_class(node, modulus, 1, 2)
        exact = bound + (sign - bound) % modulus
        found = store.value(node)
        assert (found.low if sign > 0 else -found.high) == min(exact, BIG - 1)
        raise_bound(node, sign * (BIG + 7), 4)
        found = store.value(node)
        assert (found.low if sign > 0 else -found.high) == BIG - 1


def test_dims_are_known_from_their_nodes_and_from_their_parts() -> None:
    A, B = Dim.symbol("A"), Dim.symbol("B")
    dims = (A * B, A // B, A % B, maximum(A, B), minimum(A, B), 3 * A - B + 2, A * B // 2 + A % 3, A * A * B)
    for with_nodes, (low, high) in product((True, False), ((2, 3), (4, 4), (0, 5))):
        for dim in dims:
            store = Store()
            a, b = store.symbol("A"), store.symbol("B")
            if with_nodes:
                store.node_of(dim)
            give(store, [("low", a, low, 0), ("high", a, high, 0), ("low", b, 1, 0), ("high", b, 2, 0)])
            store.propagate()
            found = store.evaluate(dim)
            exact = [dim.evaluate({"A": x, "B": y}) for x in range(low, high + 1) for y in (1, 2)]
            assert found.low <= min(exact) <= max(exact) <= found.high
            if dim in (A * B, A // B, maximum(A, B), minimum(A, B)):
                assert (found.low, found.high) == (min(exact), max(exact)), str(dim)
    assert Store().evaluate(A) == Value(low=0)
    assert Store().evaluate(A * 2 + 1) == Value(1, BIG, 2, 1)


def test_what_is_supposed_is_forgotten() -> None:
    store = Store()
    a = store.symbol("A")
    give(store, [("high", a, 9, 0)])
    before = store.value(a)
    with store.supposing(Linear(((1, a),), -4, False, 2)):
        store.propagate()
        assert store.value(a) == Value(4, 9, why=3)
    assert store.value(a) == before
    give(store, [("low", a, 1, 0)])
    store.propagate()
    assert store.value(a)[:2] == (1, 9)


def test_one_node_for_one_atom() -> None:
    store = Store()
    A, B = Dim.symbol("A"), Dim.symbol("B")
    assert store.node_of(A) == store.symbol("A") == store.symbol("A")
    assert store.node_of(A * B) == store.node_of(B * A)
    assert store.node_of(A // B) == store.node_of(A // B) != store.node_of(A % B)
    assert store.node_of(maximum(A, B)) == store.node_of(maximum(B, A)) != store.node_of(minimum(A, B))
    assert store.node_of(2 * A) != store.node_of(A)
    assert store.form(A * 2 + B * A - 7) == (((1, store.node_of(A * B)), (2, store.symbol("A"))), -7)
