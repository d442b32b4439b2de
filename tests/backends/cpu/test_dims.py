"""Dims at run time: the machine's arithmetic gives what `Dim.evaluate` gives."""

from __future__ import annotations

import re

import pytest

from tessera.ir.target.llvm.instructions import Value, dim_value
from tessera.ir.target.llvm.text import ModuleText
from tessera.types.dim import Dim, atom_dim, parse_dim
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


def test_a_part_that_is_there_many_times_is_computed_once() -> None:
    nested = Dim.symbol("B")
    for divisor in range(2, 12):
        nested = atom_dim("floordiv", nested * nested + nested, Dim.of(divisor))
    f = ModuleText(targets()[0]).function("f", [("i64", "b")], "i64")
    f.ret(dim_value(f, nested, {"B": f.arguments[0]}))
    assert len(re.findall(" [su]div ", f.text())) == 10


@pytest.mark.parametrize("b", [3, 30])
def test_a_part_is_used_again_only_where_it_was_computed_on_every_path(b: int) -> None:
    module, whole, half, third = ModuleText(targets()[0]), *map(parse_dim, ("B mod 7", "B floordiv 2", "B floordiv 3"))
    f = module.function("f", [("i64", "b")], "i64")
    size = f.arguments[0]

    def dim(wanted: Dim) -> Value:
        return dim_value(f, wanted, {"B": size}, f.parts)

    first = dim(whole)
    (chosen,) = f.if_(f.icmp("slt", size, 9), lambda: dim(half), lambda: dim(third + whole))
    (counted,) = f.loop(0, size, 1, lambda at, sums: [f.add(sums[0], dim(third))], [f.const_i(0)])
    (grown,) = f.while_(
        [f.const_i(0)], lambda sums: f.icmp("slt", sums[0], dim(half)), lambda sums: [f.add(sums[0], dim(third + 1))]
    )
    f.ret(f.add(f.add(f.add(first, chosen), f.add(counted, grown)), dim(half + third + whole)))
    assert len(re.findall("[su]rem", f.text())) == 1
    rest, trips = b % 7, -(-(b // 2) // (b // 3 + 1))
    picked = b // 2 if b < 9 else b // 3 + rest
    wanted = rest + picked + b * (b // 3) + trips * (b // 3 + 1) + b // 2 + b // 3 + rest
    assert build(module)("f", b) == wanted


def test_what_sizes_decide_is_divided_once_and_before_loops() -> None:
    module = ModuleText(targets()[0])
    f = module.function("f", [("i64", "b")], "i64")
    size = f.add(f.arguments[0], 1)
    f.hoist({"B": size})
    nested, moving = parse_dim("(B floordiv 3 + 5) mod 7"), parse_dim("(B floordiv 3 + i) floordiv 5")

    def inside(at: Value, sums: list[Value]) -> list[Value]:
        return [f.add(sums[0], dim_value(f, nested + moving, {"B": size, "i": at}))]

    (total,) = f.loop(0, size, 1, inside, [f.const_i(0)])
    f.ret(f.add(total, dim_value(f, nested, {"B": f.arguments[0]})))  # another B
    before, loop, after = re.split(r"^L\d+:", f.text(), maxsplit=2, flags=re.M)
    assert [len(re.findall(" [su](?:div|rem) ", part)) for part in (before, loop, after)] == [2, 1, 2]
    for b in (0, 4, 29):
        sizes = [{"B": b + 1, "i": at} for at in range(b + 1)]
        wanted = sum((nested + moving).evaluate(env) for env in sizes) + nested.evaluate({"B": b})
        assert build(module)("f", b) == wanted


@pytest.mark.parametrize("kind", ["floordiv", "mod"])
def test_signed_quotients_by_powers_of_two_need_no_division(kind: str) -> None:
    module, dim = ModuleText(targets()[0]), atom_dim(kind, parse_dim("B - 11"), Dim.of(8))
    f = module.function("f", [("i64", "b")], "i64")
    f.ret(dim_value(f, dim, {"B": f.arguments[0]}))
    assert not re.search("div|rem", f.text())
    assert [build(module)("f", b) for b in range(20)] == [dim.evaluate({"B": b}) for b in range(20)]
