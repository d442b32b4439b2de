"""Shuffles, butterflies and votes: typed, with one meaning in the interpreter, on a CPU and for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import KTile, Schedule, f32, kernel, tile
from tessera.diagnostics.codes import KernelError, ShapeError
from tessera.frontend.kernel import reductions as language
from tessera.ir.base import block_ops
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.write_records import write_kernel
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType, bool_
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, fill, interpret, machines
from tests.oracles.nvptx_backend import NvptxBackend

WIDTHS = [1, 2, 4, 8, 16, 32]


def lane_kernel(rows: int, columns: int, dtype: DType, out: DType, write: Callable[[TileBuilder, Any], Any]) -> SpecOp:
    """A kernel of one program that does something to one tile."""
    types = [TensorType.of([rows, columns], dtype), TensorType.of([rows, columns], out)]
    b = TileBuilder("lanes", types, symbols=(), grid=(1,), writes=(1,), kind="library")
    i, j = (b.index(0) for _ in range(2))
    region = TileRegion({"i": i, "j": j}, ("i", "j"), (rows, columns))
    at = [Dim.symbol("i"), Dim.symbol("j")]
    b.store(write(b, b.load(b.arguments[0], at, region)), b.arguments[1], at, region)
    return b.finish()


def compare(made: SpecOp) -> list[Any]:
    """What the interpreter gives, after compiled code gave the same, and code for a GPU was written."""
    verify(made)
    arrays = fill(made, {})
    expected = interpret(made, arrays, {})
    for machine in machines():
        assert_close(build(made, machine).run(arrays, {}), expected)
    assert "define ptx_kernel" in NvptxBackend().code(NvptxBackend().lower(made)).text
    return [arrays[0], expected[1]]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(block_ops.MODES),
    st.sampled_from(WIDTHS),
    st.integers(0, 31),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["f32", "f64", "i32", "bf16", "u8", "bool"]),
)
def test_shuffles_are_the_same_everywhere(mode: str, width: int, by: int, rows: int, segments: int, dtype: str) -> None:
    by, columns = by % width, width * segments

    def write(b: TileBuilder, x: Any) -> Any:
        return b.butterfly(x, by, width) if mode == "xor" else b.shuffle(x, mode, by, width)

    x, y = compare(lane_kernel(rows, columns, BY_NAME[dtype], BY_NAME[dtype], write))
    indices = [block_ops.partner(mode, by, width, index) for index in range(columns)]
    np.testing.assert_array_equal(y, x[:, indices])


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(list(block_ops.VOTES)), st.sampled_from(WIDTHS), st.integers(1, 2), st.integers(1, 3))
def test_votes_are_the_same_everywhere(kind: str, width: int, rows: int, segments: int) -> None:
    out = BY_NAME[block_ops.VOTES[kind]]
    x, y = compare(lane_kernel(rows, width * segments, bool_, out, lambda b, x: b.vote(x, kind, width)))
    for row in range(rows):
        for start in range(0, width * segments, width):
            said = x[row, start : start + width]
            wanted = {
                "any": said.any(),
                "all": said.all(),
                "count": said.sum(),
                "ballot": sum(1 << lane for lane in range(width) if said[lane]),
            }[kind]
            assert (y[row, start : start + width] == wanted).all()


@given(st.sampled_from(WIDTHS), st.integers(0, 31))
def test_a_butterfly_is_its_own_inverse_and_a_shuffle_stays_in_its_segment(width: int, by: int) -> None:
    by %= width
    crossed = [block_ops.partner("xor", by, width, lane) for lane in range(64)]
    assert [crossed[lane] for lane in crossed] == list(range(64))
    for mode in block_ops.MODES:
        assert all(block_ops.partner(mode, by, width, lane) // width == lane // width for lane in range(64))


def test_a_gpu_shuffles_with_its_own_instructions() -> None:
    """No shared memory: lanes of a warp ask each other, and votes are ballots."""
    made = lane_kernel(1, 64, BY_NAME["f32"], BY_NAME["f32"], lambda b, x: b.butterfly(x, 16))
    code = NvptxBackend().code(NvptxBackend().lower(made))
    assert "llvm.nvvm.shfl.sync.bfly.f32" in code.text
    assert code.shared == 0
    voted = lane_kernel(1, 32, bool_, BY_NAME["u32"], lambda b, x: b.vote(x, "ballot"))
    assert "llvm.nvvm.vote.ballot.sync" in NvptxBackend().code(NvptxBackend().lower(voted)).text


TEXT = """builtin.module attributes {{tessera.version = 4 : i64}} {{
  ttile.kernel @k() attributes {{symbols = [], grid = [1], writes = []}} {{
    %x = ttile.constant {{value = {value}}} : () -> !ttile.tile<{shape}>
    %y = ttile.{op} : (!ttile.tile<{shape}>) -> !ttile.tile<{out}>
    ttile.return
  }}
}}"""
REFUSED = {
    "width": ('shuffle %x {mode = "down", by = 1, width = 24}', "[48], f32", "", "of lanes up to 32, got 24"),
    "wide": ("butterfly %x {by = 1, width = 64}", "[64], f32", "", "up to 32, got 64"),
    "segments": ("butterfly %x {by = 1}", "[48], f32", "", "segments of 32 lanes must fill the last axis"),
    "by": ("butterfly %x {by = 8, width = 8}", "[32], f32", "", "must be in 0..7, as segments have 8 lanes, got 8"),
    "back": ('shuffle %x {mode = "up", by = -1}', "[32], f32", "", "`by` must be in 0..31"),
    "mode": ('shuffle %x {mode = "across", by = 1}', "[32], f32", "", "is one of down, up, index, got across"),
    "xor": ('shuffle %x {mode = "xor", by = 1}', "[32], f32", "", "got xor"),
    "type": ("butterfly %x {by = 1}", "[32], f32", "[32], i32", "f32"),
    "shape": ("butterfly %x {by = 1}", "[32], f32", "[1, 32], f32", "f32"),
    "number": ("butterfly %x {by = 0, width = 1}", "[], f32", "", "lanes run along the last axis"),
    "vote": ('vote %x {kind = "any"}', "[32], f32", "[32], bool", "lanes vote with bools, got f32"),
    "kind": ('vote %x {kind = "most"}', "[32], bool", "[32], bool", "is one of any, all, ballot, count, got most"),
    "ballot": ('vote %x {kind = "ballot"}', "[32], bool", "[32], bool", "gives u32 of its shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    op, shape, out, message = REFUSED[name]
    load_dialects()
    value = "false" if "bool" in shape else "0"
    with pytest.raises(OpError) as caught:
        verify(parse_module(TEXT.format(op=op, shape=shape, out=out or shape, value=value)))
    assert message in str(caught.value)


# The language.


@kernel
def total_by_butterflies(x: KTile["M", "D", f32]) -> KTile["M", "D", f32]:
    """Sums of segments of 32, by five exchanges; every lane has the sum."""
    T = tile.context()
    y = tile.load(x, rows=T.m, cols=T.d)
    for by in (16, 8, 4, 2, 1):
        y = y + tile.butterfly(y, by)
    return y


@kernel
def differences(x: KTile["M", "D", f32]) -> KTile["M", "D", f32]:
    """Each element less the one before it in its segment of 8; the first less itself."""
    T = tile.context()
    y = tile.load(x, rows=T.m, cols=T.d)
    return y - tile.shuffle(y, "up", 1, width=8)


@kernel
def positives(x: KTile["M", "D", f32]) -> Any:
    """How many of a segment are positive, and which."""
    T = tile.context()
    y = tile.load(x, rows=T.m, cols=T.d) > 0.0
    return tile.vote(y, "count", width=16), tile.vote(y, "ballot", width=16)


SMALL = Schedule(block=(4,))


def test_kernels_use_lanes() -> None:
    x = np.random.default_rng(0).integers(-8, 8, (7, 64)).astype(np.float32)
    for mode in ("__call__", "interpret", "run_tiles"):
        summed = np.asarray(getattr(total_by_butterflies.with_schedule(SMALL), mode)(x))
        np.testing.assert_array_equal(summed, np.repeat(x.reshape(7, 2, 32).sum(-1), 32, axis=-1))
        stepped = np.asarray(getattr(differences.with_schedule(SMALL), mode)(x)).reshape(7, 8, 8)
        np.testing.assert_array_equal(stepped[..., 1:], np.diff(x.reshape(7, 8, 8)))
        count, ballot = (np.asarray(one) for one in getattr(positives.with_schedule(SMALL), mode)(x))
        assert (count.dtype, ballot.dtype) == (np.int32, np.uint32)
        bits = (x.reshape(7, 4, 16) > 0) << np.arange(16)
        np.testing.assert_array_equal(ballot[:, ::16], bits.sum(-1))
        np.testing.assert_array_equal(count[:, ::16], (x.reshape(7, 4, 16) > 0).sum(-1))


def test_the_language_and_the_ops_know_the_same_votes_and_modes() -> None:
    """The front end is read without the compiler, so it has its own list."""
    assert language.VOTES == block_ops.VOTES
    assert (*language.SHUFFLES, "xor") == block_ops.MODES
    assert language.WARP == block_ops.WARP


@kernel
def bad_width(x: KTile["M", "D", f32]) -> Any:
    T = tile.context()
    return tile.butterfly(tile.load(x, rows=T.m, cols=T.d), 1)


@kernel
def bad_mode(x: KTile["M", "D", f32]) -> Any:
    T = tile.context()
    return tile.vote(tile.load(x, rows=T.m, cols=T.d))


def test_mistakes_are_told_at_their_line() -> None:
    with pytest.raises(ShapeError, match="segments of 32 lanes must fill the last axis, which has 48"):
        bad_width.with_schedule(SMALL)(np.zeros((4, 48), np.float32))
    with pytest.raises(KernelError, match="`vote` takes bools, got f32"):
        bad_mode.with_schedule(SMALL)(np.zeros((4, 32), np.float32))


@pytest.mark.parametrize("made", [total_by_butterflies, differences, positives], ids=lambda one: one.name)
def test_kernels_that_use_lanes_have_code_for_a_gpu(made: Any) -> None:
    program = made.program(np.zeros((64, 64), np.float32), kind="gpu")
    assert "define ptx_kernel" in NvptxBackend().code(NvptxBackend().lower(write_kernel(program))).text


@pytest.mark.parametrize("width", [1, 2, 8, 32])
@pytest.mark.parametrize("mode", ["xor", "up", "down", "index"])
def test_partners_stay_in_their_segment(mode: str, width: int) -> None:
    """As a warp's shuffle: by lanes of a segment, and whoever has no partner keeps its own."""
    for by in range(width):
        for index in range(64):
            lane, start = index % width, index // width * width
            other = {"xor": lane ^ by, "up": lane - by, "down": lane + by, "index": by}[mode]
            wanted = start + other if 0 <= other < width else index
            assert block_ops.partner(mode, by, width, index) == wanted
