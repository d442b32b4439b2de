"""The table of scalar functions: entries are complete, name what there is, and incomplete ones are refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scripts import scalar_stubs
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, ScalarFunction, declare, resolve
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.target.llvm.instructions import TargetText
from tessera.ir.target.llvm.math import emit
from tessera.ir.target.llvm.text import ModuleText
from tessera.types import dtype as dt
from tessera.types.shape import TensorType

BASE: dict[str, Any] = {"name": "half", "summary": "Half of `x`.", "reference": "numpy:abs"}
F32 = TensorType((), dt.f32)


@pytest.mark.parametrize(
    ("facets", "words"),
    [
        ({"emit": "fneg"}, "scalar function `half` lacks `interval`: range proofs need a rule"),
        ({"interval": ANYTHING}, "scalar function `half` lacks `emit`: it takes floats, for which LLVM needs a writer"),
        ({"interval": ANYTHING, "emit": "fneg", "dtypes": ("f32", "i32")}, "`half` lacks `emit_integer`"),
        ({"interval": ANYTHING, "emit": "math_log:log"}, "`half` lacks `ulp`: an approximation states its largest"),
        ({"name": "exp"}, "scalar function `exp` is declared twice"),
    ],
)
def test_an_entry_without_what_it_needs_is_refused_by_name(facets: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words.split(":")[0].replace("(", r"\(")) as caught:
        declare(ScalarFunction(**{**BASE, **facets}))
    assert words in str(caught.value)
    assert "half" not in SCALAR_FUNCTIONS


@pytest.mark.parametrize("function", SCALAR_FUNCTIONS.values(), ids=lambda function: function.name)
def test_references_writers_and_ops_exist(function: ScalarFunction) -> None:
    assert callable(resolve(function.reference))
    for op in function.graph_ops:
        assert f"tgraph.{op.name}" in REGISTRY
        assert REGISTRY[op.name].dtypes == op.dtypes
    for dtype in (dt.f32, dt.f64, dt.i32, dt.u8, dt.bool_):
        if not function.emission_for(dtype):
            assert dtype.name not in function.dtypes
            continue
        f = ModuleText(TargetText(4, "x86-64", "")).function("f", [])
        element = "i1" if dtype.is_bool else {dt.f32: "float", dt.f64: "double"}.get(dtype, f"i{dtype.bits}")
        zero = f.const(element, 0.0 if dtype.is_float else 0, 4)
        assert emit(f, function.name, [zero] * function.arity, dtype).lanes == 4


@pytest.mark.parametrize("function", SCALAR_FUNCTIONS.values(), ids=lambda function: function.name)
def test_intervals_hold_what_references_give(function: ScalarFunction) -> None:
    rng = np.random.default_rng(0)
    rule = function.interval.rule if function.interval is not None else None
    if rule is None or "f32" not in function.dtypes:
        return
    for low, high in ((-2.0, 3.0), (0.25, 0.5), (1.0, 90.0), (-7.0, -1.0)):
        values = [np.append(rng.uniform(low, high, 200), (low, high)) for _ in range(function.arity)]
        with np.errstate(all="ignore"):
            found = np.asarray(resolve(function.reference)(*values), np.float64)
        bounds = tuple(Interval(low, high) for _ in values)
        made = rule(IntervalQuery(bounds, (F32,) * function.arity, {}, F32))
        slack = 1e-9 * max(1.0, made.magnitude if math.isfinite(made.magnitude) else 1.0)
        inside = (found >= made.low - slack) & (found <= made.high + slack)
        assert np.all(inside | (np.isnan(found) & made.may_be_nan)), f"{function.name} on [{low}, {high}]: {made}"


@pytest.mark.parametrize("function", SCALAR_FUNCTIONS.values(), ids=lambda function: function.name)
def test_a_function_that_keeps_zero_gives_zero_for_zero(function: ScalarFunction) -> None:
    if function.arity == 1 and "f32" in function.dtypes and not function.is_predicate:
        with np.errstate(all="ignore"):
            is_zero = bool(resolve(function.reference)(np.zeros(())) == 0)
        assert function.keeps_zero == is_zero, f"`{function.name}` of 0 is 0 or not: say so by `keeps_zero`"


def test_stubs_show_what_the_table_makes() -> None:
    for path, text in scalar_stubs.render().items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/scalar_stubs.py"
