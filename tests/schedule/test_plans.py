"""What a plan promises: one kernel for each group, costs that add up, fewer bytes moved, choices that can be fixed."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera import ops
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table
from tessera.ir.graph.dialect import to_tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.host_program.builder import tensor_of
from tessera.ir.schedule.plan import fusions_in, programs_in
from tessera.types.dim import Dim
from tests.schedule.programs import run_schedule, simplify, tensor, trace

SIZES = {"M": 64, "K": 128, "N": 256}


def spine(k: str = "K") -> Tape:
    def program(x: Any, w: Any, b: Any) -> Any:
        return ops.softmax(ops.gelu(x @ w + b))

    return trace(program, tensor(f"M {k}"), tensor(f"{k} N"), tensor("N"))


def ops_named(module: ModuleOp, name: str) -> list[SpecOp]:
    return [
        op for program in programs_in(module) for op in program.walk() if isinstance(op, SpecOp) and op.name == name
    ]


def total(module: ModuleOp, name: str) -> Dim:
    found = Dim.constant(0)
    for fuse in fusions_in(module):
        found = found + fuse.value(name)
    return found


def test_every_group_is_one_kernel_and_one_call() -> None:
    groups = fusions_in(run_schedule(simplify(spine()), steps=8))
    module = run_schedule(simplify(spine()))
    kernels = [op for op in module.ops if op.name == "ttile.kernel"]
    assert [group.value("body") for group in groups] == [op.value("kernel") for op in ops_named(module, "tsched.call")]
    # A K of any size branches: two for one segment of it; for more a product, a join and a map in place of the first.
    assert len(kernels) == len({group.value("body") for group in groups}) == 5
    assert len(fusions_in(run_schedule(simplify(spine("128")), steps=7))) == 2


def test_costs_add_up_to_those_of_the_graph() -> None:
    graph = simplify(spine("128"))
    tape = to_tape(symbol_table(graph)["main"])
    expected = Dim.constant(0)
    for record in tape.records:
        operands = [tape.types[value] for value in record.operands]
        results = [tape.types[value] for value in record.results]
        cost = spec_of(record).cost
        if cost is not None:
            expected = expected + cost(operands, results, record.attributes).flops
    module = run_schedule(graph, steps=7)
    # Numbers made from nothing are repeated in every group that reads them, and cost next to nothing.
    assert abs((total(module, "flops") - expected).evaluate(SIZES)) <= 4
    for fuse in fusions_in(module):
        moved = Dim.constant(0)
        for value in (*fuse.operands, *fuse.results):
            moved = moved + tensor_of(value).bytes
        assert fuse.value("bytes") == moved
        slowest = max(fuse.value("flops").evaluate(SIZES) // 96, moved.evaluate(SIZES) // 12)
        assert fuse.value("time").evaluate(SIZES) == slowest


def test_fusion_moves_fewer_bytes_and_costs_no_more_operations() -> None:
    fused = run_schedule(simplify(spine("128")), steps=3)
    alone = run_schedule(simplify(spine("128")), steps=3, fusion=False)
    # Thirteen passes over the result become three: the product writes it, the softmax reads and writes it.
    assert str(total(fused, "bytes")) == "12*M*N + 512*M + 516*N"
    assert str(total(alone, "bytes")) == "52*M*N + 552*M + 516*N"
    assert len(fusions_in(fused)) == 2
    assert len(fusions_in(alone)) >= 10


@pytest.mark.parametrize(
    ("knob", "value"),
    [("contraction.block", (32, 64, 64)), ("map.tile", 64), ("attention.queries", 32), ("scan.tile", 16)],
)
def test_every_tile_choice_can_be_fixed_and_is_seen_in_the_plan(knob: str, value: Any) -> None:
    def program(x: Any) -> Any:
        heads = x.reshape(1, 2, -1, 8)
        return ops.cumsum(ops.exp(x @ ops.transpose(x)), axis=0), ops.attention(heads, heads, heads), ops.exp(x)

    tape = trace(program, tensor("A 16"))
    plain = run_schedule(simplify(tape), chooser=StaticChooser())
    fixed = run_schedule(simplify(tape), chooser=StaticChooser({knob: value}))
    before, after = (
        [
            (op.value("chosen"), op.value("source"))
            for op in ops_named(module, "tsched.tile")
            if op.value("knob") == knob
        ]
        for module in (plain, fixed)
    )
    assert before
    assert before[0][1] != "override"
    assert set(after) == {(value, "override")}


def test_an_unknown_choice_and_a_value_out_of_reach_are_errors() -> None:
    chooser = StaticChooser({"map.size": 3})
    run_schedule(simplify(spine()), chooser=chooser)
    with pytest.raises(OverrideError, match=r"`map\.size` is not a choice of this program"):
        chooser.check_overrides()
    with pytest.raises(OverrideError, match=r"`contraction\.block` cannot be"):
        run_schedule(simplify(spine()), chooser=StaticChooser({"contraction.block": (7, 7, 7)}))
