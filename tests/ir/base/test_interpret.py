"""The interpreter and tapes: control flow, sizes, handlers for ops that are no functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.error import Span
from tessera.ir.base.build import block_of, tape_of
from tessera.ir.base.dialect_of import make
from tessera.ir.base.interpret import HANDLERS, InterpretError, Run, handles, interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape, tape_text
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.types import span_of
from tessera.ir.base.verify import symbol_table, verify
from tessera.types import dtype as dtypes
from tests.ir.base import toy


@pytest.fixture(autouse=True)
def dialect() -> None:
    toy.use_toy()


def scale_tape(by: float) -> Tape:
    kind = toy.tensor("B")
    return Tape([0], ["v"], [Record("toy.scale", (0,), {"by": by}, (1,))], [1], [kind, kind])


def choosing() -> Tape:
    """x, chosen -> scale(cond(chosen, x; x * 2, x * 3), 10)"""
    kind, flag = toy.tensor("B"), toy.tensor(dtype=dtypes.bool_)
    cond = Record("toy.cond", (1, 0), {"then": scale_tape(2.0), "other": scale_tape(3.0)}, (2,), Span("model.py", 4))
    scale = Record("toy.scale", (2,), {"by": 10.0}, (3,), Span("model.py", 5))
    return Tape([0, 1], ["x", "params['flag']"], [cond, scale], [3], [kind, flag, kind, kind])


def function_of(tape: Tape) -> SpecOp:
    return make(toy.FUNC, values={"symbol": "f"}, types=(), regions=[block_of(tape, "toy.return")])


def test_a_tape_with_control_flow_becomes_regions_and_a_tape_again() -> None:
    function = function_of(choosing())
    module = ModuleOp([function])
    verify(module)
    again = tape_of(function.regions[0].block, ("x", "params['flag']"))
    assert tape_text(again) == tape_text(choosing())
    cond = next(op for op in module.walk() if op.name == "toy.cond")
    assert span_of(cond) == Span("model.py", 4)
    assert print_module(parse_module(print_module(module))).count("toy.yield") == 2


@pytest.mark.parametrize(("chosen", "factor"), [(True, 20), (False, 30)])
def test_control_flow_runs(chosen: bool, factor: int) -> None:
    x = np.arange(5, dtype=np.float32)
    (result,) = interpret(function_of(choosing()), x, np.array(chosen))
    np.testing.assert_array_equal(result, x * factor)


def test_the_shape_rule_sees_tapes_in_the_verifier() -> None:
    tape = choosing()
    wrong = scale_tape(2.0)
    wrong.types[:] = [toy.tensor("C")] * 2
    tape.records[0].attributes["other"] = wrong  # pyright: ignore[reportIndexIssue]
    with pytest.raises(Exception, match="both ways of `cond` give the same types"):
        verify(ModuleOp([function_of(tape)]))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([np.zeros(3, np.float32)], "takes 2 arguments, got 1"),
        ([np.zeros((3, 3), np.float32), np.array(True)], "got an array of rank 2"),
        ([np.zeros(3, np.float64), np.array(True)], "got an array of float64"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arrays: Sequence[Any], words: str) -> None:
    with pytest.raises(InterpretError, match=words):
        interpret(function_of(choosing()), *arrays)


T = "!tgraph.tensor<[B], f32>"


def test_guards_are_checked() -> None:
    guards = '{guards = [[dim<B>, dim<2*C>, "why"]]}'
    text = f"toy.func @f(%x: {T}, %y: !tgraph.tensor<[C], f32>) attributes {guards} {{\n toy.return\n}}"
    function = symbol_table(parse_module(text))["f"]
    interpret(function, np.zeros(4, np.float32), np.zeros(2, np.float32))
    with pytest.raises(InterpretError, match="why: B is 5"):
        interpret(function, np.zeros(5, np.float32), np.zeros(2, np.float32))


def test_a_dialect_may_bring_handlers_of_its_own() -> None:
    @handles("toy.shout")
    def shout(run: Run, op: SpecOp) -> Sequence[Any]:
        run.world.setdefault("said", []).append(run.operands(op)[0].sum())
        return run.operands(op)

    try:
        text = f"toy.func @f(%x: {T}) {{\n %0 = toy.shout %x : ({T}) -> {T}\n toy.return\n}}"
        world: dict[str, Any] = {}
        interpret(symbol_table(parse_module(text))["f"], np.ones(3, np.float32), world=world)
        assert world == {"said": [3.0]}
    finally:
        del HANDLERS["toy.shout"]


def test_an_op_without_meaning_says_so() -> None:
    load = "%0 = toy.load %x {shape = [2]} : (!ttile.buffer<[4], f32>) -> !ttile.tile<[2], f32>"
    text = f"toy.func @f(%x: !ttile.buffer<[4], f32>) {{\n {load}\n toy.return\n}}"
    function = symbol_table(parse_module(text))["f"]
    with pytest.raises(InterpretError, match=r"`toy.load` has no reference"):
        Run().block(function.regions[0].block, [np.zeros(4)])
