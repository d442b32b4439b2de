"""Dims against the integers they stand for: arithmetic, one form for one value, text and back, and limits of text."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from tessera.types.dim import Dim, maximum, minimum, parse_dim, product

B, S, T = (Dim.symbol(name) for name in "BST")
ENVIRONMENTS = [{"B": b, "S": s, "T": t} for b in (1, 2, 5) for s in (1, 3, 4) for t in (2, 7)]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": lambda a, b: maximum(a, b) if isinstance(a, Dim) else max(a, b),
    "min": lambda a, b: minimum(a, b) if isinstance(a, Dim) else min(a, b),
    "ceildiv": lambda a, b: a.ceildiv(b) if isinstance(a, Dim) else -(-a // b),
}


def draw(choose: random.Random, depth: int) -> tuple[Dim, list[int], str]:
    """A dim, what it is in each environment by Python's own arithmetic, and how it is written."""
    if not depth:
        name = choose.choice(["B", "S", "T", "1", "2", "3", "7"])
        return Dim.of(name), [int(name) if name.isdigit() else env[name] for env in ENVIRONMENTS], name
    (a, values, left), (b, others, right) = draw(choose, depth - 1), draw(choose, choose.randrange(depth))
    name = choose.choice(list(OPERATORS))
    if name in ("//", "%", "ceildiv") and min(others) <= 0:
        name = "+"  # what is divided by zero is zero by rule, and not here
    found = [OPERATORS[name](one, other) for one, other in zip(values, others, strict=True)]
    text = f"{name}({left}, {right})" if name in ("max", "min") else f"({left}) {name} ({right})"
    return OPERATORS[name](a, b), found, text


