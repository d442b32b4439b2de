"""The kernel library against the references of its ops, on ragged sizes, with dims free and fixed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.dialect import DIALECT
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.schedule.emit.request import Request
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.passes.check_races import find_race
from tessera.stdlib.kernels import LIBRARY, StandardLibrary
from tessera.stdlib.kernels.attention_parts import share_parts
from tessera.types import dtype as dt
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.graph.eager import reference, registry
from tests.numerics.bounds import assert_close
from tests.stdlib.running import assert_sound, kernels_of, run_library, typed

OPS = [spec for spec in registry() if type(spec.lower).__name__ == "Library"]
CASES = [(spec.short_name, sample) for spec in OPS for sample in spec.samples]


def test_every_library_op_has_a_kernel() -> None:
    assert {spec.lower.kernel for spec in OPS} == LIBRARY.keys()


def free_shapes(arrays: Any) -> list[list[str]]:
    """Every dim free; equal sizes get one name, as shape rules ask for equal dims."""
    return [[f"N{size}" for size in array.shape] for array in arrays]


def assert_attended(found: Array, wanted: Array, operands: list[Array], dtype: dt.DType = dt.f32) -> None:
    """A score is a chain over the head, a result one over the keys: each step may err by half an epsilon, both ways.

    A narrow result rounds once more.
    """
    steps = operands[0].shape[3] + operands[1].shape[2] + 8
    bound = steps * dtype.compute.epsilon + (dtype.epsilon if dtype is not dtype.compute else 0.0)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=bound, atol=bound)


@pytest.mark.parametrize(("op", "sample"), CASES, ids=[f"{op}: {sample.name}" for op, sample in CASES])
@pytest.mark.parametrize("is_free", [False, True], ids=["fixed", "free"])
def test_samples(op: str, sample: Any, is_free: bool) -> None:
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(5))]
    found = run_library(op, arrays, sample.attributes, free_shapes(arrays) if is_free else None)
    wanted: Any = reference(op, *arrays, **sample.attributes)
    results: list[Array] = [wanted] if len(found) == 1 else list(wanted)
    if op in ("attention_backward", "attention_backward_keys") or op.startswith("scored_attention"):
        spec = REGISTRY[op]
        assert_close(spec, arrays, spec.with_defaults(sample.attributes), found, f"{op}: {sample.name}")
        return
    for left, right in zip(found, results, strict=True):
        if op in ("attention", "cached_attention", "attention_with_lse", "attention_parts", "attention_join"):
            assert_attended(left, right, arrays)
        else:
            assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize(("parts", "filled"), [(9, None), (64, None), (70, 129), (40, 0), (33, 33 * 4)])
def test_parts_joined_by_lanes_have_the_bits_of_parts_in_order(parts: int, filled: int | None) -> None:
    """Maxima far apart, such as make factors 0, parts that saw nothing, and accumulators that overflow in a join."""
    rng = np.random.default_rng(parts)
    acc = (rng.standard_normal((1, 5, parts, 6)) * 2.0 ** rng.integers(-140, 127, (1, 5, parts, 1))).astype(np.float32)
    top = rng.integers(-150, 150, (1, 5, parts)).astype(np.float32)
    top[0, 0], top[0, 1, ::2] = -np.inf, -np.inf
    total = np.where(top == -np.inf, 0, 1 + rng.random(top.shape)).astype(np.float32)
    acc[top == -np.inf] = 0
    arrays, attributes = [acc, top, total], {"dtype": dt.f32, "keys": 0}
    if filled is not None:
        end = -(-filled // 4)
        acc[:, :, end:], top[:, :, end:], total[:, :, end:] = np.nan, np.nan, np.nan
        arrays, attributes = [*arrays, np.array(filled)], {"dtype": dt.f32, "keys": 4}
    with np.errstate(all="ignore"):
        (ordered,) = run_library("attention_join", arrays, attributes)
        (found,) = run_library("attention_join", arrays, attributes, machine=GPUS["sm_90a"])
    assert found.tobytes() == ordered.tobytes()
    assert "ttile.shuffle" in str(kernels_of("attention_join", typed(arrays, None), attributes, GPUS["sm_90a"])[0])


@pytest.mark.parametrize(("heads", "parts", "wanted"), [(8, 64, 16), (128, 64, 1), (12, 4, 4), (768, 4, 1), (1, 3, 3)])
def test_parts_are_shared_so_that_all_multiprocessors_are_done_together(heads: int, parts: int, wanted: int) -> None:
    assert share_parts(heads, parts, 132) == wanted


KINDS, SCANNED = ("sum", "prod", "max", "min"), (dt.f32, dt.bf16, dt.f64, dt.i8, dt.u32)
SCANS = list(enumerate(itertools.product(KINDS, SCANNED)))


@pytest.mark.parametrize(("number", "kind", "dtype"), [(number, *one) for number, one in SCANS])
def test_scans(number: int, kind: str, dtype: dt.DType) -> None:
    """Shapes take turns: each kind and each dtype meets all of them."""
    shape, axis = [((5, 37, 3), 1), ((3, 70), 0), ((4, 41), 1), ((2, 3, 33), 0)][number % 4]
    x = (np.random.default_rng(7).standard_normal(shape) * 3).astype(np.float32).astype(numpy_dtype(dtype))
    for reverse in (False, True):
        attributes = {"kind": kind, "axis": axis, "reverse": reverse}
        (found,) = run_library("cumulative", [x], attributes, [["A", "B", "C"][: x.ndim]])
        assert found.tobytes() == reference("cumulative", x, **attributes).tobytes()


@pytest.mark.parametrize(
    ("shape", "axis", "kernels"),
    [
        ((3, 5), 1, 1),
        ((18, 40), 1, 1),
        ((1, 9000), 1, 1),
        ((2, 17000), 1, 3),
        ((1, 70000), 1, 3),
        ((2, 270, 5), 1, 1),
        ((4200, 1, 2), 0, 1),
        ((3, 37, 50), 1, 1),
        ((2, 64, 700), 1, 1),
    ],
)
def test_scans_of_a_gpu(shape: tuple[int, ...], axis: int, kernels: int) -> None:
    """Chunks of short rows side by side, blocks of long ones one by one or shared, strips, and columns of threads."""
    gpu, x = GPUS["sm_90a"], np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    for reverse, kind in ((False, "sum"), (True, "max")):
        attributes = {"kind": kind, "axis": axis, "reverse": reverse}
        wanted = reference("cumulative", x, **attributes).tobytes()
        assert len(kernels_of("cumulative", typed([x], None), attributes, gpu)) == kernels
        for shapes in (None, [["A", "B", "C"][: x.ndim]]):
            (found,) = run_library("cumulative", [x], attributes, shapes, machine=gpu)
            assert found.tobytes() == wanted


@pytest.mark.parametrize("dtype", [dt.f16, dt.bf16, dt.f32], ids=str)
def test_rows_that_programs_share_carry_a_narrow_accumulator(dtype: dt.DType) -> None:
    gpu, x = GPUS["sm_90a"], np.random.default_rng(7).standard_normal((1, 16700)).astype(numpy_dtype(dtype))
    attributes = {"kind": "sum", "axis": 1, "accumulate": dt.bf16 if dtype is dt.bf16 else dt.f16}
    assert len(kernels_of("cumulative", typed([x], None), attributes, gpu)) == 3
    (found,) = run_library("cumulative", [x], attributes, machine=gpu)
    assert found.tobytes() == reference("cumulative", x, **attributes).tobytes()


@pytest.mark.parametrize("dtype", [dt.f16, dt.bf16, dt.i8, dt.i32, dt.f64], ids=str)
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_totals_of_rows_that_programs_share_are_as_wide_as_what_is_carried(dtype: dt.DType, kind: str) -> None:
    """A result that is rounded cannot hold them: they are in memory of their own between the kernels."""
    gpu, x = GPUS["sm_90a"], np.random.default_rng(7).standard_normal((3, 16700)) * 9
    x = x.astype(numpy_dtype(dtype))
    attributes = {"kind": kind, "axis": 1, "reverse": kind == "max"}
    kernels = kernels_of("cumulative", typed([x], None), attributes, gpu)
    assert [kernel.value("writes") for kernel in kernels] == [(2,), (2,), (1,)]
    assert all(find_race(kernel) is None for kernel in kernels)
    (found,) = run_library("cumulative", [x], attributes, machine=gpu)
    assert found.tobytes() == reference("cumulative", x, **attributes).tobytes()


@pytest.mark.parametrize(
    ("rows", "dtype", "kernels"),
    [(5, dt.bf16, 3), (260, dt.bf16, 3), (400, dt.bf16, 1), (140, dt.f32, 3), (260, dt.f32, 1), (500, dt.i8, 3)],
)
def test_programs_share_rows_that_alone_leave_memory_idle(rows: int, dtype: dt.DType, kernels: int) -> None:
    """By the bytes of blocks in flight, not by the number of rows alone."""
    kind = "max" if dtype is dt.i8 else "sum"
    types = [TensorType.of([rows, 1 << 20], dtype)]
    attributes = {"kind": kind, "axis": 1}
    assert len(kernels_of("cumulative", types, attributes, GPUS["sm_90a"])) == kernels


def test_a_scan_keeps_a_negative_zero_and_lets_nan_win() -> None:
    x = np.array([[-0.0, -0.0, np.nan, 1.0]], np.float32)
    (found,) = run_library("cumulative", [x], {"kind": "sum", "axis": 1})
    assert np.signbit(found[0, :2]).all()
    assert np.isnan(found[0, 2:]).all()


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.i16, dt.f64], ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 37), (3, 7, 1), (1, 4, 130), (2, 3, 0)])
def test_scatters(mode: str, dtype: dt.DType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(8)
    array = numpy_dtype(dtype)
    x = (rng.standard_normal(shape) * 9).astype(np.float32).astype(array)
    indices = rng.integers(0, shape[1] + (mode != "add"), 11)
    updates = (rng.standard_normal((shape[0], 11, shape[2])) * 9).astype(np.float32).astype(array)
    inner = shape[2] if shape[2] == 1 else "I"
    form = {"mode": mode, "drops": mode != "add"}
    (found,) = run_library("scatter_rows", [x, updates, indices], form, [["O", "A", inner], ["O", 11, inner], [11]])
    assert found.tobytes() == reference("scatter_rows", x, updates, indices, **form).tobytes()


@pytest.mark.parametrize("mode", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.i32, dt.u32, dt.i64, dt.u64], ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 37), (3, 7, 1), (1, 4, 130), (2, 3, 0)])
def test_integers_are_scattered_by_programs_in_any_order(mode: str, dtype: dt.DType, shape: tuple[int, ...]) -> None:
    """On a GPU programs share the indices, and none is another's to wait for."""
    rng, array = np.random.default_rng(8), numpy_dtype(dtype)
    x = rng.integers(0, 99, shape).astype(array)
    indices = rng.integers(0, shape[1] + 1, 11)
    updates = rng.integers(0, 99, (shape[0], 11, shape[2])).astype(array)
    inner = shape[2] if shape[2] == 1 else "I"
    form = {"mode": mode, "drops": True}
    shapes: list[list[Any]] = [["O", "A", inner], ["O", 11, inner], [11]]
    given, gpu = [x, updates, indices], GPUS["sm_90a"]
    (found,) = run_library("scatter_rows", given, form, shapes, machine=gpu)
    assert found.tobytes() == reference("scatter_rows", *given, **form).tobytes()
    _, writer = kernels_of("scatter_rows", typed(given, shapes), form, gpu)
    assert str(writer.value("grid")[-1]) == "3"
    assert find_race(writer) is None


