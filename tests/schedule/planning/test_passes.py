"""Passes over plans of several ranks: what they write is what is planned, and what was there stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.passes.attach_choices import AttachChoices
from tessera.ir.schedule.passes.expand_pipelines import ExpandPipelines
from tessera.ir.schedule.passes.materialize_groups import MaterializeGroups
from tessera.ir.schedule.passes.plan_collectives import PlanCollectives
from tessera.ir.schedule.planning.collectives import candidate_plans
from tessera.ir.schedule.planning.pipelines import Pipeline, parse_action, pipeline_of, run_orders
from tessera.ir.schedule.typed_ops import CollectiveOp, FuseOp, TileOp
from tessera.types.topology import topology_of
from tests.schedule.planning.test_pipelines import pipelines

load_dialects()


@given(pipelines())
def test_expanded_pipelines_run_as_their_schedule_says(pipe: Pipeline) -> None:
    numbers = f"stages = {pipe.stages}, microbatch = {pipe.microbatch}, chunks = {pipe.chunks}"
    text = f'tsched.pipeline @train {{axis = "pp", schedule = "{pipe.schedule}", {numbers}}}'
    module = parse_module(text)
    ExpandPipelines().run(module)
    module = parse_module(print_module(module))
    verify(module)
    (op,) = module.ops
    assert isinstance(op, SpecOp)
    orders = [[parse_action(one) for one in order] for order in op.value("orders")]
    assert pipeline_of(op) == pipe
    assert run_orders(pipe, orders).bubble_fraction == pipe.bubble_fraction
    before = print_module(module)
    ExpandPipelines().run(module)
    assert print_module(module) == before


@given(st.lists(st.tuples(st.sampled_from(("a", "b")), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_choices_are_written_on_the_groups_that_are_meant_and_nowhere_else(
    groups: list[tuple[str, bool, bool]],
) -> None:
    lines: list[str] = []
    for at, (body, has_tile, has_collective) in enumerate(groups):
        lines.append(f"%g{at} = tsched.fuse @{body}(%x)")
        lines += [f"tsched.tile %g{at} candidates = [[64, 64], [32, 32]]"] if has_tile else []
        lines += [f'tsched.collective %g{at} {{pattern = "all_reduce"}}'] if has_collective else []
    text = "tsched.module {\n" + "\n".join(lines) + "\ntsched.return\n}"
    module = parse_module(text)
    AttachChoices((32, 32), "ring", group="a").run(module)
    verify(module)
    left = parse_module(print_module(module))
    for op in list(left.walk()):
        owner = getattr(op.operands[0], "owner", None) if isinstance(op, TileOp | CollectiveOp) else None
        is_meant = isinstance(owner, FuseOp) and owner.body == "a"
        if isinstance(op, CollectiveOp):
            assert op.algo == ("ring" if is_meant else "")
            op.set_value("algo", "")
        if isinstance(op, TileOp):
            assert (op.chosen, op.source) == (((32, 32), "autotune") if is_meant else (None, ""))
    tiles = [op for op in left.walk() if isinstance(op, TileOp) and op.chosen is not None]
    assert len(tiles) == sum(body == "a" for body, _, _ in groups)
    for op in tiles:
        if op.candidates:
            op.set_value("chosen", None)
            op.set_value("source", "")
        else:
            op.detach()
            op.erase()
    assert print_module(left) == print_module(parse_module(text)), "nothing else was changed"


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=5))
def test_functions_have_the_groups_that_are_materialized_and_the_plan_stays(
    groups: list[tuple[int, int, bool]],
) -> None:
    lines: list[str] = []
    for at, (operands, tiles, is_kernel) in enumerate(groups):
        names = ", ".join(f"%x{number}" for number in range(operands))
        lines.append(f"%g{at} = tsched.fuse @k{at % 2}({names})")
        lines += [
            f'tsched.tile %g{at} chosen = {tile} {{source = "default", knob = "k{tile}"}}' for tile in range(tiles)
        ]
        lines += [f"%f{at} = tsched.materialize %g{at} : !tsched.func"] if is_kernel else []
    module = parse_module("tsched.module {\n" + "\n".join(lines) + "\ntsched.return\n}")
    verify(module)
    (plan,) = module.ops
    before = print_module(plan)
    MaterializeGroups().run(module)
    verify(module)
    assert print_module(plan) == before
    functions = [op for op in module.ops if op.name == "tsched.func"]
    wanted = [(operands, tiles) for operands, tiles, is_kernel in groups if is_kernel]
    found = [
        (len(op.regions[0].block.args), sum(part.name == "tsched.tile" for part in op.regions[0].block.ops))
        for op in functions
    ]
    assert sorted(found) == sorted(wanted)
    assert len({op.value("symbol") for op in functions if isinstance(op, SpecOp)}) == len(wanted)


@given(st.sampled_from(["all_reduce", "reduce_scatter", "all_to_all"]), st.integers(1, 1 << 20), st.booleans())
def test_what_is_written_on_a_collective_is_the_fastest_plan(call: str, rows: int, is_reducing: bool) -> None:
    switch = "true" if is_reducing else "false"
    text = f"""tsched.module @f(%x: !tgraph.tensor<[{8 * rows}], f32>) attributes {{mesh = {{tp = 8}}}} {{
      %a = tsched.fuse @k(%x) : !tgraph.tensor<[{8 * rows}], f32>
      tsched.collective %a {{pattern = "{call}", axis = "tp", topology = {{devices = 8, in_network = {switch}}}}}
      tsched.return
    }}"""
    module = parse_module(text)
    verify(module)
    PlanCollectives().run(module)
    verify(module)
    (op,) = [op for op in module.walk() if op.name == "tsched.collective"]
    assert isinstance(op, SpecOp)
    best = candidate_plans(call, 32 * rows, topology_of({"devices": 8, "in_network": is_reducing}))[0]
    assert op.value("algo") == best.algorithm
    assert (op.value("plan")["hops"], op.value("plan")["time"]) == (best.hops, round(best.time))
