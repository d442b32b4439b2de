"""What is read off matrix kernels: pipelines of copies, roles, persistent walks, and how launches are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.register_estimate import resources_in
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tests.backends.nvptx.matrices import BACKEND, arrays_of, causal, kernels_of, matrix_of, nn, nt
from tests.backends.nvptx.test_passes import hopper
from tests.oracles.nvptx_simulator import Event, simulate

STAGES = 3


def trace(programs: int = 2, steps: int = 6) -> list[Event]:
    """What happens when a dot of some programs and steps runs with three buffers."""
    shapes = [(64 * programs, 64 * steps), (64, 64 * steps)]
    overrides = {"contraction.block": (64, 64, 64), "pipeline.stages": STAGES}
    (kernel,) = kernels_of(nt, shapes, overrides=overrides)
    return simulate(hopper(kernel), arrays_of(kernel), {})


def test_copies_are_prefetched_before_dots_and_stores_behind_them() -> None:
    """The table of a pipeline: with the dot of step n, loads of n+1 have begun, and n-1 is let go."""
    events = trace()
    copies = {event.passed: at for at, event in enumerate(events) if event.op == "copy"}
    products = {event.passed: at for at, event in enumerate(events) if event.op == "mma_issue"}
    releases = {event.passed: at for at, event in enumerate(events) if event.op == "release"}
    assert sorted(copies) == sorted(products) == sorted(releases) == list(range(12))
    for step in range(12):
        ahead = [other for other, at in copies.items() if at < products[step]]
        assert min(step + 1, 11) <= max(ahead) <= min(step + STAGES - 1, 11)
        assert products[step] < releases[step]
        if step + STAGES < 12:
            assert releases[step] < copies[step + STAGES]
        if step + 1 < 6:
            assert products[step + 1] < releases[step]  # one dot stays in flight
    stores = [at for at, event in enumerate(events) if event.op == "store_tile"]
    assert len(stores) == 2
    assert copies[6] < stores[0]  # the next program's tiles are on their way while this one's is written back


def test_only_the_producer_copies_and_only_consumers_compute() -> None:
    kinds = {(event.role, event.op) for event in trace()}
    assert {op for role, op in kinds if role == "producer"} == {"copy"}
    assert {op for role, op in kinds if role == "consumers"} == {"mma_issue", "mma_wait", "release", "store_tile"}


def test_both_roles_walk_the_grid_and_stay() -> None:
    """As many CTAs as multiprocessors, which share the programs; the ring goes on from program to program."""
    kernel = matrix_of(nt, [(4096, 4096)] * 2)
    producer, consumer = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tiles"]
    assert producer.value("grid") == consumer.value("grid")
    assert BACKEND.code(kernel).resident == BACKEND.machine.blocks == 132
    events = trace(programs=3, steps=2)
    assert [event.passed for event in events if event.op == "mma_issue"] == list(range(6))


def test_programs_of_unequal_length_are_handed_out() -> None:
    kernel = matrix_of(causal, [(1, 2, 512, 64)] * 3)
    tiles = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tiles"]
    assert all(op.value("mailbox") >= 0 and op.value("is_descending") for op in tiles)
    assert BACKEND.code(kernel).counts


def gram(x: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(x))


def test_descriptors_are_made_once_and_before_everything() -> None:
    """Both operands of a dot with itself are seen through one TMA descriptor, and none is made in a loop."""
    kernel = matrix_of(gram, [(512, 256)], overrides={"contraction.block": (64, 64, 64)})
    maps = [op for op in kernel.walk() if op.name == "ttarget.tensor_map"]
    assert len(maps) == 2  # what is read, and what is written
    assert all(op.parent_op() is kernel for op in maps)
    copies = [op for op in kernel.walk() if op.name == "ttarget.copy"]
    assert len(copies) == 2
    assert copies[0].operands[0] is copies[1].operands[0]


def test_roles_of_their_own_were_faster_than_one_program_for_all() -> None:
    """As measured at 4096: a producer beside consumers, and kernels in which every warp copies and multiplies."""
    folder = Path(__file__).parents[3] / "benchmarks" / "results"

    def best(file: str) -> float:
        rows = json.loads((folder / file).read_text())["rows"]
        return max(row["tessera"] for row in rows if row["form"] == "nt" and row["size"] == [4096, 4096, 4096])

    assert best("gpu-products.json") > best("gpu-warps.json")


PIPELINES = {
    "word": ('{double_buffers = true}', "`pipeline` says `double_buffer` or `stages`, one of them"),
    "both": ("{double_buffer = true, stages = 2}", "one of them, got"),
    "number": ("{double_buffer = 2}", "`double_buffer` is true or false, got 2"),
    "many": ("{stages = 9}", "`stages` is 1 to 8 buffers, got 9"),
    "none": ("{stages = 0}", "`stages` is 1 to 8 buffers, got 0"),
    "flat": ("2", "`pipeline` is {double_buffer = true} or {stages = n}, got 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_that_is_none_is_refused(name: str) -> None:
    given, message = PIPELINES[name]
    load_dialects()
    text = f"""builtin.module attributes {{tessera.version = 4 : i64}} {{
  tsched.module @main(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {{
    %a = tsched.fuse @f(%x) {{kind = "map", pipeline = {given}}} : !tgraph.tensor<[B], f32>
    tsched.return %a
  }}
}}"""
    with pytest.raises(OpError) as caught:
        verify(parse_module(text))
    assert message in str(caught.value)


def test_buffers_hold_what_is_copied_ahead() -> None:
    load_dialects()
    text = """builtin.module attributes {tessera.version = 4 : i64} {
  ttile.kernel @k() attributes {symbols = [], grid = [1], writes = []} {
    %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
    ttile.for %z, %z {step = 1, prefetch = 2, buffers = 2} ({
    ^bb0(%i: !ttile.index):
      ttile.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttile.return
  }
}"""
    with pytest.raises(OpError, match="2 buffers hold what is copied up to 1 steps ahead, and `prefetch` is 2"):
        verify(parse_module(text))


def both(x: Any, w: Any) -> Any:
    return ts.ops.softmax(nn(x, w), axis=-1)


def test_how_each_kernel_is_launched_is_reported() -> None:
    """With a dot and rows, blocks of the dot share the programs; of an op alone each program has one."""
    arrays = [np.zeros((512, 512), np.float16)] * 2
    looked = lower(ts.jit(both).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",))).code.lint()
    launches = {one.resources.name.split("_")[0]: one.resources.launch for one in looked}
    assert launches["matmul"] == "persistent, at most 132 blocks share the programs"
    assert len(launches) == 2
    tape = ts.jit(ts.ops.exp).trace(arrays[0]).tape
    (alone,) = lower(tape, Options.of(backend="cuda", features=("sm_90a",))).code.lint()
    assert alone.resources.launch == "one block a program"
    text = "\n".join(str(one.resources) for one in looked)
    assert "limited by" in text
    assert "registers a thread" in text
    assert all(one.complaints == () for one in looked)


def test_an_executable_says_what_its_kernels_take() -> None:
    """What `explain()` shows of code for a GPU is read off the executable, which need not be loaded."""
    arrays = [np.zeros((256, 256), np.float16)] * 2
    made = compile_tape(ts.jit(nn).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    (found,) = resources_in(made.metadata, made.objects)
    assert found.occupancy.blocks >= 1
    assert found.resident == 132
    assert found.shared == made.metadata["kernels"][0]["shared"]


def test_only_kernels_for_a_gpu_are_looked_at() -> None:
    with pytest.raises(OverrideError, match="only kernels for a GPU are looked at"):
        lower(ts.jit(nn).trace(*[np.zeros((8, 8), np.float32)] * 2).tape, Options()).code.lint()
