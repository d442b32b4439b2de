"""How transforms find the rules of an op: its facets, which name functions that are loaded when they are first asked.

A facet is "module:function" of `ir/graph/derivatives`, or the name of a rule that many ops share: a `jvp` of "linear"
is the op itself on tangents, "multilinear" the sum of the op with each operand replaced by its tangent, "zero" that of
an op that is constant between its steps. An op without `jvp` is differentiated through its `decompose`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tessera.ir.base.spec import Attributes, OpSpec
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

PACKAGE = "tessera.ir.graph.derivatives"


@frozen
class Linear:
    """An operand that depends on tangents, as a `transpose` rule sees it: its type and nothing else."""

    type: TensorType


@frozen
class Applied:
    """An op as a `jvp` rule sees it: its operands and their tangents (None for zero), its results and attributes."""

    operands: Sequence[Any]
    tangents: Sequence[Any]
    results: Sequence[Any]
    attributes: Attributes
    spec: OpSpec


@cache
def load_rule(facet: str) -> Callable[..., Any]:
    """The function that a facet names."""
    module, _, name = facet.rpartition(":")
    return getattr(importlib.import_module(f"{PACKAGE}.{module or 'shared'}"), name)


def jvp_rule(spec: OpSpec) -> Callable[..., Any] | None:
    """The `jvp` of an op, or None where it is differentiated through its parts."""
    return None if spec.jvp is None else load_rule(spec.jvp)


def transpose_rule(spec: OpSpec) -> Callable[..., Any] | None:
    """The `transpose` of an op, or None where it has none of its own."""
    return None if spec.transpose is None else load_rule(spec.transpose)
