"""Loops over rows cut in two: rows that see each other are left as they are, and values are the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.registers import find_split
from tessera.ir.base.op import SpecOp
from tessera.ir.target.typed_ops import LoopOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, interpret, machines, values_of

M, R, C = Dim.symbol("M"), Dim.symbol("r"), Dim.symbol("c")
WIDTH = 128


def less_its_maximum(shift: int, saves: bool = False) -> SpecOp:
    """Each row of x becomes itself less its maximum, and is stored `shift` rows on; its maximum too with `saves`."""
    types = [TensorType.of([M + 8, WIDTH], f32), TensorType.of([M], f32)]
    b = TileBuilder("rows", types, symbols=["M"], grid=[1], writes=[0, 1] if saves else [0], kind="library")

    def body(row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"r": row, "c": b.index(0)}, ("c",), (WIDTH,), {})
        x = b.load(b.arguments[0], [R, C], region)
        most = b.reduce(x, "max", 0)
        line = b.elementwise("sub", x, b.broadcast(most, (WIDTH,), ()))
        b.store(line, b.arguments[0], [R + shift, C], region)
        if saves:
            b.store(most, b.arguments[1], [R], TileRegion({"r": row}, (), (), {}))
        return carried

    b.loop(b.index(0), b.index(M), 1, body)
    return b.finish()


def loops(kernel: SpecOp) -> list[LoopOp]:
    target = CpuBackend(machines()[0]).lower(kernel)
    return [op for op in target.walk() if isinstance(op, LoopOp)]


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 50])
def test_rows_are_what_they_are_one_by_one(rows: int, shift: int, saves: bool) -> None:
    kernel = less_its_maximum(shift, saves)
    rng = np.random.default_rng(rows)
    arrays = [values_of(rng, (rows + 8, WIDTH), f32), values_of(rng, (rows,), f32)]
    expected = interpret(kernel, arrays, {"M": rows})
    for machine in machines():
        assert_close(build(kernel, machine).run(arrays, {"M": rows}), expected)


def test_only_rows_that_keep_to_themselves_are_cut() -> None:
    (alone,) = loops(less_its_maximum(0))
    (next_row,) = loops(less_its_maximum(1))
    assert find_split(next_row) is None
    split = find_split(alone)
    assert split is not None
    assert [op.spec.short_name for op in split.first if op.spec.short_name != "index"] == ["load", "reduce"]
    assert not any(op.spec.short_name == "reduce" for op in split.second)
    assert len(split.saved) == 1
