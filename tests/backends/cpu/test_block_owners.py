"""Blocks that products and loops change in place: kernels that want them as they were are refused, others are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dtype import f32
from tests.backends.cpu.native import machines
from tests.backends.cpu.test_lower_blocks import BK, BM, BN, RAGGED, D, I, J, K, M, N, agree, block, builder, dot

Step = Callable[[SSAValue, SSAValue, list[SSAValue]], list[SSAValue]]


def start(name: str) -> tuple[TileBuilder, TileRegion]:
    b = builder(name, [[M, K], [K, N], [M, N], [M, N]], [f32] * 4, [2, 3])
    return b, block(b)


def operands(b: TileBuilder, region: TileRegion, d: SSAValue) -> tuple[SSAValue, SSAValue]:
    here = region.with_coords(d=d)
    lhs = b.load(b.arguments[0], [I, D], here.along(("i", "d"), (BM, BK), {"i": M, "d": K}))
    rhs = b.load(b.arguments[1], [D, J], here.along(("d", "j"), (BK, BN), {"d": K, "j": N}))
    return lhs, rhs


def loop(b: TileBuilder, region: TileRegion, starts: list[SSAValue], step: Step) -> list[SSAValue]:
    def body(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return step(*operands(b, region, d), carried)

    return b.loop(b.index(0), b.index(K), BK, body, starts)


def full(b: TileBuilder, value: float) -> SSAValue:
    return b.full(value, (BM, BN), f32)


def finish(b: TileBuilder, region: TileRegion, first: SSAValue, second: SSAValue) -> SpecOp:
    b.store(first, b.arguments[2], [I, J], region)
    b.store(second, b.arguments[3], [I, J], region)
    return b.finish()


def accumulator_used_later() -> SpecOp:
    b, region = start("later")
    total = dot(b, region)
    more = b.dot(*operands(b, region, b.index(0)), total)
    return finish(b, region, total, more)


def accumulator_from_outside() -> SpecOp:
    b, region = start("outside")
    total = dot(b, region)

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return [b.elementwise("add", carried[0], b.dot(lhs, rhs, total))]

    (out,) = loop(b, region, [full(b, 0.0)], step)
    return finish(b, region, out, out)


def carried_twice() -> SpecOp:
    b, region = start("twice")

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        total = b.dot(lhs, rhs, carried[0])
        return [total, total]

    return finish(b, region, *loop(b, region, [full(b, 0.0), full(b, 1.0)], step))


def carried_across() -> SpecOp:
    b, region = start("across")

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return [b.dot(lhs, rhs, carried[1]), carried[0]]

    return finish(b, region, *loop(b, region, [full(b, 0.0), full(b, 1.0)], step))


def carried_read_late() -> SpecOp:
    b, region = start("late")

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        next_ = b.dot(lhs, rhs, full(b, 0.0))
        return [next_, b.elementwise("add", carried[1], carried[0])]

    return finish(b, region, *loop(b, region, [full(b, 2.0), full(b, 1.0)], step))


def carried_read_after_its_accumulator() -> SpecOp:
    b, region = start("after")

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        scaled = b.elementwise("add", carried[0], full(b, 1.0))
        other = b.dot(lhs, rhs, full(b, 0.0))
        seen = b.elementwise("add", carried[1], b.elementwise("mul", other, carried[0]))
        return [b.dot(lhs, rhs, scaled), seen]

    return finish(b, region, *loop(b, region, [full(b, 2.0), full(b, 1.0)], step))


def start_used_later() -> SpecOp:
    b, region = start("start")
    one = full(b, 1.0)
    (out,) = loop(b, region, [one], lambda lhs, rhs, carried: [b.dot(lhs, rhs, carried[0])])
    return finish(b, region, out, one)


def start_of_two() -> SpecOp:
    b, region = start("two")
    one = full(b, 1.0)

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return [b.dot(lhs, rhs, carried[0]), b.elementwise("add", carried[1], carried[1])]

    return finish(b, region, *loop(b, region, [one, one], step))


@pytest.mark.parametrize(
    "kernel",
    [
        accumulator_used_later,
        accumulator_from_outside,
        carried_twice,
        carried_across,
        carried_read_late,
        carried_read_after_its_accumulator,
        start_used_later,
        start_of_two,
    ],
)
def test_a_block_that_is_wanted_as_it_was_is_refused(kernel: Callable[[], SpecOp]) -> None:
    with pytest.raises(TargetVerifyError, match="in place"):
        lower_kernel(kernel(), machines()[0])


def kept_from_before_a_loop() -> SpecOp:
    """A block from before a loop is read in every iteration of it."""
    b, region = start("kept")
    first = b.elementwise("relu", b.load(b.arguments[2], [I, J], region))
    total = dot(b, region)

    def step(lhs: SSAValue, rhs: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        scaled = b.elementwise("mul", first, b.dot(lhs, rhs, full(b, 0.0)))
        return [b.elementwise("add", carried[0], b.dot(lhs, rhs, scaled))]

    (out,) = loop(b, region, [full(b, 0.0)], step)
    return finish(b, region, total, b.elementwise("add", out, total))


def stored_before_it_is_added_to() -> SpecOp:
    b, region = start("stored")
    total = dot(b, region)
    b.store(total, b.arguments[2], [I, J], region)
    b.store(b.dot(*operands(b, region, b.index(0)), total), b.arguments[3], [I, J], region)
    return b.finish()


@pytest.mark.parametrize("kernel", [kept_from_before_a_loop, stored_before_it_is_added_to])
def test_a_block_that_nobody_changes_too_early_is_right(kernel: Callable[[], SpecOp]) -> None:
    agree(kernel(), RAGGED[1])