@pytest.mark.parametrize(
    ("mode", "dtype"), [("add", dt.f32), ("add", dt.i16), ("mul", dt.i32), ("set", dt.i32)], ids=str
)
def test_rows_that_have_an_order_have_one_program(mode: str, dtype: dt.DType) -> None:
    array = numpy_dtype(dtype)
    given = [np.ones((2, 500, 70), array), np.ones((2, 11, 70), array), np.zeros(11, np.int64)]
    _, writer = kernels_of("scatter_rows", typed(given, None), {"mode": mode, "drops": True}, GPUS["sm_90a"])
    assert [str(size) for size in writer.value("grid")] == ["2", "1", "132"]
    assert "atomic" not in str(writer)


@pytest.mark.parametrize(
    ("shape", "count", "grid"),
    [
        # Columns of all rows, as few to a program as leave none idle; no more programs than rows of the result.
        ((2048, 2, 1), 128, ["1", "64", "2"]),
        ((1664, 1664, 1), 1664, ["1", "4", "66"]),
        ((300, 7, 3), 40, ["1", "29", "7"]),
        # Rows with columns enough have their own.
        ((2048, 2, 64), 128, ["2048", "1", "1"]),
        ((1, 3, 1), 50, ["1", "1", "3"]),
    ],
)
def test_rows_of_few_columns_are_columns_of_one_scatter(shape: tuple[int, ...], count: int, grid: list[str]) -> None:
    types = [TensorType.of(size, dt.f32) for size in (shape, (shape[0], count, shape[2]))]
    types = [*types, TensorType.of([count], dt.i64)]
    _, writer = kernels_of("scatter_rows", types, {"mode": "add", "drops": True}, GPUS["sm_90a"])
    assert [str(size) for size in writer.value("grid")] == grid


