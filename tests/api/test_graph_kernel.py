"""`@graph.kernel`: bodies that write to destinations, and what they are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import graph, op, ops
from tessera.compiler.compile import lower_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import (
    ArgumentError,
    DonatedError,
    DTypeError,
    EffectError,
    KernelError,
    ShapeError,
)


@graph.kernel
def gemm(A: Any, B: Any, C: Any) -> None:
    C[:] = op.matmul(A, B)


@graph.kernel
def add_product(A: Any, B: Any, C: Any) -> None:
    C[:] += op.matmul(A, B)


@graph.kernel
def split(x: Any, low: Any, high: Any) -> None:
    low[...] = ops.minimum(x, 0.0)
    high[:, :] = ops.maximum(x, low[:])


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def test_the_snippet_of_the_document_is_one_matmul_and_a_tile_of_128_by_128() -> None:
    """It lowers into a matmul of Graph IR, a tile of Schedule IR, and matrix instructions of Tile IR."""
    a, b, c = (ts.zeros(shape, ts.bf16) for shape in ((2048, 1024), (1024, 1024), (2048, 1024)))
    found = lower_tape(gemm.trace(a, b, c).tape, Options(backend="cuda", features=("sm_90a",)))
    assert found["graph"].count("tgraph.matmul") == 1
    assert "chosen = [128, 128, " in found["schedule"]
    assert "ttile.dot" in found["tile"]


def test_what_is_written_is_returned() -> None:
    a, b = _draw(8, 16), _draw(16, 4)
    wanted = np.asarray(ts.array(a) @ ts.array(b))
    np.testing.assert_array_equal(np.asarray(gemm(ts.array(a), ts.array(b), ts.zeros((8, 4)))), wanted)
    np.testing.assert_array_equal(np.asarray(gemm(ts.array(a), ts.array(b))), wanted)


def test_an_array_is_written_in_place() -> None:
    a, b, c = _draw(8, 16), _draw(16, 4), np.full((8, 4), np.nan, np.float32)
    gemm(a, b, c)
    np.testing.assert_array_equal(c, np.asarray(gemm(a, b)))
    add_product(a, b, c)
    np.testing.assert_array_equal(c, np.asarray(gemm(a, b)) * 2)


def test_a_tensor_that_was_given_is_donated() -> None:
    a, b, c = ts.array(_draw(8, 16)), ts.array(_draw(16, 4)), ts.zeros((8, 4))
    gemm(a, b, c)
    with pytest.raises(DonatedError):
        c.tolist()


def test_a_destination_can_be_read_and_there_may_be_several() -> None:
    x = _draw(4, 4)
    low, high = split(ts.array(x), ts.zeros((4, 4)), ts.zeros((4, 4)))
    np.testing.assert_array_equal(np.asarray(low), np.minimum(x, 0))
    np.testing.assert_array_equal(np.asarray(high), np.maximum(x, np.minimum(x, 0)))


def test_inside_jit_it_is_part_of_the_program() -> None:
    @ts.jit
    def program(x: Any, y: Any) -> Any:
        return gemm(x, y, ts.zeros((8, 4))) + gemm(x, y)

    a, b = ts.array(_draw(8, 16)), ts.array(_draw(16, 4))
    np.testing.assert_array_equal(np.asarray(program(a, b)), np.asarray(gemm(a, b)) * 2)


def test_numbers_and_rows_are_broadcast_to_a_destination() -> None:
    @graph.kernel
    def fill(row: Any, C: Any, D: Any) -> None:
        C[:] = row
        D[:] = 2.0

    c, d = fill(ts.array([1.0, 2.0]), ts.zeros((3, 2)), ts.zeros((2, 2)))
    assert c.tolist() == [[1.0, 2.0]] * 3
    assert d.tolist() == [[2.0, 2.0]] * 2


def test_options_are_those_of_the_compiler() -> None:
    @graph.kernel(overrides={"map.tile": 16})
    def double(x: Any, out: Any) -> None:
        out[:] = x * 2.0

    assert 'chosen = 16 {source = "override", knob = "map.tile"}' in double.schedule(ts.ones(64), ts.ones(64))
    assert "tsched.fuse @mul" in double.lower(ts.ones(64)).schedule


# What it is held to.


def test_a_shape_or_a_dtype_that_does_not_fit_is_refused_with_both() -> None:
    a, b = ts.ones((8, 16)), ts.ones((16, 4))
    with pytest.raises(ShapeError, match=r"`C` is \[8, 5\] f32, and what is written to it is \[8, 4\] f32"):
        gemm(a, b, ts.zeros((8, 5)))
    with pytest.raises(DTypeError, match=r"`C` is \[8, 4\] f64"):
        gemm(a, b, ts.zeros((8, 4), ts.f64))


def test_memory_that_would_be_read_and_written_is_refused() -> None:
    square = ts.ones((4, 4))
    with pytest.raises(EffectError, match="`C` and `A` of `gemm` are one tensor"):
        gemm(square, ts.ones((4, 4)), square)


def test_other_effects_are_refused() -> None:
    @graph.kernel
    def loud(x: Any, out: Any) -> None:
        ts.debug_print("x = {}", x)
        out[:] = x

    with pytest.raises(EffectError, match="writes its destinations and nothing else"):
        loud(ts.ones(3), ts.ones(3))


def test_a_destination_is_written_once_as_a_whole_on_every_path() -> None:
    @graph.kernel
    def twice(x: Any, out: Any) -> None:
        out[:] = x
        out[:] = x * 2.0

    @graph.kernel
    def part(x: Any, out: Any) -> None:
        out[0:2] = x[0:2]

    @graph.kernel
    def never(x: Any, out: Any) -> None:
        if x.shape[0] > 100:
            out[:] = x

    @graph.kernel
    def returning(x: Any, out: Any) -> Any:
        out[:] = x
        return x

    for kernel, message in (
        (twice, "written twice"),
        (part, "a part of"),
        (never, "without writing"),
        (returning, "ret"),
    ):
        with pytest.raises(KernelError, match=message):
            kernel(ts.ones(4), ts.ones(4))


def test_a_destination_that_was_left_out_cannot_be_read() -> None:
    with pytest.raises(KernelError, match="nothing says what `C` is before it is written"):
        add_product(ts.ones((2, 2)), ts.ones((2, 2)))
    with pytest.raises(ArgumentError, match="the call gives no `high`"):
        split(ts.ones((4, 4)), ts.zeros((4, 4)))


def test_a_function_that_writes_nothing_is_no_kernel() -> None:
    with pytest.raises(KernelError, match="writes to none of its parameters"):

        @graph.kernel
        def plain(x: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            return x
