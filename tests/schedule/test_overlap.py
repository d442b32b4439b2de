"""Collectives that overlap: whatever is moved, ranks get the same bits, and what is under way is let alone."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

import tessera as ts
from tessera import ops
from tessera.api.control import cond, fori_loop
from tessera.backends.reference.compile import run_tape
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes import split_collectives
from tessera.ir.graph.passes.split_collectives import SplitCollectives
from tessera.ir.schedule.passes import overlap_collectives
from tessera.ir.schedule.passes.overlap_collectives import MOST_STARTED, OverlapCollectives
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import CollectiveStartOp, CollectiveWaitOp
from tessera.types.dtype import BY_NAME
from tests.oracles.schedule_interpreter import run_program
from tests.runtime.ranks.threads import on_ranks
from tests.schedule.programs import run_schedule, simplify, tensor, trace

START, WAIT = "tsched.collective_start", "tsched.collective_wait"
MESHES = ({"dp": 2}, {"dp": 3}, {"dp": 2, "tp": 2})
STEPS = ("reduce", "reduce", "gather", "share", "swap", "own", "join", "matmul", "branch", "loop")


class Steps:
    """Steps of a program on values of one shape: along which axes, and of which kind, is drawn."""

    def __init__(self, seed: int, axes: dict[str, int]) -> None:
        self.choose, self.axes = random.Random(seed), list(axes)

    def take(self, name: str, x: Any, y: Any) -> Any:
        return getattr(self, name)(x, y, self.choose.choice(self.axes))

    def reduce(self, x: Any, y: Any, axis: str) -> Any:
        return ts.dist.all_reduce(x, axis, self.choose.choice(["sum", "prod", "max", "min"]))

    def gather(self, x: Any, y: Any, axis: str) -> Any:
        return ts.dist.reduce_scatter(ts.dist.all_gather(x, axis, 1), axis, 1) * 0.5

    def share(self, x: Any, y: Any, axis: str) -> Any:
        return ts.dist.all_gather(ts.dist.reduce_scatter(x, axis, 0), axis, 0)

    def swap(self, x: Any, y: Any, axis: str) -> Any:
        return ts.dist.all_to_all(ts.dist.all_to_all(x, axis, 0, 1), axis, 1, 0)

    def own(self, x: Any, y: Any, axis: str) -> Any:
        return x + ts.dist.axis_index(axis).cast(ts.f32)

    def join(self, x: Any, y: Any, axis: str) -> Any:
        return x + y

    def matmul(self, x: Any, y: Any, axis: str) -> Any:
        return ops.matmul(x, y) * 0.125

    def branch(self, x: Any, y: Any, axis: str) -> Any:
        holds = ts.dist.all_reduce(ops.sum(x), axis) > 0.0
        return cond(holds, lambda a: ts.dist.all_reduce(a, axis) * 0.5, lambda a: a - 1.0, x)

    def loop(self, x: Any, y: Any, axis: str) -> Any:
        return fori_loop(0, 2, lambda _, a: ts.dist.all_reduce(a, axis) * 0.25 + y, x)


def program(seed: int, axes: dict[str, int]) -> Tape:
    """Collectives of random kinds along random axes, among products and sums that some need and some do not."""
    steps = Steps(seed, axes)

    def f(x: Any, y: Any) -> Any:
        values = [x, y]
        for name in steps.choose.choices(STEPS, k=6):
            values.append(steps.take(name, steps.choose.choice(values[-3:]), steps.choose.choice(values)))
        return tuple(values[-3:])

    with ts.dist.mesh(**axes):
        return trace(f, tensor("6 6"), tensor("6 6"))


def arrays(rank: int) -> list[Array]:
    rng = np.random.default_rng(rank)
    return [rng.standard_normal((6, 6)).astype(np.float32) for _ in range(2)]


def plan(tape: Tape, *, overlap: bool) -> ModuleOp:
    module = run_schedule(simplify(tape), chooser=StaticChooser({"collectives.overlap": overlap}))
    verify(parse_module(print_module(module)))
    return module


def collectives_in(module: ModuleOp) -> list[tuple[str, int]]:
    found = [op for op in next(programs_in(module)).walk() if isinstance(op, SpecOp) and op.name in (START, WAIT)]
    return [(op.name, op.value("number")) for op in found]


@pytest.mark.parametrize("seed", range(6))
def test_overlapping_keeps_every_bit_and_the_order_of_starts(seed: int) -> None:
    axes = MESHES[seed % len(MESHES)]
    tape = program(seed, axes)
    apart, together = (plan(tape, overlap=overlap) for overlap in (False, True))
    numbers = [number for name, number in collectives_in(apart) if name == START]
    assert [number for name, number in collectives_in(together) if name == START] == numbers == sorted(numbers)

    def work(rank: int) -> Any:
        given = arrays(rank)
        with np.errstate(all="ignore"):
            return run_program(apart, *given), run_program(together, *given)

    for found in on_ranks(work, **axes):
        for one, other in zip(*found, strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("seed", range(100, 104))
def test_splitting_keeps_what_every_rank_gets(seed: int) -> None:
    axes = MESHES[seed % len(MESHES)]
    tape = program(seed, axes)
    module = from_tape(tape)
    SplitCollectives().run(module)
    verify(module)
    function: Any = module.ops.first

    def work(rank: int) -> Any:
        given = arrays(rank)
        with np.errstate(all="ignore"):
            return run_tape(tape, given), interpret(function, *given)

    for found in on_ranks(work, **axes):
        for one, other in zip(*found, strict=True):
            assert one.tobytes() == other.tobytes()
    assert not {op.name for op in module.walk()} & {"tgraph.all_reduce", "tgraph.reduce_scatter"}


@pytest.mark.parametrize("most", [0, 1 << 18])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3", "f8e5m2", "f64", "i64", "i8", "u8", "u32"])
def test_every_dtype_is_reduced_and_moved_as_the_reference_says(
    dtype: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_collectives, "MOST_GATHERED", most)

    def f(x: Any) -> Any:
        folded = tuple(ts.dist.all_reduce(x, "dp", op) for op in ("sum", "prod", "max", "min"))
        return (*folded, ts.dist.reduce_scatter(x, "dp", 1), ts.dist.all_to_all(x, "dp", 1, 0))

    with ts.dist.mesh(dp=3):
        tape = trace(f, tensor("2 6", dtype))
    module = from_tape(tape)
    SplitCollectives().run(module)
    function: Any = module.ops.first

    def work(rank: int) -> Any:
        numbers = np.random.default_rng(rank).integers(0, 100, (2, 6)) / (8 if "f" in dtype else 1)
        given = numbers.astype(numpy_dtype(BY_NAME[dtype]))
        with np.errstate(all="ignore"):
            return run_tape(tape, [given]), interpret(function, given)

    for found in on_ranks(work, dp=3):
        for one, other in zip(*found, strict=True):
            assert one.tobytes() == other.tobytes()


def step(x: Any, w: Any) -> Any:
    total = ts.dist.all_reduce(x, "dp")
    return ops.matmul(ops.matmul(w, w), w), total


def between(module: ModuleOp) -> list[str]:
    """The kernels that run while something is under way."""
    found: list[str] = []
    count = 0
    block = next(programs_in(module)).regions[0].block
    for op in block.ops:
        count += (op.name == START) - (op.name == WAIT)
        found += [_kernel(op)] if count and op.name == "tsched.call" else []
    return found


def _kernel(op: Operation) -> str:
    assert isinstance(op, SpecOp)
    return op.value("kernel")


def test_matmuls_stand_between_start_and_wait_unless_somebody_says_no() -> None:
    with ts.dist.mesh(dp=2):
        tape = trace(step, tensor("6 6"), tensor("6 6"))
    assert len(between(plan(tape, overlap=True))) == 2
    assert between(plan(tape, overlap=False)) == []


def test_a_matmul_does_not_wait_for_what_is_added_to_it() -> None:
    def add_bias(x: Any, w: Any) -> Any:
        return ops.relu(ops.matmul(w, w) + ts.dist.all_reduce(x, "dp"))

    def chain_bias(x: Any, w: Any) -> Any:
        total = ts.dist.all_reduce(x, "dp")
        return ops.epilogue.chain([ops.epilogue.residual(total)])(ops.matmul(w, w))

    with ts.dist.mesh(dp=2):
        free, bound = (trace(one, tensor("6 6"), tensor("6 6")) for one in (add_bias, chain_bias))
    (kernel,) = between(plan(free, overlap=True))
    assert kernel.startswith("matmul")
    assert between(plan(free, overlap=False)) == []
    assert between(plan(bound, overlap=True)) == [], "what is promised to be one kernel is"


def test_the_choice_is_one_of_the_program_and_has_a_source() -> None:
    x = np.ones((6, 6), np.float32)
    with ts.dist.mesh(dp=2):
        texts = [ts.jit(step, overrides=given).lower(x, x).schedule for given in ({}, {"collectives.overlap": False})]
    waits = [text.rindex("tsched.collective_wait") < text.rindex("tsched.call @matmul") for text in texts]
    assert waits == [False, True]


def chain_of(count: int, sent: str) -> str:
    """A program with so many gathers, of what it takes or of what it computes, and a use of each in order."""
    lines = ["tsched.module @many(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32> {"]
    for at in range(count):
        made = "%x" if sent == "taken" else f"%a{at}"
        if sent == "computed":
            lines.append(f"  %a{at} = tsched.fuse @own{at}(%x) : !tgraph.tensor<[4], f32>")
        about = f'{{number = {at}, call = "all_gather", axis = "dp", ranks = 2}}'
        lines.append(f"  %s{at} = tsched.collective_start {made} {about} : !tgraph.tensor<[8], f32>")
        lines.append(f"  %r{at} = tsched.collective_wait {made}, %s{at} {{number = {at}}} : !tgraph.tensor<[8], f32>")
        before = f"%y{at - 1}, " if at else ""
        lines.append(f"  %y{at} = tsched.fuse @use{at}({before}%r{at}) : !tgraph.tensor<[8], f32>")
    return "\n".join([*lines, f"  tsched.return %y{count - 1}", "}"])


@pytest.mark.parametrize("sent", ["taken", "computed"])
def test_no_more_are_under_way_than_the_window_has(sent: str) -> None:
    module = parse_module(chain_of(3 * MOST_STARTED, sent))
    OverlapCollectives().run(module)
    verify(module)
    under_way, most, starts, waited = 0, 0, list[int](), list[int]()
    for op in module.walk():
        if isinstance(op, CollectiveStartOp):
            under_way, starts = under_way + 1, [*starts, op.value("number")]
            # One behind the window starts when the one a window before it was waited for.
            assert op.value("number") < MOST_STARTED or op.value("number") - MOST_STARTED in waited
        elif isinstance(op, CollectiveWaitOp):
            under_way, waited = under_way - 1, [*waited, op.value("number")]
        most = max(most, under_way)
    assert starts == list(range(3 * MOST_STARTED))
    assert most == MOST_STARTED


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_small_window_keeps_every_bit(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_collectives, "MOST_STARTED", most)
    test_overlapping_keeps_every_bit_and_the_order_of_starts(seed)
