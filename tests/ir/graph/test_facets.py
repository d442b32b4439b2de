"""Ops that lack a facet which a stage will ask for are refused when they are registered, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import INTEGERS, KEEP, OpSpec, PolicyRule
from tessera.ir.graph.batching.shared import batch_rule
from tessera.ir.graph.derivatives.shared import jvp_rule, transpose_rule
from tessera.ir.graph.ops import REGISTRY, check_facets, interval_of, policy_of, why_no_derivative
from tessera.ir.tile.facets import Library

SOFTMAX = REGISTRY["softmax"]


def change_facets(**facets: Any) -> OpSpec:
    given = {field.name: getattr(SOFTMAX, field.name) for field in fields(SOFTMAX) if field.init}
    return OpSpec(**given | facets)  # pyright: ignore[reportArgumentType]


_ATOM = {"decompose": None, "jvp": None, "lower": Library("none")}
"""What makes an op one that transforms cannot look into."""


@pytest.mark.parametrize(
    ("facets", "words"),
    [
        ({"policy": None}, "op `tgraph.softmax` lacks `policy`: what a numerics policy makes of it"),
        ({"interval": None}, "op `tgraph.softmax` lacks `interval`: bounds on its result"),
        ({"reference": None}, "op `tgraph.softmax` lacks `reference`: its meaning on NumPy arrays"),
        ({"decompose": None}, "op `tgraph.softmax` lacks a lowering: `lower`"),
        ({"samples": ()}, "op `tgraph.softmax` lacks `samples`: example operands"),
        ({"dtypes": ()}, "op `tgraph.softmax` lacks `dtypes`: those that its samples are tried in"),
        (_ATOM, "op `tgraph.softmax` lacks a derivative: `jvp` (a rule of `ir/graph/derivatives`), or `decompose`"),
        (_ATOM | {"jvp": "linear"}, "op `tgraph.softmax` lacks `transpose`: its `jvp` is 'linear', the op itself"),
        (_ATOM | {"transpose": "reduce:sum"}, "op `tgraph.softmax` lacks `jvp`: it has a `transpose`, so it is linear"),
        (_ATOM | {"jvp": "zero"}, "op `tgraph.softmax` lacks `batch`: a rule of `ir/graph/batching`"),
    ],
)
def test_an_op_without_a_facet_is_refused_by_name(facets: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_facets(change_facets(**facets))
    assert words in str(caught.value)


def test_a_contraction_without_an_accumulator_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="lacks `accumulate` in its policy"):
        check_facets(change_facets(policy=PolicyRule("contract")))


@pytest.mark.parametrize(
    "facets",
    [
        {"no_derivative": "it gives codes"},
        {"dtypes": INTEGERS},
        {"effects": frozenset({"io"})},
        {"jvp": "zero"},
        {"jvp": "linear", "transpose": "reduce:sum"},
    ],
)
def test_an_op_with_a_derivative_or_a_reason_is_registered(facets: dict[str, Any]) -> None:
    check_facets(change_facets(**_ATOM | {"batch": "loop"} | facets))


def test_a_reason_is_what_an_error_says() -> None:
    assert why_no_derivative(REGISTRY["argmax"]) == "an index has no tangent"
    assert why_no_derivative(REGISTRY["bitwise_and"]) == "integers and bools have no tangents"
    assert why_no_derivative(REGISTRY["io_callback"]) == "it has the effect `io`"
    assert why_no_derivative(REGISTRY["exp"]) == ""


def test_every_rule_that_a_facet_names_is_there() -> None:
    """Rules are read when they are first asked for: a facet that names none would be found by a user's program."""
    for spec in REGISTRY:
        for load in (jvp_rule, transpose_rule, batch_rule):
            rule = load(spec)
            assert rule is None or callable(rule), spec.name


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
