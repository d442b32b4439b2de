"""Compiled kernels called in every order that keeps the edges of their program: a thousand orders, the same bits."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.interpret import calling
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule.host_program.launch_order import order_of
from tessera.ir.schedule.passes.reorder_launches import ReorderLaunches
from tessera.runtime.launch import LoadedExecutable
from tests.oracles.any_order import compiled_in_any_order
from tests.oracles.launch_orders import reduce_order

WIDE = 16


def block(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, up: Any, down: Any) -> Any:
    q, k, v = x @ wq, x @ wk, x @ wv
    h = x + ops.softmax(q @ ops.transpose(k), axis=-1) @ v @ wo
    return h + ops.relu(h @ up) @ down


def branches(x: Any, a: Any, b: Any, c: Any) -> Any:
    made = [ops.relu(x @ side) @ ops.transpose(side) for side in (a, b, c)]
    return made[0] @ ops.transpose(made[1]), ops.softmax(made[2]), made[0] + made[1] * made[2]


def draws(x: Any, a: Any, key: Any) -> Any:
    first, second = ts.random.split(key)
    return x @ a + ts.random.normal(first, (8, WIDE)), ts.random.dropout(x, second, 0.5) @ a


def cache_step(cache: Any, q: Any, rows: Any) -> Any:
    grown = cache.append(rows, rows * 2.0)
    return ops.attention(q, grown), grown.append(rows * 3.0, rows).length, grown.K


def loops(x: Any, a: Any, b: Any) -> Any:
    turned = ts.fori_loop(0, 3, lambda i, s: (ops.softmax(s[1] @ a), s[0] * 0.5 + s[1] @ b), (x, x + 1.0))
    chosen = ts.cond(x.sum() > 0, lambda y: ops.softmax(y @ a) @ b, lambda y: y @ b + y @ a, x)
    carried, stacked = ts.scan(lambda s, row: (s + row, ops.softmax(s * row)), x[0], x @ a)
    return turned[0] + chosen, turned[1], carried, stacked


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [(rng.standard_normal(shape) * 0.3).astype(np.float32) for shape in shapes]


SQUARE = (WIDE, WIDE)
PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any], int]] = {
    "block": (block, arrays((8, WIDE), *[SQUARE] * 6), 1000),
    "branches": (branches, arrays((8, WIDE), *[SQUARE] * 3), 150),
    "draws": (draws, [*arrays((8, WIDE), SQUARE), np.asarray(ts.random.key(3))], 50),
    "cached": (cache_step, [ts.KVCache.empty(1, 2, 8, 4), *arrays((1, 2, 1, 4), (1, 2, 2, 4))], 50),
    "loops": (loops, arrays((8, WIDE), SQUARE, SQUARE), 50),
}


def leaves(value: Any) -> list[bytes]:
    if isinstance(value, tuple | list):
        return [one for part in value for one in leaves(part)]  # pyright: ignore[reportUnknownVariableType]
    return [np.asarray(value).tobytes()]


def parts(value: Any) -> list[Any]:
    return [value.K, value.V, value.length] if isinstance(value, ts.KVCache) else [value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_drawn_order_gives_the_bits_of_the_program(name: str) -> None:
    function, given, seeds = PROGRAMS[name]
    jitted = ts.jit(function)
    expected = leaves(jitted(*given))
    flat = [np.asarray(part) for one in given for part in parts(one)]
    program = compiled_in_any_order(jitted.trace(*given).tape)
    program.order.check()
    for seed in range(seeds):
        assert leaves(program.run(*flat, seed=seed)) == expected, f"seed {seed}"
    assert len({tuple(program.order.draw(Random(seed))) for seed in range(20)}) > 1


def test_what_is_written_over_is_read_before_in_every_order() -> None:
    _, given, _ = PROGRAMS["cached"]
    jitted = ts.jit(cache_step, donate={"cache"})
    program = compiled_in_any_order(jitted.trace(*given).tape)
    program.order.check()
    assert any("donated argument" in str(place) for node in program.order.nodes for place in node.writes)

    def fresh() -> list[Any]:
        return [np.array(part) for one in given for part in parts(one)]

    expected = leaves(ts.jit(cache_step)(*given))
    for seed in range(60):
        assert leaves(program.run(*fresh(), seed=seed)) == expected


def test_what_the_world_sees_keeps_its_order() -> None:
    seen: list[float] = []

    def note(value: Any) -> None:
        seen.append(float(np.asarray(value).reshape(-1)[0]))

    def call_back(x: Any, a: Any) -> Any:
        first = x @ a
        ts.io_callback(note, first)
        second = ops.softmax(first) @ a
        ts.io_callback(note, second)
        third = ops.softmax(x) @ a
        ts.io_callback(note, third)
        return first + third

    given = arrays((8, WIDE), SQUARE)
    jitted = ts.jit(call_back)
    expected = leaves(jitted(*given))
    told, tape = list(seen), jitted.trace(*given).tape
    program = compiled_in_any_order(tape)
    for seed in range(40):
        seen.clear()
        with calling(tape.functions):
            assert leaves(program.run(*given, seed=seed)) == expected
        assert seen == told


@pytest.mark.parametrize("seed", [1, 2])
def test_host_programs_are_written_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launches of an executable in another order, from the text of the host program to machine code."""
    made = schedule.pipeline

    def reorder(*given: Any, **options: Any) -> Any:
        return (*made(*given, **options), ReorderLaunches(seed))

    given = PROGRAMS["branches"][1]
    expected = leaves(ts.jit(branches)(*given))
    tape = ts.jit(branches).trace(*given).tape
    plain = lower(tape, Options()).host
    monkeypatch.setattr(schedule, "pipeline", reorder)
    assert lower(tape, Options()).host != plain
    assert leaves(LoadedExecutable(compile_tape(tape, Options()))(*given)) == expected


def test_a_kernel_stays_behind_the_look_at_its_positions() -> None:
    def pick(x: Any, at: Any) -> Any:
        return ops.take(x, at, axis=0), x * 2.0

    given = [np.zeros((8, 4), np.float32), np.zeros(3, np.int64)]
    lowering = lower(ts.jit(pick).trace(*given).tape, Options.of(debug=True))
    nodes = order_of(lowering.program, symbol_table(lowering.module)).nodes
    (look,) = (node.number for node in nodes if node.what == "callback")
    (reader,) = (node for node in nodes if node.what == "call" and node.name.startswith("index") and node.number > look)
    assert look in reader.needs


def test_the_order_stands_below_the_host_program() -> None:
    function, given, _ = PROGRAMS["block"]
    text = ts.jit(function).lower(*given).schedule
    assert "// 9 launches, 3 at a time at most, 7 one after the other at least" in text


def test_an_arc_left_out_is_refused_and_shows() -> None:
    function, given, _ = PROGRAMS["block"]
    jitted = ts.jit(function)
    expected = leaves(jitted(*given))
    program = compiled_in_any_order(jitted.trace(*given).tape, Options())
    nodes = program.order.nodes
    calls = [node.number for node in nodes if node.what == "call"]
    first, second = next(
        edge for edge in sorted(reduce_order(program.order).edges) if edge[0] in calls and edge[1] in calls
    )
    program.forget((first, second))
    with pytest.raises(ScheduleError, match=f"`{nodes[first]}` and `{nodes[second]}` both touch workspace"):
        program.order.check()
    assert any(leaves(program.run(*given, seed=seed)) != expected for seed in range(60))
