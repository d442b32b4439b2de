"""The recipe of sums on tensor cores: what of k is added up where is the same under all schedules of a space."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.api import tuning
from tessera.backends.nvptx.tensor_cores import K_BYTES, PROMOTED_K
from tessera.backends.nvptx.types import SharedAttr
from tessera.compiler.kernel_trial import accumulation_unit, with_other_bits
from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.passes.expand_softmax import ExpandSoftmax
from tessera.ir.tile.write_records import write_kernel
from tests.backends.nvptx.matrices import BACKEND
from tests.kernel.test_dtypes import DTYPES, product
from tests.oracles.nvptx_simulator import simulate

M, N, K = 320, 272, 1056
NARROW = ("bf16", "f16", "e4m3", "e5m2", "i8")
SPACE = {
    "block": st.tuples(
        st.sampled_from([32, 64, 128, 192, 256]), st.sampled_from([24, 64, 80, 128, 200, 256]), st.integers(1, 520)
    ),
    "warps": st.sampled_from([None, 4, 8, 12]),
    "stages": st.sampled_from([None, 1, 2, 3, 4]),
}


def program_of(name: str, schedule: Schedule, size: tuple[int, int, int] = (M, N, K)) -> Any:
    """The dot of a dtype under a schedule; raises ScheduleError (T0401) where that is not legal."""
    dtype, total, _ = DTYPES[name]
    m, n, k = size
    sides = np.zeros((m, k), dtype), np.zeros((n, k), dtype)
    made = product.with_schedule(schedule)
    made.check(*sides, machine=BACKEND.machine, total=total)
    return made.program(*sides, kind="gpu", total=total)


def recipe_of(target: SpecOp, size: int = K) -> list[tuple[int, int]]:
    """What is added up inside of tensor cores, as ranges of k, in order; read from Target IR alone."""
    (product,) = (
        op for op in target.walk() if isinstance(op, SpecOp) and op.name in ("ttarget.mma_issue", "ttarget.mma_add")
    )
    loop = product.parent_op()
    assert isinstance(loop, SpecOp)
    assert loop.name == "ttarget.steps"
    left = product.operands[1].type
    assert isinstance(left, SharedAttr)
    depth, step = left.shape[1].value or 0, loop.value("step")
    assert depth == step, "each step multiplies what it walks"
    assert depth * left.dtype.bytes % K_BYTES == 0
    if product.name == "ttarget.mma_issue":
        return [(0, size)]
    ends = [at + part for at in range(0, size, step) for part in range(0, step, PROMOTED_K)]
    return [(at, min(size, after)) for at, after in zip(ends, [*ends[1:], size], strict=True) if at < size]


@pytest.mark.parametrize("name", NARROW)
@given(choices=st.fixed_dictionaries(SPACE))
@settings(max_examples=12, deadline=None)
def test_no_legal_schedule_changes_what_is_added_up_where(name: str, choices: dict[str, Any]) -> None:
    try:
        program = program_of(name, Schedule(**choices))
    except ScheduleError:
        assume(False)
        return
    target = BACKEND.matrix(write_kernel(program))
    if target is None:
        # Blocks of other rows and columns than tensor cores take: a search leaves them out.
        best = accumulation_unit(program_of(name, Schedule(block=(64, 64, 64))), BACKEND.machine)
        found = {"best": best, "this": accumulation_unit(program, BACKEND.machine)}
        assert list(with_other_bits(found, BACKEND.machine)) == (["this"] if name != "i8" else [])
        rows, columns, _ = choices["block"]
        assert name == "i8" or rows % 64 or rows * columns >= 192 * 200
        return
    promoted = [(at, min(K, at + 128)) for at in range(0, K, 128)]
    assert recipe_of(target) == (promoted if name in ("e4m3", "e5m2") else [(0, K)])


@pytest.mark.parametrize("columns", [8, 24, 32, 40, 48, 200, 256])
def test_dots_of_integers_have_columns_that_there_are_instructions_for(columns: int) -> None:
    """In 16s from 32 on, where floats take all eights; others are added up by multiply-adds, and as exact."""
    is_there = columns % 16 == 0 or columns < 32
    for name, wanted in (("i8", is_there), ("bf16", True)):
        made = BACKEND.matrix(write_kernel(program_of(name, Schedule(block=(64, columns, 64)), (64, columns, 64))))
        assert (made is not None) == wanted


def simulated(block: tuple[int, int, int], sides: list[Any], stages: int | None = None) -> Any:
    """What a matrix kernel gives, sums inside of the units exact, those outside of them f32."""
    schedule = Schedule(block=block, stages=stages)
    target = BACKEND.matrix(write_kernel(program_of("e4m3", schedule, (64, 64, sides[0].shape[1]))))
    assert target is not None
    out = np.full((64, 64), np.nan, np.float32)
    simulate(target, [*sides, out], {})
    return out


def test_depths_and_stages_give_the_same_bits_when_the_recipe_is_carried_out() -> None:
    rng = np.random.default_rng(7)
    sides = [
        (rng.standard_normal((64, 648)) * 2.0 ** rng.integers(-6, 7, (64, 648))).astype(ml_dtypes.float8_e4m3fn)
        for _ in range(2)
    ]
    a, b = (side.astype(np.float64) for side in sides)
    wanted = np.zeros((64, 64), np.float32)
    for at in range(0, 648, 128):
        wanted = (wanted.astype(np.float64) + a[:, at : at + 128] @ b[:, at : at + 128].T).astype(np.float32)
    assert (wanted != (a @ b.T).astype(np.float32)).any(), "what is compared depends on where sums are rounded"
    for depth in (16, 32, 64, 96, 128, 192, 256, 384):
        np.testing.assert_array_equal(simulated((64, 64, depth), sides), wanted)
    for stages in (1, 2, 4):
        np.testing.assert_array_equal(simulated((64, 64, 64), sides, stages), wanted)


def test_a_deep_step_is_several_reductions_one_after_the_other() -> None:
    target = BACKEND.matrix(write_kernel(program_of("e4m3", Schedule(block=(64, 64, 256)))))
    assert target is not None
    text = BACKEND.code(target).text
    # Eight instructions of 32 dots; each four begin from nothing, and are waited for.
    assert text.count("wgmma.mma_async") == 8
    assert text.count("wgmma.wait_group") == 2


@kernel(Schedule(block=(128, 128, 128)))
def scaled(a: KTile["M", "K"], s: KTile["M", "T", f32], b: KTile["N", "K"]) -> KTile["M", "N", f32]:
    """A dot whose steps are scaled before they are added."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        part = tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=T.n, cols=k).T)
        acc += tile.per_block(part * tile.load(s, T.m, k.start // 128)[:, None])
    return acc


def test_a_k_that_is_part_of_what_is_computed_is_reported_to_be() -> None:
    """So a search keeps to the first that a space has, as with the block of an online softmax."""
    side, scales = np.zeros((256, 512), ml_dtypes.float8_e4m3fn), np.zeros((256, 4), np.float32)
    assert scaled.program(side, scales, side).numeric == ("k",)
    assert product.program(side, side, total=ts.f32).numeric == ()
    for depth in (128, 256):
        made = scaled.with_schedule(Schedule(block=(64, 64, depth))).program(side, scales, side, kind="gpu")
        written = write_kernel(made)
        ExpandSoftmax().run_kernel(written)  # which drops the marks
        target = BACKEND.matrix(written)
        assert target is not None
        assert BACKEND.code(target).text.count("wgmma.wait_group") == depth // 128


def test_a_search_leaves_out_blocks_whose_reductions_have_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def device(_: Any) -> str:
        return "sm_90a"

    monkeypatch.setattr(tuning, "_device", device)
    search = tuning.Tuning({"BM": [32, 64, 192], "BN": [64, 256], "BK": [24, 128]}, "latency_ms", 10, "")
    sides = [np.zeros((256, 512), ml_dtypes.float8_e4m3fn)] * 2
    made = product.with_options(backend="cuda")
    kept = search._alike(made, list(search.space), sides, {"total": ts.f32})  # pyright: ignore[reportPrivateUsage]
    # Three groups of warps have no registers for 256 columns beside those on their way; no group has 32 rows.
    assert {one.block[:2] for one in kept} == {(64, 64), (64, 256), (192, 64)}
    assert {one.block[2] for one in kept} == {24, 128}
    assert {one.block[:2] for one, _ in search.dropped} == {(32, 64), (32, 256), (192, 256)}
    assert all(
        why == "its accumulators are those of multiply-adds, and have other bits than those of wgmma"
        for _, why in search.dropped
    )
