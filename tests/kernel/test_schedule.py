"""Schedules as values: chains, spaces, lineage, and what a machine cannot carry out."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.kernel_trial import refusal
from tessera.compiler.options import Options
from tessera.diagnostics.codes import ScheduleError
from tessera.frontend.kernel.legality import footprint_of
from tessera.ir.base.text import parse_module, print_module
from tessera.types.schedule import Space, block
from tests.kernel import kernels
from tests.oracles.legal_schedules import legal_points


@kernel
def product(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16]) -> KTile["M", "N", bf16]:
    """A dot of narrow floats."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return tile.cast(acc, bf16)


SQUARE = np.zeros((4096, 4096), ml_dtypes.bfloat16)


def schedules() -> Any:
    sizes = st.integers(1, 256)
    counts = st.sampled_from([None, 1, 2, 4, 8])
    return st.builds(
        Schedule,
        block=st.one_of(st.just(()), st.tuples(sizes), st.tuples(sizes, sizes), st.tuples(sizes, sizes, sizes)),
        warps=counts,
        stages=st.one_of(st.none(), st.integers(1, 5)),
        vector=counts,
        swizzle=st.sampled_from([None, "none", "xor"]),
    )


@given(schedules())
def test_json_gives_back_an_equal_schedule(schedule: Schedule) -> None:
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.key == schedule.key


def test_a_chain_is_the_schedule_it_says() -> None:
    made = block(128, 256).k(64).warps(8).stages(3).vector(8).swizzle("xor")
    assert str(made.schedule) == ("Schedule(block=(128, 256, 64), warps=8, stages=3, vector=8, swizzle='xor')")


CHAINS: list[tuple[Any, str]] = [
    (
        block(128, 256).k(64).warps(8).stages(3).vector(8).swizzle("xor"),
        '{block = [128, 256, 64], warps = 8, stages = 3, vector = 8, swizzle = "xor"}',
    ),
    (block(64, 64, 32), "{block = [64, 64, 32]}"),
    (block(32, 48).k(16).d(128).stages(2), "{block = [32, 48, 16], d = 128, stages = 2}"),
    (block(64, 64).triangular_only("lower"), '{block = [64, 64], triangular = "lower"}'),
]


@pytest.mark.parametrize(("chain", "text"), CHAINS, ids=lambda item: str(item)[:30])
def test_a_chain_is_the_choice_of_its_group_in_schedule_ir(chain: Any, text: str) -> None:
    small = np.zeros((256, 128), ml_dtypes.bfloat16)
    lowered = product.with_schedule(chain).lower(small, np.ascontiguousarray(small.T)).schedule
    plan = lowered.split("tsched.return")[0]
    (line,) = [line.strip() for line in plan.splitlines() if "tsched.tile" in line]
    assert line == f'tsched.tile %0 chosen = {text} {{source = "schedule", knob = "kernel.schedule"}}'
    # The text is IR: read and written again, it is the same.
    module = parse_module(lowered.split("\n\n")[0])
    assert line in print_module(module)
    assert "tsched.tile" not in product.lower(small, np.ascontiguousarray(small.T)).schedule.split("tsched.return")[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: block(64).warps(8).warps(4), "`warps` is chosen twice"),
        (lambda: block(64).k(32).schedule, "a K block needs rows and columns"),
        (lambda: block([64, 128]).schedule, "a space of 2 schedules"),
        (lambda: Schedule(block=(0, 64)), "`block m` must be at least 1, got 0"),
        (lambda: Schedule(warps=3), "`warps` must be a power of two, got 3"),
        (lambda: Schedule(vector=6), "`vector` must be a power of two, got 6"),
        (lambda: Schedule(swizzle="zigzag"), "`swizzle` is one of none, xor"),
        (lambda: Schedule(block=(1, 2, 3, 4)), "at most rows, columns and K"),
        (lambda: Schedule(stages=0), "`stages` must be at least 1, got 0"),
        (lambda: Schedule().with_(color=1), "a schedule has no `color`"),
        (lambda: Schedule().triangular_only("left"), "`triangular` is one of lower, upper"),
        (lambda: Schedule(block=(64,)).with_k(8), "a K block needs blocks"),
        (lambda: Space.of({"BX": [1]}), "a space has no `BX`"),
    ],
)
def test_what_no_machine_could_do_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        make()
    assert message in raised.value.message