@pytest.mark.parametrize(
    ("mode", "dtype", "shape", "count"),
    [
        ("add", dt.f32, (70, 3, 1), 40),
        ("set", dt.f32, (70, 3, 1), 40),
        ("max", dt.f64, (33, 5, 3), 21),
        ("add", dt.i32, (33, 5, 3), 21),
        ("add", dt.f32, (600, 2, 1), 9),
        ("set", dt.f32, (600, 2, 1), 9),
    ],
    ids=str,
)
def test_scatters_of_rows_of_few_columns(mode: str, dtype: dt.DType, shape: tuple[int, ...], count: int) -> None:
    """Threads have columns of different rows; some indices write nothing, many are equal."""
    rng, gpu, array = np.random.default_rng(8), GPUS["sm_90a"], numpy_dtype(dtype)
    x, updates = ((rng.standard_normal(size) * 9).astype(array) for size in (shape, (shape[0], count, shape[2])))
    given, form = [x, updates, rng.integers(0, shape[1] + 1, count)], {"mode": mode, "drops": True}
    wanted = reference("scatter_rows", *given, **form).tobytes()
    for shapes in (None, [["O", shape[1], shape[2]], ["O", "N", shape[2]], ["N"]]):
        (found,) = run_library("scatter_rows", given, form, shapes, machine=gpu)
        assert found.tobytes() == wanted
    assert all(find_race(kernel) is None for kernel in kernels_of("scatter_rows", typed(given, None), form, gpu))


