"""Pages of `explain` name long formulas once, and what the names stand for is what the formulas were."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.api.explanation import LONG, name_formulas
from tessera.types.dim import Dim, maximum, minimum

SYMBOLS = [Dim.symbol(name) for name in ("B", "K", "s1", "sequence_length")]


def combine(parts: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda pair: pair[0] + pair[1] * 3),
        pairs.map(lambda pair: pair[0] * pair[1]),
        pairs.map(lambda pair: (pair[0] + 7) // (pair[1] + 1)),
        pairs.map(lambda pair: pair[0] % (pair[1] + 2)),
        pairs.map(lambda pair: maximum(*pair)),
        pairs.map(lambda pair: minimum(*pair)),
    )


DIMS = st.recursive(st.sampled_from([*SYMBOLS, Dim.constant(5)]), combine, max_leaves=12)


def expand(lines: Sequence[str], named: Sequence[str]) -> list[str]:
    """The lines with each name replaced by what it stands for, in parentheses unless it is a call."""
    texts = list(lines)
    for name, meant in (definition.split(" = ") for definition in named):
        whole = meant if re.match(r"(max|min)\(", meant) and _closes_last(meant) else f"({meant})"
        texts = [re.sub(rf"\b{name}\b", lambda _, whole=whole: whole, text) for text in texts]
    return texts


def _closes_last(text: str) -> bool:
    depth = [text[: at + 1].count("(") - text[: at + 1].count(")") for at in range(len(text))]
    return depth.index(0, text.index("(")) == len(text) - 1


@given(st.lists(DIMS, min_size=1, max_size=4))
def test_names_stand_for_what_was_there_and_nothing_long_is_left_twice(dims: list[Dim]) -> None:
    shared = sum(dims, Dim.constant(0))
    lines = [f"k: {dim} flops, {dim * shared} bytes" for dim in dims] + ["at model.py:3, backward of `x`"]
    texts, named = name_formulas(lines)
    assert expand(texts, named) == lines
    assert name_formulas([*texts, *named])[1] == []
    names = [definition.split(" = ")[0] for definition in named]
    assert len(set(names)) == len(names)
    assert not set(names) & set(re.findall(r"\w+", " ".join(lines)))


def test_what_is_quoted_or_short_stays() -> None:
    long = f"max({'+'.join(['N'] * LONG)}, 1)"
    lines = [f"at model.py:3, backward of `{long}`"] * 2 + ["(B + 1) floordiv 2, (B + 1) floordiv 2"]
    assert name_formulas(lines) == (lines, [])
    assert name_formulas([f"{long} bytes", f"2*{long} bytes"])[0] == ["s1 bytes", "2*s1 bytes"]


@ts.jit
def layer(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32], b: ts.Tensor["N", ts.f32]) -> ts.Tensor:
    return ts.ops.softmax(ts.ops.gelu(x @ w + b))


def test_a_page_of_symbolic_sizes_has_the_formula_of_its_segments_once() -> None:
    layer(ts.ones((2, 3)), ts.ones((3, 4)), ts.ones((4,)))
    (account,) = layer.explain().specializations
    page = str(account)
    where = page.partition("  where:\n")[2]
    assert re.fullmatch(r"    s1 = .* // .*\n    s2 = .* // .*", where)
    assert max(map(len, page.partition("  groups:\n")[2].splitlines())) < 200
    assert "2162688" not in page.partition("  where:\n")[0]
    assert any("2162688" in line for line in account.report["kernels"])  # whole, for programs that read it
