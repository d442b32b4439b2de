"""What schedules and hints do to the code of a GPU: widths of accesses, stages of copies, warps and grids."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera import KTile, KVCache, Schedule, bf16, f32, kernel, tile
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.kernel_instance import KernelInstance, candidates
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.kernel.legality import busy_fraction, rank_blocks
from tessera.ir.target.machine_code import compile_text
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.kernel import document, kernels, test_pipelines, test_schedule
from tests.oracles.nvptx_backend import NvptxBackend

BACKEND = NvptxBackend()
NARROW = ml_dtypes.bfloat16
SQUARE = np.zeros((512, 512), NARROW)


def code_of(made: Any, *operands: Any, **statics: Any) -> Any:
    """The Target IR of a kernel, on tensor cores where it fits them."""
    written = write_kernel(made.program(*operands, kind="gpu", **statics))
    return BACKEND.matrix(written) or BACKEND.lower(written)


def ptx_of(made: Any, *operands: Any, **statics: Any) -> str:
    return compile_text(BACKEND.code(code_of(made, *operands, **statics)).text, BACKEND.code_target).decode()


@kernel
def doubled(x: KTile["M", "N", f32], *, vector: int = 0) -> Any:
    """Twice the tensor."""
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n, vector=vector) * 2.0


def test_accesses_are_as_wide_as_what_is_known_allows_unless_a_width_is_asked_for() -> None:
    x = np.zeros((64, 4096), np.float32)
    assert "ld.global.nc.v4" in ptx_of(doubled, x)
    for narrow in (doubled.with_schedule(Schedule(vector=2)), doubled):
        text = ptx_of(narrow, x, vector=0 if narrow.given else 2)
        assert "ld.global.nc.v2" in text
        assert "ld.global.nc.v4" not in text
    assert not re.search(r"ld\.global\S*\.v[24]", ptx_of(doubled, x, vector=1))


def test_a_width_of_rows_that_does_not_divide_is_masked_by_element() -> None:
    assert not re.search(r"ld\.global\S*\.v[24]", ptx_of(doubled, np.zeros((64, 4097), np.float32)))


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_programs_have_the_warps_they_ask_for(warps: int) -> None:
    target = code_of(doubled.with_schedule(Schedule(block=(4, 1024), warps=warps)), np.zeros((64, 4096), np.float32))
    assert target.value("threads") == 32 * warps


def test_one_kernel_under_three_schedules_is_three_codes_of_one_meaning() -> None:
    schedules = [Schedule(block=block, stages=stages) for block, stages in (((128, 128, 64), 2), ((128, 256, 64), 3))]
    texts = [ptx_of(test_schedule.product.with_schedule(one), SQUARE, SQUARE) for one in schedules]
    texts.append(ptx_of(test_schedule.product.with_schedule(Schedule(block=(64, 64, 64))), SQUARE, SQUARE))
    assert len(set(texts)) == 3
    assert all("wgmma.mma_async" in text for text in texts)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_rings_have_the_stages_that_are_asked_for(stages: int) -> None:
    asked = test_schedule.product.with_schedule(Schedule(block=(128, 128, 64), stages=stages))
    (ring,) = [op for op in code_of(asked, SQUARE, SQUARE).walk() if op.name == "ttarget.ring"]
    assert ring.value("stages") == stages


@kernel
def product_ahead(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16], *, ahead: int | None) -> Any:
    """A dot whose loop says how far copies are ahead of it."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k, prefetch=ahead):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return acc


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_prefetches_go_as_far_as_a_loop_asks(prefetch: int) -> None:
    written = write_kernel(product_ahead.program(SQUARE, SQUARE, kind="gpu", ahead=prefetch))
    assert {op.value("prefetch") for op in written.walk() if op.name == "ttile.for"} == {prefetch}  # type: ignore[attr-defined]
    (ring,) = [op for op in code_of(product_ahead, SQUARE, SQUARE, ahead=prefetch).walk() if op.name == "ttarget.ring"]
    assert ring.value("stages") == prefetch + 1