@pytest.mark.parametrize(
    ("mode", "shape", "count"),
    [("add", (2, 5, 37), 11), ("set", (1, 7, 5), 40), ("max", (1, 3, 600), 9), ("add", (1, 4, 1), 1100)],
)
def test_scatters_of_a_gpu(mode: str, shape: tuple[int, ...], count: int) -> None:
    """More updates of a row than a program takes at a time, more indices than it reads; some write nothing."""
    rng, few = np.random.default_rng(8), Machine("sm_90a", "gpu", 32, blocks=1)
    x = rng.standard_normal(shape).astype(np.float32)
    updates = rng.standard_normal((shape[0], count, shape[2])).astype(np.float32)
    given, form = [x, updates, rng.integers(0, shape[1] + 1, count)], {"mode": mode, "drops": True}
    wanted = reference("scatter_rows", *given, **form).tobytes()
    for shapes in (None, [["O", "A", "I"], ["O", "N", "I"], ["N"]]):
        (found,) = run_library("scatter_rows", given, form, shapes, machine=few)
        assert found.tobytes() == wanted


def test_scatters_along_two_axes() -> None:
    rng = np.random.default_rng(8)
    x, updates = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 3, 37), (2, 25, 37)))
    lines = [rng.integers(0, size + 1, 25) for size in (4, 3)]
    form = {"mode": "add", "drops": True}
    shapes: list[list[Any]] = [["O", "A", "B", "I"], ["O", "N", "I"], ["N"], ["N"]]
    for machine in (None, Machine("sm_90a", "gpu", 32, blocks=1)):
        (found,) = run_library("scatter_rows", [x, updates, *lines], form, shapes, machine=machine)
        assert found.tobytes() == reference("scatter_rows", x, updates, *lines, **form).tobytes()


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f8e5m2, dt.f64, dt.i64, dt.u8, dt.bool_], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sorts(dtype: dt.DType, descending: bool) -> None:
    x = np.random.default_rng(9).integers(-3, 4, (4, 45)).astype(np.float32)
    if dtype.is_float:
        x[:, ::7] = np.nan
        x[:, ::5] = -0.0
    x = np.abs(x).astype(numpy_dtype(dtype)) if dtype.kind == "uint" else x.astype(numpy_dtype(dtype))
    values, places = run_library("sort_rows", [x], {"descending": descending}, [["R", "N"]])
    wanted = reference("sort_rows", x, descending=descending)
    np.testing.assert_array_equal(places, wanted[1])
    np.testing.assert_array_equal(values.astype(np.float64), wanted[0].astype(np.float64))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("dtype", "key"), [(dt.f16, "i16"), (dt.bf16, "i16"), (dt.i8, "i8"), (dt.f32, "f32")], ids=str)
