"""The space of a program: what may be chosen, and which choices change bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import autotune
from tessera.api.workload import ProgramWorkload
from tessera.compiler.space import BIT_NEUTRAL, NUMERIC, REFUSED, ProgramSpace, space_of
from tessera.diagnostics.codes import TuningError
from tessera.tuner.records import Plan
from tests.determinism.programs import CASES, bits
from tests.kernel.test_block_sizes import row_sums


def layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.softmax(ts.ops.gelu(x @ w + b), axis=-1)


def multiply(x: Any, y: Any) -> Any:
    return x @ y


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def gpu_space(function: Any, *given: Any) -> ProgramSpace:
    jitted: Any = ts.jit(function, backend="cuda")
    return space_of(jitted.trace(*given).tape, jitted.options)


def test_every_knob_is_listed_with_its_candidates_default_and_source() -> None:
    found = autotune.space(ts.jit(layer), *arrays((64, 32), (32, 128), (128,)))
    block = next(knob for knob in found.knobs if knob.name == "contraction.block")
    assert block.default in block.candidates
    assert len(block.candidates) == len(block.others) + 1 > 2
    assert block.source in ("static model", "default")
    assert block.location in {group.name for group in found.groups}
    assert "contraction.block@" in str(found)
    assert "bit_neutral: " in str(found)


def test_what_a_user_fixed_is_not_in_the_space() -> None:
    jitted = ts.jit(layer, overrides={"contraction.block": (32, 64, 64)})
    found = autotune.space(jitted, *arrays((64, 32), (32, 128), (128,)))
    assert "contraction.block" not in {knob.name for knob in found.knobs}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("gradient")])
def test_every_bit_neutral_candidate_gives_the_bits_of_the_safe_plan(name: str) -> None:
    """Of each knob the first and the last candidate: all of them, over all programs, is a test of some minutes."""
    case = CASES[name]
    given = case.arrays()
    jitted = case.jitted()
    expected = bits(jitted(*given))
    found = space_of(jitted.trace(*given).tape, jitted.options)
    for knob in found.knobs:
        for value in dict.fromkeys((knob.others[0], knob.others[-1])):
            plan = Plan.of({knob.key: value})
            kind, why = found.classify(plan)
            if kind == BIT_NEUTRAL:
                assert bits(case.jitted(tuned=plan.overrides)(*given)) == expected, plan
            else:
                assert kind == REFUSED, (plan, why)  # a CPU without tiles adds up in one way alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "softmax", "layernorm"])
def test_all_candidates_of_a_program_give_the_same_bits(name: str) -> None:
    case = next(case for key, case in CASES.items() if name in key)
    given, jitted = case.arrays(), case.jitted()
    expected = bits(jitted(*given))
    found = space_of(jitted.trace(*given).tape, jitted.options)
    for knob in found.knobs:
        for value in found.neutral(knob)[1:]:
            assert bits(case.jitted(tuned={knob.key: value})(*given)) == expected, (knob.key, value)


def test_the_class_comes_of_what_the_program_becomes() -> None:
    """`math.exp` changes bits where something is exponentiated, and nothing where nothing is."""

    def exponential(x: Any) -> Any:
        return ts.ops.exp(x) + 1

    def magnitude(x: Any) -> Any:
        return ts.ops.abs(x) + 1

    with_exp, without = (gpu_space(one, *arrays((64, 64))) for one in (exponential, magnitude))
    classes = [
        space.class_of(next(knob for knob in space.knobs if knob.name == "math.exp")) for space in (with_exp, without)
    ]
    assert classes == [NUMERIC, BIT_NEUTRAL]


def test_units_that_add_up_otherwise_are_numeric_and_those_that_do_not_are_neutral() -> None:
    found = gpu_space(multiply, *arrays((256, 256), (256, 256), dtype=ml_dtypes.bfloat16))
    unit = next(knob for knob in found.knobs if knob.key == "matrix.instruction")
    kinds = {value: found.classify(Plan.of({unit.key: value})) for value in unit.others}
    assert {kinds[name][0] for name in ("mma.sync", "multiply-adds")} == {NUMERIC}
    assert kinds["wgmma"][0] == BIT_NEUTRAL
    assert "sums by wgmma: 0 instead of 1" in kinds["mma.sync"][1]
    block = next(knob for knob in found.knobs if knob.name == "contraction.block")
    small = found.classify(Plan.of({block.key: (8, 16, 64)}))
    assert small[0] == NUMERIC  # wgmma has 64 rows: a smaller block is added up by multiply-adds
    assert found.classify(Plan.of({block.key: (64, 128, 64)}))[0] == BIT_NEUTRAL
    for name in ("matrix.lag@gpu", "matrix.multicast@gpu", "matrix.roles@gpu", "pipeline.stages"):
        knob = next(knob for knob in found.knobs if knob.key.startswith(name))
        assert found.class_of(knob) == BIT_NEUTRAL, name


def test_a_block_that_a_kernel_reduces_over_is_locked() -> None:
    def call(x: Any) -> Any:
        return row_sums(x) * 2

    (given,) = arrays((64, 256))
    (line,) = autotune.space(ts.jit(call), given).locked
    assert line == "`k` of the kernel `row_sums`: it adds up over them"


def test_a_numeric_candidate_is_refused_before_it_is_compiled() -> None:
    found = gpu_space(multiply, *arrays((256, 256), (256, 256), dtype=ml_dtypes.bfloat16))
    work = ProgramWorkload(found)
    with pytest.raises(TuningError, match=r"numeric: sums by wgmma: 0 instead of 1"):
        work.compile(Plan.of({"matrix.instruction": "mma.sync"}))


def test_space_takes_jitted_functions_alone() -> None:
    with pytest.raises(TuningError, match="takes a jitted function, got function"):
        autotune.space(layer)


def test_under_fast_math_segments_and_fusions_that_change_bits_are_numeric() -> None:
    def scaled(x: Any, w: Any) -> Any:
        return (x @ w) * 2.0 + 1.0

    jitted: Any = ts.jit(scaled, fast_math=True)
    given = arrays((64, 4096), (4096, 64))
    found = autotune.space(jitted, *given)
    segments = [knob for knob in found.knobs if knob.name == "contraction.segment"]
    assert segments
    assert all(found.class_of(knob) == NUMERIC for knob in segments)
    safe = np.asarray(jitted(*given)).tobytes()
    for knob in found.knobs:
        for value in found.neutral(knob)[1:3]:
            other: Any = ts.jit(jitted.function, fast_math=True, overrides={knob.key: value})
            assert np.asarray(other(*given)).tobytes() == safe, (knob.key, value)


def test_blocks_of_branches_by_rows_are_neutral() -> None:
    def rows(x: ts.Tensor["M", 768, ts.bf16], w: ts.Tensor[768, 3072, ts.bf16]) -> Any:
        return x @ w

    found = gpu_space(rows, *arrays((8, 768), (768, 3072), dtype=ml_dtypes.bfloat16))
    keys = [knob.key for knob in found.knobs if knob.name == "contraction.block"]
    assert len(keys) > 1
    for key in keys:
        assert found.classify(Plan.of({key: (64, 192, 64)})) == (BIT_NEUTRAL, "")
