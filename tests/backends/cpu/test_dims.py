"""Dims at run time: the machine's arithmetic gives what `Dim.evaluate` gives."""

from __future__ import annotations

import pytest

from tessera.ir.target.llvm.instructions import dim_value
from tessera.ir.target.llvm.text import ModuleText
from tessera.types.dim import parse_dim
from tests.backends.cpu.jit import build, targets

EXPRESSIONS = (
    "0",
    "7",
    "B",
    "B*S + 3*B - 2",
    "B - S",
    "4 - 3*B*S",
    "(B + 3) floordiv 4",
    "(B - 5) floordiv 4",
    "(B - 5) mod 4",
    "B floordiv S",
    "B mod S",
    "(B - 7) floordiv (S - 3)",
    "(B - 7) mod (S - 3)",
    "max(B, S + 1) - min(2*B, 9)",
    "((B + S) mod 5) * ((B*B) floordiv 3)",
)


def test_every_expression_has_the_value_that_evaluate_gives() -> None:
    module = ModuleText(targets()[0])
    for number, text in enumerate(EXPRESSIONS):
        f = module.function(f"f{number}", [("i64", "b"), ("i64", "s")], "i64")
        f.ret(dim_value(f, parse_dim(text), dict(zip("BS", f.arguments, strict=True))))
    run = build(module)
    for number, text in enumerate(EXPRESSIONS):
        for b in (0, 1, 3, 4, 9):
            for s in (0, 1, 2, 3, 8):
                assert run(f"f{number}", b, s) == parse_dim(text).evaluate({"B": b, "S": s}), (text, b, s)


@pytest.mark.parametrize(("b", "s"), [(0, 0), (5, 2)])
def test_known_sizes_need_no_instruction(b: int, s: int) -> None:
    f = ModuleText(targets()[0]).function("f", [], "i64")
    for text in ("B*S + 3", "(B + 3) floordiv 4", "max(B, S)"):
        value = dim_value(f, parse_dim(text), {"B": b, "S": s})
        assert value.text == str(parse_dim(text).evaluate({"B": b, "S": s}))