@pytest.mark.parametrize("seed", range(8))
def test_arithmetic_is_that_of_the_integers_and_text_reads_back(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(60):
        dim, values, text = draw(choose, choose.randrange(1, 5))
        assert [dim.evaluate(env) for env in ENVIRONMENTS] == values, text
        assert parse_dim(text) == parse_dim(str(dim)) == dim, text
        for env, value in zip(ENVIRONMENTS, values, strict=True):
            assert dim.substitute(env) == Dim.of(value), text
        if dim.value is not None:
            assert {dim.value} == set(values)
        name = choose.choice("BST")
        part = dim.substitute({name: 4})
        assert name not in part.symbols
        assert [part.evaluate(env) for env in ENVIRONMENTS] == [dim.evaluate({**env, name: 4}) for env in ENVIRONMENTS]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_linear_in_a_symbol_has_a_coefficient_and_nothing_else_has(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(60):
        dim, _, text = draw(choose, choose.randrange(1, 4))
        found = dim.coefficient("S")
        if found is not None:
            factor, remainder = found
            assert factor * S + remainder == dim, text
            assert "S" not in factor.symbols | remainder.symbols
    assert (B * S * 2 + 3).coefficient("S") == (B * 2, Dim.of(3))
    assert (B + 3).coefficient("S") == (Dim.of(0), B + 3)
    for dim in (S * S, S * S * B + S, S // 2, S * (S // 2), maximum(S, B) + S):
        assert dim.coefficient("S") is None, str(dim)


def test_one_value_has_one_form() -> None:
    assert (B + 1) * S - S == B * S == S * B
    assert (B + S) * (B - S) == B * B - S * S
    assert hash((B + 1) * 2) == hash(B * 2 + 2)
    assert B + S != B + T
    assert (B == "B", Dim.of(3) == 3, B == B, Dim(B.terms) == B, B == S) == (False, False, True, True, False)
    assert B - B == Dim.of(0) == Dim.constant(0)
    assert (B * S * 4) // (B * 2) == S * 2
    assert (B * 4 + S) // 4 == B + S // 4
    assert (B * 4 + S) % 4 == S % 4
    assert Dim.of(0) == (B * S * 4) % (S * 2)
    assert (B * 3) // 2 == Dim.of("(3*B) // 2") != B
    assert Dim.of("(B*S) // (B*B)") == (B * S) // (B * B)
    assert S // 1 == S
    assert S % 1 == Dim.of(0) == S % S
    assert Dim.of(1) == S // S
    assert Dim.of(1) == (S + B) // (S + B)
    assert Dim.of(0) == (S + B) % (S + B)
    assert product(()) == Dim.of(1)
    assert product((B, 3, "S")) == B * S * 3
    assert (Dim.of("B+3"), Dim.of("3-B"), Dim.of("3*B"), Dim.of("B-3")) == (3 + B, 3 - B, 3 * B, B - 3)


def test_the_larger_and_the_smaller_of_what_differs_by_a_number() -> None:
    for a, b, larger in ((S, S + 1, S + 1), (S + 1, S, S + 1), (S, S, S), (Dim.of(2), Dim.of(5), Dim.of(5))):
        assert maximum(a, b) == larger
        assert minimum(a, b) == a + b - larger
    assert maximum(S, B) == maximum(B, S) == Dim.of("max(S, B)")
    assert minimum(S, B, T) == minimum(S, minimum(B, T)) or minimum(S, B, T).symbols == {"S", "B", "T"}
    assert maximum(4) == Dim.of(4)


def test_what_is_divided_by_zero_is_zero() -> None:
    for text in ("7 // 0", "7 % 0"):
        assert parse_dim(text) == Dim.of(0)
    for dim in (S // B, S % B, S // 0, S % 0):
        assert dim.evaluate({"S": 5, "B": 0}) == 0
    for text in ("7 // 0", "S // 0", "S % 0", "S ceildiv 0", "S // (B - B)"):
        assert parse_dim(text) is not None
        with pytest.raises(ValueError, match="divides by 0"):
            parse_dim(text, refuses_zero=True)
    assert parse_dim("S * 0", refuses_zero=True) == Dim.of(0)
    assert parse_dim("S // 2 + 0", refuses_zero=True) == S // 2


def test_what_a_dim_is() -> None:
    table = {"0": 0, "7": 7, "-7": -7, "B": None, "B-B": 0, "2*B": None}
    assert {text: Dim.of(text).value for text in table} == table
    assert {text: Dim.of(text).is_static for text in table} == {
        text: value is not None for text, value in table.items()
    }
    names = {
        "B": "B",
        "2*B": None,
        "-B": None,
        "B+1": None,
        "B*S": None,
        "B*B": None,
        "B//2": None,
        "3": None,
        "0": None,
    }
    assert {text: Dim.of(text).symbol_name for text in names} == names
    assert Dim.of("B*S + max(T, 2) // U").symbols == {"B", "S", "T", "U"}
    assert Dim.of(B) is B
    assert (B + S).substitute({"T": 4, "U": B}).symbols == {"B", "S"}
    dim = Dim((B + S).terms)
    assert dim.substitute({"T": 3}) is dim
    assert dim.substitute({}) is dim
    assert (Dim.of("max(B, S) + B % S")).substitute({"S": B + 1}) == B + 1 + B % (B + 1)
    assert pickle.loads(pickle.dumps(dim)) == dim


def test_dims_are_sorted_by_their_text() -> None:
    assert sorted([S, B + 1, B, Dim.of(3)], key=str) == sorted([B, S, Dim.of(3), B + 1])
    assert B < S
    assert not B < B
    assert not S < B


def test_text_has_few_signs_and_parentheses() -> None:
    for text in ("0", "-3", "B", "-B", "2*B - S", "-2*B*S + 3", "B*B", "max(B, S)", "(B // 2)", "(B mod (S + 1))"):
        assert str(Dim.of(text)) == text.replace("//", "floordiv")
    assert str((B + S) // 4) == "((B + S) floordiv 4)"
    assert str(B * 2 // S) == "((2*B) floordiv S)"
    assert str(Dim.of("S + B*T + 1 + B*S*T")) == "B*S*T + B*T + S + 1"


def test_numbers_fit_into_63_bits() -> None:
    largest = (1 << 63) - 1
    assert parse_dim(str(largest)).value == largest
    assert parse_dim(f"-{largest}*B") == B * -largest
    assert parse_dim("1" * 19).value == int("1" * 19)
    for text in (str(largest + 1), "0" * 19 + "1"):
        with pytest.raises(ValueError, match=r"is no size: it does not fit into 63 bits"):
            parse_dim(text)
    for text in (f"{1 << 62}*2*B", f"-{1 << 62}*2*B", f"{largest} + 1", f"{1 << 62}*2", f"S + {1 << 62}*2*B"):
        with pytest.raises(ValueError, match="has a factor that does not fit into 63 bits"):
            parse_dim(text)


def test_products_have_a_limit() -> None:
    def total(prefix: str, count: int) -> str:
        return "(" + " + ".join(f"{prefix}{number}" for number in range(count)) + ")"

    assert len(parse_dim(f"{total('a', 10)} * {total('b', 100)}").terms) == 1000
    with pytest.raises(ValueError, match="1000 terms of 64 factors at most"):
        parse_dim(f"{total('a', 7)} * {total('b', 143)}")
    assert len(parse_dim(" * ".join(["B"] * 64)).terms[0][0]) == 64
    with pytest.raises(ValueError, match="1000 terms of 64 factors at most"):
        parse_dim(" * ".join(["B"] * 65))
    assert len(parse_dim("(1 + " + "*".join(["B"] * 63) + ") * S").terms) == 2


@pytest.mark.parametrize("word", ["//", "%", "ceildiv", "mod", "floordiv"])
def test_divisions_have_a_limit(word: str) -> None:
    assert parse_dim("B" + f" {word} S" * 100).symbols == {"B", "S"}
    for operand in ("S", "-S", "- -S"):
        with pytest.raises(ValueError, match="100 times at most"):
            parse_dim("B" + f" {word} {operand}" * 101)


def test_terms_do_not_nest() -> None:
    text = " - ".join(f"B // {at}" for at in range(2, 202))
    assert parse_dim(text).symbols == {"B"}


def test_parentheses_have_a_limit() -> None:
    assert parse_dim("(" * 100 + "B" + ")" * 100) == B
    with pytest.raises(ValueError, match="100 times at most"):
        parse_dim("(" * 101 + "B" + ")" * 101)
    nested = "B"
    for _ in range(100):
        nested = f"max({nested}, S)"
    assert parse_dim(nested).symbols == {"B", "S"}
    with pytest.raises(ValueError, match="100 times at most"):
        parse_dim(f"min({nested}, T)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a value, got end"),
        ("B +", "expected a value, got end"),
        ("B $ 3", "unexpected `\\$`"),
        ("B S", "unexpected `S`"),
        ("(B", r"expected \), got end"),
        ("B)", r"unexpected `\)`"),
        ("max(B)", r"expected ,, got \)"),
        ("max(B, S", r"expected \), got end"),
        ("* B", r"unexpected `\*`"),
        ("B + , 3", "unexpected `,`"),
        ("-", "expected a value, got end"),
        ("f(B, S)", r"unexpected `\(`"),
        ("3(B)", r"unexpected `\(`"),
    ],
)
def test_text_that_is_no_dim_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_dim(text)


def test_names_signs_and_spaces_of_text() -> None:
    assert parse_dim(" B  ") == B
    assert parse_dim("- -B") == B
    assert parse_dim("---B") == -B
    assert parse_dim("B--S") == B + S
    assert parse_dim("_x.y2") == Dim.symbol("_x.y2")
    assert parse_dim("max") == Dim.symbol("max")
    assert parse_dim("max + min") == Dim.symbol("max") + Dim.symbol("min")
    assert parse_dim("B - S - T") == B - S - T
    assert parse_dim("12 // 2 * 3") == Dim.of(18)
    assert parse_dim("7 ceildiv 2") == Dim.of(4)
    assert parse_dim("B floordiv 2 + S mod 3") == B // 2 + S % 3


def test_hashes_and_texts_of_nested_atoms_are_made_once_and_do_not_travel() -> None:
    nested = Dim.symbol("H")
    for step in range(30):
        nested = (nested * 2 + Dim.symbol("W")) // (step + 3)
    again = pickle.loads(pickle.dumps(nested))
    assert again == nested
    assert hash(again) == hash(nested)
    assert nested != nested + 1
    (monomial, _), *_ = nested.terms
    assert "_hash" not in pickle.dumps(monomial[0]).decode("latin-1")
    assert str(monomial[0]) is str(monomial[0])
