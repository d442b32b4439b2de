"""Ops that lack a facet which a stage will ask for are refused when they are registered, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import KEEP, OpSpec, PolicyRule
from tessera.ir.graph.ops import REGISTRY, check_facets, interval_of, policy_of

SOFTMAX = REGISTRY["softmax"]


def change_facets(**facets: Any) -> OpSpec:
    return OpSpec(**{field.name: getattr(SOFTMAX, field.name) for field in fields(SOFTMAX)} | facets)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("facets", "words"),
    [
        ({"policy": None}, "op `tgraph.softmax` lacks `policy`: what a numerics policy makes of it"),
        ({"interval": None}, "op `tgraph.softmax` lacks `interval`: bounds on its result"),
        ({"reference": None}, "op `tgraph.softmax` lacks `reference`: its meaning on NumPy arrays"),
        ({"decompose": None}, "op `tgraph.softmax` lacks a lowering: `lower`"),
        ({"samples": ()}, "op `tgraph.softmax` lacks `samples`: example operands"),
        ({"dtypes": ()}, "op `tgraph.softmax` lacks `dtypes`: those that its samples are tried in"),
    ],
)
def test_an_op_without_a_facet_is_refused_by_name(facets: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_facets(change_facets(**facets))
    assert words in str(caught.value)


def test_a_contraction_without_an_accumulator_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="lacks `accumulate` in its policy"):
        check_facets(change_facets(policy=PolicyRule("contract")))


def test_every_op_has_its_facets() -> None:
    for spec in REGISTRY:
        check_facets(spec)


def test_facets_that_a_lowering_implies_need_not_be_written() -> None:
    transpose, where, full = (REGISTRY[name] for name in ("transpose", "where", "full"))
    assert transpose.policy is None
    assert policy_of(transpose) is KEEP
    assert policy_of(full) is KEEP
    assert policy_of(where) is KEEP
    assert policy_of(REGISTRY["tril"]).is_arithmetic
    found = interval_of(transpose)
    assert found is not None
    assert found is not ANYTHING
    assert found.is_exact