def test_a_pipeline_across_steps_goes_to_matrix_units() -> None:
    ahead = test_pipelines.ahead.with_schedule(Schedule(block=(128, 128, 64)))
    assert code_of(ahead, SQUARE, SQUARE, slots=2).name == "ttarget.matrix_kernel"
    plain = np.zeros((64, 64), np.float32)
    assert code_of(test_pipelines.ahead, plain, plain, slots=3).name == "ttarget.kernel"  # f32 has no tensor core


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("size", [512, 1024, 1100])
def test_a_triangle_has_about_half_of_the_programs(side: str, size: int) -> None:
    whole = test_schedule.product.with_schedule(Schedule(block=(128, 128, 64)))
    half = test_schedule.product.with_schedule(Schedule(block=(128, 128, 64)).triangular_only(side))
    operands = [np.zeros((size, size), NARROW)] * 2
    counts = [
        int(np.prod([dim.value or 0 for dim in one.program(*operands, kind="gpu").grid])) for one in (whole, half)
    ]
    blocks = -(-size // 128)
    assert counts[0] == blocks**2
    assert blocks * (blocks + 1) // 2 <= counts[1] <= (blocks + 1) ** 2 // 2
    assert code_of(half, *operands).name == "ttarget.matrix_kernel"


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("sizes", [(1, 1), (16, 16), (50, 50), (33, 33), (70, 20), (20, 70), (65, 17)], ids=str)
def test_every_block_of_a_triangle_is_computed_once(side: str, sizes: tuple[int, int]) -> None:
    M, N = sizes
    half = kernels.matmul.with_schedule(Schedule(block=(16, 16, 16)).triangular_only(side))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(M, 8)).astype(np.float32), rng.normal(size=(8, N)).astype(np.float32)
    whole = np.asarray(kernels.matmul(a, b))
    expected = np.tril(whole) if side == "lower" else np.triu(whole)
    np.testing.assert_array_equal(np.asarray(half(a, b)), expected)
    np.testing.assert_array_equal(np.asarray(half.run_tiles(a, b)), expected)
    half.with_options(debug=True)(a, b)  # no two programs write one cell


def test_the_block_that_keeps_most_of_the_machine_busy_is_chosen() -> None:
    machine = GPUS["sm_90a"]
    made = test_schedule.product
    blocks: list[tuple[int, ...]] = [(m, n, 64) for m in (128, 64, 256) for n in (128, 64, 256)]
    for M, N in ((512, 512), (4096, 4096), (1024, 4096), (8192, 14336)):
        operands = np.zeros((M, 512), NARROW), np.zeros((512, N), NARROW)

        def build(block: tuple[int, ...], operands: Any = operands) -> Any:
            return made.with_schedule(Schedule(block=block)).program(*operands, kind="gpu")

        first, *others = rank_blocks(blocks, build, machine)
        shares = {block: busy_fraction(build(block), block, machine) or 0.0 for block in blocks}
        legal = [block for block in others if made.legal([Schedule(block=block, warps=8)], *operands)]
        assert all(shares[first] >= shares[block] - 1e-3 for block in legal)
    assert rank_blocks(blocks, build, machine)[0] in ((128, 256, 64), (256, 128, 64))  # large ones for large dots