def test_a_mistake_in_a_variation_is_shown_where_it_was_made() -> None:
    with pytest.raises(ScheduleError) as raised:
        Schedule(warps=4).with_warps(3)
    assert raised.value.span is not None
    assert raised.value.span.file == __file__


def test_a_space_has_every_combination_of_its_choices() -> None:
    space = block(m=[64, 128], n=[64, 96, 256], k=[64]).warps([4, 8]).stages([2, 5]).space
    points = list(space)
    assert len(points) == len(space) == 24
    assert len(set(points)) == 24
    assert points[0] == Schedule(block=(64, 64, 64), warps=4, stages=2)


SPACES: list[dict[str, list[Any]]] = [
    {"m": [64, 128], "n": [64, 96, 256], "k": [64], "warps": [4, 8], "stages": [2, 5]},
    {"m": [128, 256], "n": [128, 256], "k": [32, 64, 128], "warps": [8], "stages": [2, 3, 4]},
    {"m": [128], "n": [64, 100, 136], "k": [64], "warps": [4, 8], "stages": [2], "vector": [4, 8, 16]},
    {"m": [64], "n": [72, 100, 256], "k": [32, 64], "warps": [8], "stages": [3], "swizzle": ["none", "xor"]},
    {"m": [16, 64], "n": [16, 64], "k": [16], "warps": [4, 32], "stages": [2]},
]


@pytest.mark.parametrize("axes", SPACES, ids=str)
def test_the_legal_part_of_a_space_is_the_product_less_what_does_not_fit(axes: dict[str, list[Any]]) -> None:
    """What fits is computed apart from the compiler, from the figures of the manuals."""
    sizes = {name: axes[name] for name in ("m", "n", "k")}
    chain = block(**sizes)
    for name in [name for name in axes if name not in sizes]:
        chain = getattr(chain, name)(axes[name])
    expected = legal_points(axes)
    assert 0 < len(expected) < len(chain.space)
    found = product.legal(chain.space, SQUARE, SQUARE)
    assert [(*one.block, one.warps, one.stages, one.vector, one.swizzle) for one in found] == [
        (p["m"], p["n"], p["k"], p["warps"], p["stages"], p.get("vector"), p.get("swizzle")) for p in expected
    ]


def test_schedules_inherit_and_remember_how_they_came_about() -> None:
    base = Schedule(block=(128, 128), warps=8, stages=3)
    small = base.with_block(64, 64).with_warps(4)
    assert small == Schedule(block=(64, 64), warps=4, stages=3)
    assert small.history().splitlines() == [
        "Schedule(block=(64, 64), warps=4, stages=3)",
        "  block (128, 128) -> (64, 64)",
        "  warps 8 -> 4",
    ]
    assert base.lineage == ()


def test_a_call_site_wins_over_the_decorator() -> None:
    decorated = kernel.schedule(Schedule(block=(32, 32, 32)))(kernels.matmul.definition.function)
    assert decorated.schedule.m == 32
    assert decorated.with_schedule(Schedule(block=(16,))).schedule.m == 16
    assert decorated.schedule.m == 32


def test_shared_memory_is_counted_buffer_by_buffer() -> None:
    schedule = Schedule(block=(128, 256, 64), stages=4)
    need = footprint_of(product.with_schedule(schedule).program(SQUARE, SQUARE), schedule)
    assert [buffer.bytes for buffer in need.staged] == [128 * 64 * 2 * 4, 64 * 256 * 2 * 4]
    assert need.registers(256) == 128 * 256 // 256 + 40


ILLEGAL = [
    *(Schedule(block=(256, 256, k), warps=8, stages=s) for k in (64, 128) for s in (3, 4, 5)),
    *(Schedule(block=(m, 256, 64), warps=w, stages=2) for m, w in ((128, 2), (128, 4), (256, 4), (256, 8))),
    *(Schedule(block=(128, 128, 64), vector=v) for v in (16, 32, 64)),
    *(Schedule(block=(128, n, 64), vector=8) for n in (100, 229, 33)),
    *(Schedule(block=(128, 128, k), vector=8) for k in (20, 36, 7)),
    *(Schedule(block=(128, 128, 64), warps=w) for w in (64, 128)),
    *(Schedule(block=(128, n, 64), swizzle="xor") for n in (100, 33, 229)),
    *(Schedule(block=(m, n, 64), warps=32) for m, n in ((16, 16), (8, 64), (16, 32))),
    *(Schedule(block=(512, 512, 16), warps=w, stages=1) for w in (8, 16, 32)),
]


