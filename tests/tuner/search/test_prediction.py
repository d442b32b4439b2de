"""What plans of programs should take: work of kernels by closed forms, and times that a backend knows better."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.plan_times import block_nanoseconds
from tessera.compiler.prediction import attention_work, contraction_work, predictor, row_work
from tessera.compiler.space import ProgramSpace, space_of
from tessera.tuner.cost_model import KernelWork, Predict
from tessera.tuner.records import Plan
from tessera.types.rates import rates_of


def space_for(function: Any, backend: str, *shapes: tuple[int, ...]) -> ProgramSpace:
    jitted: Any = ts.jit(function, backend=backend)
    return space_of(jitted.trace(*(np.empty(shape, ml_dtypes.bfloat16) for shape in shapes)).tape, jitted.options)


def model(space: ProgramSpace) -> Predict:
    found = predictor(space)
    assert found is not None
    return found


def matmul(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def knob_of(space: ProgramSpace, name: str) -> Any:
    return next(knob for knob in space.knobs if knob.name == name)


@pytest.fixture(scope="module")
def gemm() -> ProgramSpace:
    return space_for(matmul, "cuda", (4096, 4096), (4096, 4096))


def test_the_work_of_a_contraction_is_that_of_its_blocks(gemm: ProgramSpace) -> None:
    knob = knob_of(gemm, "contraction.block")
    found = contraction_work(
        KernelWork(memory=1.0), (128, 256, 64), knob.context, {"pipeline.stages": 4}, gemm.groups[0]
    )
    assert found.blocks == 32 * 16
    assert found.flops == 2 * 4096**3
    assert found.l2 == 32 * 16 * (128 + 256) * 4096 * 2
    assert found.in_flight == 4 * (128 + 256) * 64 * 2
    assert found.kind == "bf16"
    ragged = contraction_work(KernelWork(), (192, 200, 64), knob.context, {}, gemm.groups[0])
    assert ragged.flops == 2.0 * 22 * 21 * 192 * 200 * 4096, "what reaches over the edges is computed too"


def test_a_large_matmul_wants_large_blocks_and_several_stages(gemm: ProgramSpace) -> None:
    predict, knob = model(gemm), knob_of(gemm, "contraction.block")

    def time(**choices: Any) -> float:
        named = {f"{name.replace('_', '.')}@{knob.location}": value for name, value in choices.items()}
        found = predict(Plan.of(named))
        assert found is not None
        return found.time

    assert (
        time(contraction_block=(128, 256, 64))
        < time(contraction_block=(64, 64, 64))
        < time(contraction_block=(8, 16, 64))
    )
    assert time(pipeline_stages=1) > 1.5 * time(pipeline_stages=4)
    # 2 * 4096^3 operations of bf16 take 148 us at the rate that an H200 was measured at, and less than twice that.
    rates = rates_of("sm_90a")
    assert rates is not None
    least = 2 * 4096**3 / rates.compute("bf16")
    assert least < time() < 2 * least


def test_the_default_of_the_model_is_what_the_prediction_puts_first(gemm: ProgramSpace) -> None:
    predict, knob = model(gemm), knob_of(gemm, "contraction.block")
    found = {value: predict(Plan.of({knob.key: value})) for value in knob.candidates}
    times = {value: one.time for value, one in found.items() if one is not None}
    assert min(times, key=lambda value: times[value]) == knob.default


def test_predictions_are_the_same_each_time_and_carry_features(gemm: ProgramSpace) -> None:
    knob = knob_of(gemm, "contraction.block")
    one, other = (model(gemm)(Plan.of({knob.key: (128, 128, 64)})) for _ in range(2))
    assert one == other
    assert one is not None
    assert {"log compute", "log l2", "log waves"} <= {name for name, _ in one.features}


def test_rows_that_several_programs_share_take_two_launches() -> None:
    space = space_for(softmax, "cuda", (16, 51200))
    knob = knob_of(space, "row.runs")
    whole, shared = (row_work(KernelWork(memory=1.0), runs, knob.context, {}, space.groups[0]) for runs in (0, 4))
    assert (whole.blocks, whole.launches) == (16, 1)
    assert shared.blocks > whole.blocks
    assert shared.launches == 2
    predict = model(space)
    few, many = (predict(Plan.of({knob.key: runs})) for runs in (4, 0))
    assert few is not None
    assert many is not None
    assert few.time < many.time, "sixteen rows alone leave most of the machine without work"


def test_attention_reads_keys_for_every_block_of_queries() -> None:
    shape = (2, 8, 512, 64)
    space = space_for(attention, "cuda", shape, shape, shape)
    knob = knob_of(space, "attention.queries")
    found = attention_work(KernelWork(), 128, knob.context, {}, space.groups[0])
    assert found.blocks == 16 * 4
    assert found.l2 == 64 * (2 * 128 + 2 * 512) * 64 * 2
    assert found.flops == 4.0 * 64 * 128 * 512 * 64


def test_programs_of_a_cpu_are_predicted_too() -> None:
    space = space_for(matmul, "cpu", (16, 512), (512, 512))
    predict, knob = model(space), knob_of(space, "contraction.block")
    small, large = (predict(Plan.of({knob.key: block})) for block in ((32, 64, 64), (128, 256, 64)))
    assert small is not None
    assert large is not None
    assert small.time < large.time, "of sixteen rows a block of 128 computes most for nothing"


def test_what_threads_multiply_is_timed_by_their_own_model() -> None:
    jitted: Any = ts.jit(matmul, backend="cuda")
    space = space_of(jitted.trace(*(np.empty((512, 512), np.float32) for _ in range(2))).tape, jitted.options)
    knob = knob_of(space, "contraction.block")
    times = {block: block_nanoseconds(block, knob.context, {}) for block in knob.candidates}
    known = {block: time for block, time in times.items() if time is not None}
    assert len(known) > 20
    assert min(known, key=lambda block: known[block]) == knob.default
    assert block_nanoseconds((1, 64, 64), knob.context, {}) is None, "nobody modeled vectors"


def test_a_cpu_reads_ahead_of_the_leaves_of_a_row() -> None:
    """Parts of a row cost their second kernel, and no latency for each leaf, as measured: all of them are alike."""
    space = space_for(softmax, "cpu", (31, 3224))
    knob, predict = knob_of(space, "row.runs"), model(space)
    times = {value: predict(Plan.of({knob.key: value})) for value in knob.others}
    whole = predict(Plan())
    assert whole is not None
    assert all(one is not None and whole.time < one.time < 3 * whole.time for one in times.values())
