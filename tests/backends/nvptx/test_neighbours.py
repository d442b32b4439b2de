"""Index expressions of neighbours, from those of the first: machine code gives what `Dim.evaluate` gives."""

from __future__ import annotations

import random

import pytest

from tessera.backends.nvptx.neighbours import Neighbours, has_division_of
from tessera.ir.target.limits import magnitude
from tessera.ir.target.llvm.instructions import dim_value
from tessera.ir.target.llvm.text import ModuleText
from tessera.types.dim import Dim, parse_dim
from tests.backends.cpu.jit import build, targets

COUNT = 8
EXPRESSIONS = (
    "p + 3*q",
    "p floordiv 9",
    "p mod 9",
    "p mod 5",
    "4096*(p floordiv 3998) + (p mod 3998) + 3",
    "50*(p floordiv 13) + 7*((p floordiv 13) mod 11) + (p mod 13) - 8",
    "(p floordiv 13) floordiv 11 + (p mod 143)",
    "((p floordiv 13) floordiv 11) mod 3",
    "(p + 5) mod 17 + 2*q*q",
    "(p mod 12) * (q + 1)",
    "(2*p) mod 11",
    "(p - 3) mod 11",
    "max(p mod 9, q)",
    "(p mod 11) + (p mod 9)",
    "(p mod 17) floordiv 9",
)


def test_every_neighbour_has_the_value_that_evaluate_gives() -> None:
    """Steps that are known by a carry, and expressions that are none and are computed anew."""
    module, rng = ModuleText(targets()[0]), random.Random(1)
    for number, text in enumerate(EXPRESSIONS):
        for inner in range(COUNT):
            f = module.function(f"f{number}_{inner}", [("i64", "p"), ("i64", "q")], "i64")
            f.divides_words = True
            near = Neighbours(f, "p", dict(zip("pq", f.arguments, strict=True)))
            word = near.word(parse_dim(text), inner)
            whole = near.value(parse_dim(text), inner)
            f.ret(f.select(f.icmp("eq", f.cast("sext", word, "i64"), whole), whole, f.const_i(-1 << 40)))
    run = build(module)
    for number, text in enumerate(EXPRESSIONS):
        for start in (0, 8, 16, 136, 3992, *(8 * rng.randrange(10**6) for _ in range(20))):
            for inner in range(COUNT):
                wanted = parse_dim(text).evaluate({"p": start + inner, "q": 3})
                assert run(f"f{number}_{inner}", start, 3) == wanted, (text, start, inner)


def test_words_divide_as_dims_do() -> None:
    """In 32 bits and with numbers of either sign."""
    module = ModuleText(targets()[0])
    texts = ("(p - 20) floordiv 7", "(p - 20) mod 7", "p floordiv 7", "p mod 7", "(p - 20) mod 8")
    for number, text in enumerate(texts):
        f = module.function(f"f{number}", [("i64", "p")], "i64")
        f.divides_words = True
        f.ret(dim_value(f, parse_dim(text), {"p": f.arguments[0]}))
        assert any(" i32 " in line for line in f.text().splitlines()), text
    run = build(module)
    for number, text in enumerate(texts):
        for p in (*range(45), (1 << 31) - 1):
            assert run(f"f{number}", p) == parse_dim(text).evaluate({"p": p}), (text, p)


@pytest.mark.parametrize(
    ("text", "found"),
    [("p mod 9", True), ("p mod 8", False), ("q mod 9", False), ("3*p", False), ("q + (p + 1) floordiv 6", True)],
)
def test_only_divisions_that_cost_are_taken_together(text: str, found: bool) -> None:
    assert has_division_of(parse_dim(text), "p") is found


def test_magnitudes_bound_values() -> None:
    rng = random.Random(2)
    for text in EXPRESSIONS:
        bound = magnitude(parse_dim(text), {"p": 500, "q": 9})
        assert bound is not None
        for _ in range(50):
            env = {"p": rng.randint(0, 500), "q": rng.randint(0, 9)}
            assert abs(parse_dim(text).evaluate(env)) <= bound, text
    assert magnitude(Dim.symbol("p") * 2, {}) is None
