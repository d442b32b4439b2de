"""What follows the clip of a long line is written twice: both versions, and only what was asked about, are right."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, interpret, machines, values_of

N, M, I = Dim.symbol("N"), Dim.symbol("M"), Dim.symbol("i")  # noqa: E741 - the name of a coordinate
WIDTH = 128


def clipped_twice(carries: bool) -> SpecOp:
    """Lines of WIDTH: what lies beyond N is 1, then what lies beyond M is 2; the lines, and their sum."""
    types = [TensorType.of([1024], f32), TensorType.of([1024], f32), TensorType.of([1], f32)]
    b = TileBuilder("clipped", types, symbols=["N", "M"], grid=[1], writes=[1, 2], kind="library")

    def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": i}, ("i",), (WIDTH,), {})
        x = b.load(b.arguments[0], [I], region)
        line = b.clip(x, "i", 1.0, region.along(region.axes, region.sizes, {"i": N}))
        line = b.clip(line, "i", 2.0, region.along(region.axes, region.sizes, {"i": M}))
        b.store(line, b.arguments[1], [I], region)
        return [b.elementwise("add", carried[0], b.reduce(line, "sum", 0))] if carries else []

    start = [b.full(0.0, (), f32)] if carries else []
    sums = b.loop(b.index(0), b.index(1024), WIDTH, body, start)
    total = sums[0] if carries else b.full(0.0, (), f32)
    b.store(total, b.arguments[2], [Dim.constant(0)], TileRegion({}, (), (), {}))
    return b.finish()


@pytest.mark.parametrize("carries", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1024, 1024), (1024, 500), (500, 1024), (130, 257), (0, 128), (1, 0)])
def test_each_clip_is_asked_about(n: int, m: int, carries: bool) -> None:
    kernel = clipped_twice(carries)
    arrays = [values_of(np.random.default_rng(n + m), (size,), f32) for size in (1024, 1024, 1)]
    expected = interpret(kernel, arrays, {"N": n, "M": m})
    for machine in machines():
        assert_close(build(kernel, machine).run(arrays, {"N": n, "M": m}), expected)


def test_a_long_line_is_asked_about_once() -> None:
    """One branch decides for the line: the version without an edge compares no lanes."""
    backend = CpuBackend(machines()[0])
    text = backend.text(backend.lower(clipped_twice(carries=False)))
    assert f", {WIDTH}\n" in text
    # The second clip keeps its masks in both versions, the first has them in one.
    vectors = WIDTH // backend.machine.lanes
    assert text.count("select <") == 3 * vectors