def test_long_rows_of_a_gpu_are_sorted_by_keys_of_few_bytes(dtype: dt.DType, key: str, descending: bool) -> None:
    """Zeros of both signs are equal and keep their order, whatever is NaN comes last, as it is."""
    rng, gpu = np.random.default_rng(4), GPUS["sm_90a"]
    x = (rng.integers(-40, 40, (2, 1500)) * rng.choice([0.25, 1.0], (2, 1500))).astype(numpy_dtype(dtype))
    if dtype.is_float:
        x[:, ::7], x[:, ::11], x[:, ::13], x[:, ::17], x[:, ::19] = np.nan, -0.0, 0.0, np.inf, -np.inf
        x[:, 3::23] = -np.nan
    attributes = {"descending": descending}
    (kernel,) = kernels_of("sort_rows", typed([x], None), attributes, gpu)
    assert f"!ttile.buffer<[1500], {key}>" in str(kernel)
    assert "!ttile.buffer<[1500], u16>" in str(kernel)
    found = run_library("sort_rows", [x], attributes, machine=gpu)
    for left, right in zip(found, reference("sort_rows", x, **attributes), strict=True):
        assert left.tobytes() == right.tobytes()


def test_four_bits_are_sorted_by_value() -> None:
    x = np.array([[3, -8, 7, -1, 3]], np.int8)
    values, places = run_library("sort_rows", [x], {"descending": True}, [["R", "N"]], dt.i4)
    assert values.tolist() == [[7, 3, 3, -1, -8]]
    assert places.tolist() == [[2, 0, 4, 3, 1]]


def heads(batch: int, many: int, few: int, queries: int, keys: int, size: int, dtype: dt.DType = dt.f32) -> list[Array]:
    rng = np.random.default_rng(10)
    shapes = ((batch, many, queries, size), (batch, few, keys, size), (batch, few, keys, size))
    return [rng.standard_normal(shape).astype(np.float32).astype(numpy_dtype(dtype)) for shape in shapes]


