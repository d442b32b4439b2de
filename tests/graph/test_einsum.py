"""einsum: against numpy.einsum on fixed and random equations, and its failures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.types.dtype import bf16, f8e4m3, f32
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, run_decomposition, tensor


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """One to three operands over a few labels, repeats allowed, and a result of some of the labels."""
    labels = "abcd"
    sizes = {label: draw(st.integers(1, 3)) for label in labels}
    operands = draw(st.lists(st.text(labels, min_size=0, max_size=3), min_size=1, max_size=3))
    present = sorted(set("".join(operands)))
    result = draw(st.permutations(present))[: draw(st.integers(0, len(present)))]
    return f"{','.join(operands)}->{''.join(result)}", [tuple(sizes[label] for label in text) for text in operands]


@given(equations())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_any_equation_means_what_numpy_says(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    rng = np.random.default_rng(len(equation))
    arrays = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
    np.testing.assert_allclose(
        run_decomposition("einsum", *arrays, equation=equation), np.einsum(equation, *arrays), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        ("...i,...i->...", [(2, 3, 4), (3, 4)]),
        ("i...,...j->...ij", [(2, 1, 5), (3, 5, 4)]),
        ("ii...", [(3, 3, 2)]),
        ("a,b,c->cab", [(2,), (3,), (4,)]),
        (" ij , jk -> ki ", [(2, 3), (3, 4)]),
    ],
)
def test_dots_spaces_and_implicit_results(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    np.testing.assert_allclose(run_decomposition("einsum", *arrays, equation=equation), np.einsum(equation, *arrays))


def test_free_dims_stay_free_and_integers_wrap() -> None:
    rules = Rules()
    q, k = tensor("B", "Q", "H", "D", dtype=bf16), tensor("B", "K", "H", "E", dtype=bf16)
    (out,) = infer("einsum", q, k, equation="bqhd,bkhd->bhqk", rules=rules)
    assert str(out) == "[B, H, Q, K] bf16"
    assert len(rules.guards) == 1
    a = np.full((3, 3), 100, np.int8)
    np.testing.assert_array_equal(run_decomposition("einsum", a, a, equation="ij,jk->ik"), a @ a)
    np.testing.assert_array_equal(run_decomposition("einsum", a, equation="ij->j"), a.sum(0).astype(np.int8))


def test_einsum_says_what_is_wrong() -> None:
    a, b = tensor(2, 3, dtype=f32), tensor(4, 5, dtype=f32)
    for equation, message in (
        ("ij,jk->ik", r"`j` has two sizes \(3 and 4\)"),
        ("ij->i", "names 1 operands, got 2"),
        ("ijk,kl->l", "gives `ijk` 3 axes, the operand has 2"),
        ("ij,kl->im", "`m` in its result and in no operand"),
        ("ij,kl->ii", "repeats a label"),
        ("i1,kl->i", "`1` where a letter belongs"),
        ("i...,k...->ik", "drops the axes"),
    ):
        with pytest.raises(RuleError, match=message):
            infer("einsum", a, b, equation=equation)
    with pytest.raises(RuleDTypeError, match="cannot multiply"):
        infer("einsum", a, tensor(3, 4, dtype=f8e4m3), equation="ij,jk->ik")