SHAPES = [
    *((512, 512, 512), (4096, 4096, 4096), (8192, 14336, 4096), (16, 8192, 4096), (128, 4096, 4096), (300, 700, 128)),
    *((256, 8192, 8192), (4097, 4097, 4097), (1000, 3000, 256), (2048, 2048, 2048), (12288, 1024, 768), (64, 64, 64)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_schedule_that_nobody_gives_is_found_legal_and_near_the_best_of_the_model(
    shape: tuple[int, int, int],
) -> None:
    M, N, K = shape
    operands, machine = (np.zeros((M, K), NARROW), np.zeros((K, N), NARROW)), GPUS["sm_90a"]
    made = kernel.auto(test_schedule.product.definition.function)
    found = made.discover(*operands)
    assert "found for sm_90a" in found.history()
    assert "at work" in found.history()
    chosen = made.with_schedule(found)
    chosen.check(*operands)

    def share(block: tuple[int, ...]) -> float:
        program = made.with_schedule(Schedule(block=block)).program(*operands, kind="gpu")
        return busy_fraction(program, block, machine) or 0.0

    legal = made.legal([Schedule(block=(m, n, 64)) for m in (64, 128, 256) for n in (64, 128, 256)], *operands)
    assert share(found.block) >= 0.8 * max(share(one.block) for one in legal)
    assert code_of(chosen, *operands).name == "ttarget.matrix_kernel"
    assert chosen.discover(*operands) == found


@pytest.mark.parametrize("heads", [1, 8, 64])
def test_a_small_attention_stays_on_matrix_units(heads: int) -> None:
    operands = [np.zeros((heads, 256, 128), NARROW)] * 3
    made = kernel.auto(kernels.flash.definition.function)
    found = made.discover(*operands, causal=False)
    assert found.m is not None
    assert found.m % 64 == 0
    assert code_of(made.with_schedule(found), *operands, causal=False).name == "ttarget.matrix_kernel"


def test_a_schedule_that_is_given_stays_and_processors_have_theirs() -> None:
    given = test_schedule.product.with_schedule(Schedule(block=(64, 64, 64), stages=2))
    assert given.discover(SQUARE, SQUARE) == Schedule(block=(64, 64, 64), stages=2)
    assert kernels.softmax.discover(np.zeros((8, 40), np.float32), machine=Machine("generic")).m == 16
    with pytest.raises(ArgumentError, match="knows no machine 'sm_1'"):
        kernels.softmax.discover(np.zeros((8, 40), np.float32), machine="sm_1")


@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_of_the_document_has_code_for_a_gpu(causal: bool) -> None:

    q = np.zeros((2, 4, 256, 128), NARROW)
    cache = KVCache.empty(2, 4, 512, 128, bf16)
    for made in (document.small_attention, document.memory_limited_attention):
        assert "define ptx_kernel" in BACKEND.code(code_of(made, q, cache, dropout=0.0, causal=causal)).text


@pytest.mark.parametrize(("width", "rows"), [(229, 4), (1024, 4), (2048, 2), (4096, 1), (7168, 1)])
def test_wide_rows_are_taken_fewer_at_a_time(width: int, rows: int) -> None:
    definition, types = kernels.softmax.definition, [TensorType.of(["M", width], f32)]

    def build(block: tuple[int, ...]) -> Any:
        return KernelInstance(definition, {}, Schedule(block=block)).program(types, "gpu")

    usual = definition.complete(None, "gpu").block
    assert rank_blocks(candidates(usual, ()), build, GPUS["sm_90a"])[0][0] == rows


@pytest.mark.parametrize("size", [512, 8192])
def test_dots_without_tensor_cores_have_no_more_accumulators_than_threads_hold(size: int) -> None:
    operands = np.zeros((size, 64), np.float32), np.zeros((64, size), np.float32)

    def build(block: tuple[int, ...]) -> Any:
        return kernels.matmul.with_schedule(Schedule(block=block)).program(*operands, kind="gpu")

    m, n, _ = rank_blocks(candidates((128, 128, 64), ()), build, GPUS["sm_90a"])[0]
    assert m * n <= 128 * 128


def test_a_schedule_that_is_given_and_one_that_is_found_are_two_kernels() -> None:
    """Both have the same blocks on a CPU; on a GPU the kernel without a schedule keeps what was found for it."""
    made = kernel.auto(test_schedule.product.definition.function)
    usual = made.definition.complete(None, "cpu").block
    types = [TensorType.of([4096, 4096], bf16)] * 2
    found, given = (KernelInstance(made.definition, {}, one) for one in (None, Schedule(block=usual)))
    assert found.program(types).digest == given.program(types).digest
    names = [one.register_name(types) for one in (found, given)]
    assert names[0] != names[1]
    assert found.register_name(types) == names[0]
    assert given.register_name(types) == KernelInstance(made.definition, {}, Schedule(block=usual)).register_name(types)