FREE = [["B", "H", "Q", "D"], ["B", "G", "K", "D"], ["B", "G", "K", "D"]]
FIXED_HEAD = [["B", 4, "Q", 16], ["B", 2, "K", 16], ["B", 2, "K", 16]]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(70, 70), (1, 131), (65, 300), (130, 64), (5, 0), (90, 7)])
def test_attention_over_several_blocks(causal: bool, queries: int, keys: int) -> None:
    arrays = heads(1, 4, 2, queries, keys, 16)
    wanted = reference("attention", *arrays, causal=causal)
    for shapes in (None, FREE, FIXED_HEAD):
        (found,) = run_library("attention", arrays, {"causal": causal}, shapes)
        assert_attended(found, wanted, arrays)


@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.f8e4m3, dt.f64], ids=str)
def test_attention_of_other_floats_rounds_once(dtype: dt.DType) -> None:
    arrays = heads(2, 2, 1, 9, 75, 8, dtype)
    (found,) = run_library("attention", arrays, {"causal": True, "scale": 0.3}, FREE)
    wanted = reference("attention", *arrays, causal=True, scale=0.3)
    assert_attended(found, wanted, arrays, dtype)


def test_a_head_that_is_taken_in_parts() -> None:
    arrays = heads(1, 2, 2, 5, 70, 150)
    wanted = reference("attention", *arrays)
    (free,) = run_library("attention", arrays, {}, FREE)
    (whole,) = run_library("attention", arrays)
    assert_attended(free, wanted, arrays)
    assert_attended(whole, wanted, arrays)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("filled", [0, 1, 70, 256, 300, 999, -2])
def test_nothing_beyond_the_length_of_a_cache_is_read(causal: bool, filled: int) -> None:
    q, k, v = heads(1, 4, 2, 5, 300, 16)
    kept = min(max(filled, 0), 300)
    k[:, :, kept:] = v[:, :, kept:] = np.nan
    wanted = reference("attention", q, k[:, :, :kept], v[:, :, :kept], causal=causal)
    for shapes in (None, [*FREE, []], [*FIXED_HEAD, []]):
        (found,) = run_library("cached_attention", [q, k, v, np.array(filled)], {"causal": causal}, shapes)
        assert_attended(found, wanted, [q, k])


@pytest.mark.parametrize("shape", [(70,), (66, 70), (1, 70), (2, 1, 1, 70), (4, 66, 1)])
def test_masks_are_stretched(shape: tuple[int, ...]) -> None:
    arrays = heads(2, 4, 2, 66, 70, 8)
    mask = np.random.default_rng(11).standard_normal(shape).astype(np.float32)
    mask[..., ::3] = -np.inf
    if mask.shape[-1] == 1:
        mask[:] = 0.5
    names = {2: "B", 4: "H", 66: "Q", 70: "K", 1: 1}
    shapes = [*FREE, [names[size] for size in shape]]
    (found,) = run_library("attention", [*arrays, mask], {"causal": True}, shapes)
    assert_attended(found, reference("attention", *arrays, mask, causal=True), arrays)


def test_blocks_of_queries_change_no_bit() -> None:
    arrays = heads(1, 2, 2, 75, 270, 16)
    spec, types = registry()["attention"], typed(arrays, FREE)
    attributes = spec.with_defaults({"causal": True})
    sizes = {"B": 1, "H": 2, "G": 2, "Q": 75, "K": 270, "D": 16}
    found: set[bytes] = set()
    for block in (32, 64, 128):
        out = np.zeros_like(arrays[0])
        for kernel in LIBRARY["attention"].build(
            "f", types, [types[0]], attributes, choose=lambda knob, candidates, block=block: block
        ):
            run_kernel(kernel, [*arrays, out], sizes)
        found.add(out.tobytes())
    assert len(found) == 1