@pytest.mark.parametrize("schedule", ILLEGAL, ids=str)
def test_an_illegal_schedule_is_refused_with_numbers_and_the_nearest_legal_one(schedule: Schedule) -> None:
    with pytest.raises(ScheduleError) as raised:
        product.with_schedule(schedule).check(SQUARE, SQUARE)
    _, reason = raised.value.message.split("): ", 1)
    assert len(re.findall(r"\d+", reason)) >= 2
    fix = raised.value.fix
    assert fix is not None
    assert fix.message.startswith("the nearest legal schedule is Schedule(")


ROWS = np.zeros((256, 1024), np.float32)
HEADS = np.zeros((4, 512, 128), ml_dtypes.bfloat16)
BEYOND_CODE = [
    (kernels.softmax, (ROWS,), Schedule(block=(96, 8, 20), warps=16), "sm_80"),
    (kernels.softmax, (ROWS,), Schedule(block=(64, 128, 64), warps=16, vector=8), "sm_90a"),
    (kernels.rows, (ROWS,), Schedule(block=(65, 96, 32), stages=3), "sm_90a"),
    (kernels.flash, (HEADS, HEADS, HEADS), Schedule(block=(512, 128, 128), warps=32, stages=1), "sm_100a"),
    (product, (SQUARE, SQUARE), Schedule(block=(1, 16, 16), warps=2, vector=16, swizzle="xor"), "sm_90a"),
]


@pytest.mark.parametrize(("made", "operands", "schedule", "machine"), BEYOND_CODE)
def test_what_no_code_is_made_of_is_refused_before_and_the_nearest_has_code(
    made: Any, operands: Any, schedule: Schedule, machine: str
) -> None:
    with pytest.raises(ScheduleError) as raised:
        made.with_schedule(schedule).check(*operands, machine=machine)
    _, reason = raised.value.message.split("): ", 1)
    assert len(re.findall(r"\d+", reason)) >= 2
    assert raised.value.fix is not None
    (near,) = re.findall(r"Schedule\(.*\)", raised.value.fix.message)
    program = made.with_schedule(eval(near, {"Schedule": Schedule})).program(*operands, kind="gpu")
    assert not refusal(program, GPUS[machine])


def test_a_compilation_says_which_schedule_is_the_nearest_too() -> None:
    wide = kernels.softmax.with_schedule(Schedule(block=(64,)))
    options = Options.of(backend="cuda", features=("sm_90a",))

    def inside(x: Any) -> Any:
        return wide(x) + 1.0

    for traced in (wide.trace(ROWS), ts.jit(inside).trace(ROWS)):
        with pytest.raises(ScheduleError, match="bytes of shared memory for a block, and sm_90a has 232448"):
            lower(traced.tape, options)


@pytest.mark.parametrize("size", [(96, 176, 64), (229, 40, 57), (33, 100, 20)])
def test_matmuls_in_blocks_of_any_size_have_code(size: tuple[int, int, int]) -> None:
    product.with_schedule(Schedule(block=size)).check(SQUARE, SQUARE)


@pytest.mark.parametrize("machine", ["sm_80", "sm_100a"])
def test_one_stage_is_refused_where_loops_always_prefetch(machine: str) -> None:
    one = product.with_schedule(Schedule(block=(128, 128, 64), stages=1))
    with pytest.raises(ScheduleError, match=rf"stages=1 .* {machine} needs at least 2") as raised:
        one.check(SQUARE, SQUARE, machine=machine)
    assert raised.value.fix is not None
    assert raised.value.fix.message == "the nearest legal schedule is Schedule(block=(128, 128, 64), stages=2)"
    product.with_schedule(Schedule(block=(128, 128, 64), stages=2)).check(SQUARE, SQUARE, machine=machine)
    one.check(SQUARE, SQUARE, machine="sm_90a")
    kernels.softmax.with_schedule(Schedule(block=(4, 8, 20), stages=1)).check(ROWS, machine=machine)


def test_thirty_schedules_are_refused() -> None:
    assert len(ILLEGAL) >= 30


def test_what_fits_is_not_refused() -> None:
    product.with_schedule(Schedule(block=(128, 256, 64), warps=8, stages=4)).check(SQUARE, SQUARE)
    product.with_schedule(Schedule(block=(128, 256, 64), warps=8, stages=3)).check(SQUARE, SQUARE, machine="sm_80")
