"""Rewrites of kernels keep their meaning: tiles become loops over their parts, unused ops are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import KTile, Schedule, f32, i64, kernel, tile
from tessera.backends.cpu.tile_loops import TileLoops
from tessera.compiler.kernel_trial import results_for
from tessera.ir.base.types import TileAttr
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.records import TileOp, without_unused
from tessera.ir.tile.write_records import write_kernel
from tessera.types.dim import Dim
from tessera.types.shape import TensorType
from tests.kernel import kernels

SIZES = st.integers(1, 20)
BLOCKS = st.sampled_from([4, 5, 8, 12])


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(kernel: Any, program: Any, operands: list[Any]) -> list[Any]:
    results = results_for(program)
    run_kernel(kernel, [*operands, *results], {})
    return results


def check_loops(kernel: Any, program: Any, operands: list[Any], lanes: int) -> None:
    """A kernel has the same bits as loops over parts of its tiles, of which none but those of dots is large."""
    other = TileLoops(kernel, lanes).run()
    verify(other)
    for op in other.walk():
        for result in op.results:
            is_of_dot = op.name == "ttile.dot" or any(use.operation.name == "ttile.dot" for use in result.uses)
            if isinstance(result.type, TileAttr) and not is_of_dot:
                assert (result.type.data.size.value or 0) <= 8 * 8 * lanes
    for first, second in zip(run(kernel, program, operands), run(other, program, operands), strict=True):
        np.testing.assert_array_equal(first, second)


@settings(max_examples=12)
@given(SIZES, SIZES, SIZES, BLOCKS, BLOCKS, BLOCKS)
def test_loops_over_a_dot_have_its_bits(M: int, K: int, N: int, m: int, n: int, k: int) -> None:
    operands = [normal(M, M, K), normal(N, K, N)]
    program = kernels.matmul.with_schedule(Schedule(block=(m, n, k))).program(*operands)
    check_loops(write_kernel(program), program, operands, 4)


@settings(max_examples=8)
@given(SIZES, SIZES, st.booleans())
def test_loops_keep_attention(S: int, L: int, causal: bool) -> None:
    operands = [normal(S, 1, S, 8), normal(L, 1, L, 8), normal(L + 1, 1, L, 8)]
    split = kernels.flash.with_schedule(Schedule(block=(8, 8)))
    program = split.program(*operands, causal=causal and S <= L)
    check_loops(write_kernel(program), program, operands, 4)


@kernel
def swapped(
    x: KTile["M", "N", f32], y: KTile["M", "N", f32], out: KTile["M", "N", f32], last: KTile["M", "N", f32]
) -> Any:
    """Two tiles that change places in each iteration, and one that is transposed in each."""
    one, other = tile.load(x, slice(None), slice(None)), tile.load(y, slice(None), slice(None))
    square = tile.load(x, slice(None), slice(None))
    for _ in tile.steps(5, by=2):
        one, other, square = other, one + 1.0, tile.transpose(square) * 2.0
    tile.store(out, one - other, slice(None), slice(None))
    tile.store(last, square, slice(None), slice(None))


@kernel
def reduced(x: KTile["M", "N", f32], out: KTile["N", f32], rows: KTile["M", f32], sums: KTile["M", f32]) -> None:
    """Columns and rows reduced, and rows of what is summed down columns."""
    v = tile.load(x, slice(None), slice(None))
    tile.store(out, tile.sum(v, 0), slice(None))
    tile.store(rows, tile.max(v, 1), slice(None))
    tile.store(sums, tile.sum(tile.scan(v, "sum", 0), 1), slice(None))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("made", [swapped, reduced])
def test_loops_keep_carried_tiles_and_reductions(made: Any, lanes: int) -> None:
    operands = [normal(3, 40, 40), normal(4, 40, 40)] if made is swapped else [normal(3, 40, 75)]
    program = made.program(*operands)
    check_loops(write_kernel(program), program, operands, lanes)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_loops_find_the_first_of_equals_and_nan(kind: str, axis: int) -> None:
    count, name = ((100, "_c"), (21, "_r"))[axis]
    types = [TensorType.of([21, 100], f32), TensorType.of([count], i64)]
    b = TileBuilder("k", types, symbols=(), grid=(1,), writes=(1,), kind="map")
    zero = b.index(0)
    whole = TileRegion({"_r": zero, "_c": zero}, ("_r", "_c"), (21, 100))
    tile_in = b.load(b.arguments[0], (Dim.symbol("_r"), Dim.symbol("_c")), whole)
    found = b.arg_reduce(tile_in, b.coordinate_of(Dim.symbol(("_r", "_c")[axis]), whole), kind, axis)
    b.store(found, b.arguments[1], (Dim.symbol(name),), TileRegion({name: zero}, (name,), (count,)))
    source = b.finish()
    x = normal(5, 21, 100).round()
    x[3, 7] = x[9, 7] = x[3, 40] = np.nan
    for lanes in (4, 16):
        results: list[Any] = [np.zeros(count, np.int64) for _ in range(2)]
        for one, result in zip((source, TileLoops(source, lanes).run()), results, strict=True):
            run_kernel(one, [x, result], {})
        np.testing.assert_array_equal(results[0], results[1])


def test_what_nothing_reads_is_left_out_and_stores_and_loops_stay() -> None:
    program = kernels.matmul.program(normal(0, 5, 6), normal(1, 6, 7))
    body = program.body
    before = [op.name for op in body.ops]
    program.types.append(program.types[-1])
    body.ops.insert(len(body.ops) - 1, TileOp("constant", (), {"value": 1.0}, (len(program.types) - 1,)))
    assert [op.name for op in body.ops] != before
    without_unused(body)
    assert [op.name for op in body.ops] == before
