"""The text builder: constant folding, control flow, memory, declarations."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.target.llvm.instructions import TargetText, Value, constant_of
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tests.backends.cpu.jit import build, targets

ANY = TargetText(8, "haswell", "+avx2")


@pytest.fixture(params=targets(), ids=lambda target: f"lanes{target.lanes}")
def module(request: pytest.FixtureRequest) -> ModuleText:
    return ModuleText(request.param)


def scratch() -> FunctionText:
    return ModuleText(ANY).function("f", [("i64", "n")])


def test_known_indices_are_constants_without_a_line() -> None:
    f = scratch()
    (n,) = f.arguments
    assert [constant_of(x) for x in (f.add(2, 3), f.mul(4, 5), f.sdiv(-7, 2), f.srem(-7, 2), f.ceil_div(7, 3))] == [
        5, 20, -3, -1, 3,
    ]  # fmt: skip
    assert f.add(n, 0) is n
    assert f.mul(1, n) is n
    assert f.select(f.icmp("slt", 1, 2), n, f.const_i(0)) is n
    f.ret()
    assert len(f.text().splitlines()) == 4


def test_a_loop_carries_values_and_skips_an_empty_range(module: ModuleText) -> None:
    f = module.function("total", [("i64", "lo"), ("i64", "hi"), ("i64", "step")], "i64")
    lo, hi, step = f.arguments
    total, turns = f.loop(
        lo, hi, step, lambda i, seen: [f.add(seen[0], i), f.add(seen[1], 1)], [f.const_i(0), f.const_i(0)]
    )
    f.ret(f.add(f.mul(turns, 1000), total))
    run = build(module)
    for case in ((0, 10, 1), (3, 20, 7), (5, 5, 1), (6, 5, 1)):
        expected = list(range(*case))
        assert run("total", *case) == len(expected) * 1000 + sum(expected)


def test_branches_merge_and_may_return(module: ModuleText) -> None:
    f = module.function("pick", [("i64", "x")], "i64")
    (x,) = f.arguments
    f.if_(f.icmp("slt", x, 0), lambda: f.ret(f.const_i(-1)))
    (doubled,) = f.if_(f.icmp("slt", x, 10), lambda: f.mul(x, 2), lambda: f.add(x, 100))
    f.ret(doubled)
    run = build(module)
    assert [run("pick", x) for x in (-5, 4, 10)] == [-1, 8, 110]


def test_while_and_switch(module: ModuleText) -> None:
    f = module.function("steps", [("i64", "n"), ("ptr", "kind")], "i64")
    n, kind = f.arguments

    def halve_or_grow(values: list[Value]) -> list[Value]:
        x, count = values
        (after,) = f.if_(f.icmp("eq", f.srem(x, 2), 0), lambda: f.sdiv(x, 2), lambda: f.add(f.mul(x, 3), 1))
        return [after, f.add(count, 1)]

    _, count = f.while_([n, f.const_i(0)], lambda values: f.icmp("ne", values[0], 1), halve_or_grow)
    f.switch(
        n,
        {6: lambda: f.store(f.const_i(60), kind), 7: lambda: f.store(f.const_i(70), kind)},
        lambda: f.store(f.const_i(0), kind),
    )
    f.ret(count)
    run = build(module)
    out = np.zeros(1, np.int64)
    seen = [(run("steps", x, out), int(out[0])) for x in (6, 7, 8)]
    assert seen == [(8, 60), (16, 70), (3, 0)]


def test_a_known_mask_writes_no_more_than_its_lanes_of_what_was_truncated(module: ModuleText) -> None:
    lanes = module.target.lanes
    for held in range(1, lanes + 1):
        f = module.function(f"narrow{held}", [("ptr noalias", "to"), ("ptr noalias", "from")])
        to, source = f.arguments
        f.masked_store(f.cast("trunc", f.load(source, f"<{lanes} x i32>"), "i16"), to, f.lane_mask(held, lanes))
        f.ret()
    run = build(module)
    from_ = np.arange(lanes, dtype=np.int32) + 5
    for held in range(1, lanes + 1):
        to_ = np.full(lanes, -7, np.int16)
        run(f"narrow{held}", to_, from_)
        np.testing.assert_array_equal(to_, np.where(np.arange(lanes) < held, from_, -7))


def test_masked_memory_touches_only_its_lanes(module: ModuleText) -> None:
    lanes = module.target.lanes
    f = module.function("copy", [("ptr noalias", "to"), ("ptr noalias", "from"), ("i64", "n")])
    to, source, n = f.arguments
    mask = f.lane_mask(n, lanes)
    type_ = f"<{lanes} x float>"
    loaded = f.masked_load(source, type_, mask, f.const("float", 7.0, lanes))
    f.masked_store(f.op("fadd", loaded, f.const("float", 1.0, lanes)), to, mask)
    f.ret()
    run = build(module)
    for count in range(lanes + 1):
        to_, from_ = np.zeros(lanes, np.float32), np.arange(lanes, dtype=np.float32)
        run("copy", to_, from_, count)
        np.testing.assert_array_equal(to_, np.where(np.arange(lanes) < count, from_ + 1, 0))


def test_outlined_functions_are_written_once_and_tables_shared(module: ModuleText) -> None:
    def body(g: FunctionText) -> None:
        table = g.module.constant("i64", [10, 20, 30])
        g.ret(g.load(g.gep(table, g.arguments[0], "i64"), "i64"))

    names = [module.outline("look", "look", [("i64", "i")], body, "i64") for _ in range(2)]
    assert names[0] == names[1]
    f = module.function("twice", [("i64", "i")], "i64")
    first = f.call(names[0], [f.arguments[0]], "i64")
    f.ret(f.add(first, f.call(names[0], [f.const_i(0)], "i64")))
    assert module.constant("i64", [10, 20, 30]) == module.constant("i64", [10, 20, 30])
    assert build(module)("twice", 2) == 40


def test_mistakes_are_told() -> None:
    module = ModuleText(ANY)
    f = module.function("f", [])
    f.call("g", [f.const_i(1)])
    with pytest.raises(ValueError, match="declared twice"):
        f.call("g", [])
    with pytest.raises(ValueError, match="no return"):
        f.text()
    with pytest.raises(ValueError, match="already defined"):
        module.function("f", [])
    with pytest.raises(ValueError, match="became"):
        f.loop(0, 4, 1, lambda i, values: [], [f.const_i(0)])


def test_shared_functions_are_modules_of_their_own() -> None:
    def body(g: FunctionText) -> None:
        g.ret(g.add(g.arguments[0], 1))

    texts: list[dict[str, str]] = []
    for _ in range(2):
        module = ModuleText(ANY, shares=True)
        f = module.function("f", [("i64", "n")], "i64")
        names = [module.outline(("next", 1), "next", [("i64", "n")], body, "i64", shared=True) for _ in range(2)]
        assert names[0] == names[1]
        f.ret(f.call(names[0], [f.arguments[0]], "i64"))
        assert f"declare hidden i64 @{names[0]}(i64)" in module.text()
        assert "define internal" not in module.text()
        texts.append(module.shared_modules())
    assert texts[0] == texts[1]
    ((name, text),) = texts[0].items()
    assert f"define i64 @{name}(" in text