SOUND: list[tuple[str, list[list[Any]], list[dt.DType], dict[str, Any], int]] = [
    ("cumulative", [["A", "B", "C"]], [dt.f32], {"kind": "sum", "axis": 1}, 0),
    ("cumulative", [["A", "B"]], [dt.f32], {"kind": "sum", "axis": 1, "reverse": True}, 0),
    ("scatter_rows", [["O", "A", "I"], ["O", "N", "I"], ["N"]], [dt.f32, dt.f32, dt.i64], {"mode": "add"}, 2),
    ("sort_rows", [["R", "N"]], [dt.f32], {}, 0),
    ("attention", FREE, [dt.f32] * 3, {"causal": True}, 3),
    ("attention", FIXED_HEAD, [dt.f32] * 3, {}, 0),
    ("cached_attention", [*FIXED_HEAD, []], [dt.f32] * 3 + [dt.i64], {"causal": True}, 2),
    ("attention_with_lse", FREE, [dt.f32] * 3, {"causal": True}, 3),
    ("attention_with_lse", FIXED_HEAD, [dt.f32] * 3, {}, 0),
    ("attention_parts", [["B", 8, 1, 16], ["B", 2, "K", 16], ["B", 2, "K", 16]], [dt.f32] * 3, {"keys": 256}, 2),
    ("attention_parts", [["B", 8, 1, 16], ["B", 2, 512, 16], ["B", 2, 512, 16]], [dt.f32] * 3, {"keys": 256}, 0),
    ("attention_join", [["B", "H", "P", "D"], *[["B", "H", "P"]] * 2], [dt.f32] * 3, {"dtype": dt.f32}, 0),
    ("join_segments", [["S", "A", "B"]], [dt.f32], {"dtype": dt.f32}, 0),
    ("kv_write", [["B", "H", "T", "D"], [], ["B", "H", "S", "D"]], [dt.f32, dt.i64, dt.f32], {}, 0),
]


@pytest.mark.parametrize(("op", "shapes", "dtypes", "attributes", "unknown"), SOUND, ids=[case[0] for case in SOUND])
def test_bounds_and_races(
    op: str, shapes: list[list[Any]], dtypes: list[dt.DType], attributes: dict[str, Any], unknown: int
) -> None:
    types = [TensorType.of(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    assert_sound(kernels_of(op, types, attributes), unknown)


def test_the_entry_that_the_compiler_calls() -> None:
    """A body whose op reads one input three times, and one whose second result no one wants."""
    assert "attention" in DIALECT
    body = Tape()
    x = body.new_value(TensorType.of(["B", 2, "S", 8], dt.f32))
    out = body.new_value(body.types[x])
    body.inputs, body.outputs = [x], [out]
    body.records = [Record("tgraph.attention", (x, x, x), {"causal": True, "scale": None}, (out,))]
    (kernel,) = StandardLibrary().emit("attention", Request("f", body, Machine("generic"), StaticChooser()))
    (array,) = heads(1, 2, 2, 70, 70, 8)[:1]
    result = np.zeros_like(array)
    run_kernel(kernel, [array, result], {"B": 1, "S": 70})
    assert_attended(result, reference("attention", array, array, array, causal=True), [array, array])

    body = Tape()
    x = body.new_value(TensorType.of(["R", "N"], dt.f32))
    values, places = body.new_value(body.types[x]), body.new_value(TensorType.of(["R", "N"], dt.i64))
    body.inputs, body.outputs = [x], [places]
    body.records = [Record("tgraph.sort_rows", (x,), {"descending": False}, (values, places))]
    (kernel,) = StandardLibrary().emit("sort", Request("g", body, Machine("generic"), StaticChooser()))
    array = np.array([[3, 1, 2]], np.float32)
    order = np.zeros((1, 3), np.int64)
    run_kernel(kernel, [array, order], {"R": 1, "N": 3})
    assert order.tolist() == [[1, 2, 0]]
