"""Kernels of bodies as tiles: their grids, how often rows are walked, what is kept, and what every cast rounds."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.types import shaped_type
from tessera.ir.schedule.emit.rows import GROUP, WIDE, plan_passes
from tessera.ir.schedule.program import row_space
from tessera.ir.tile.passes.check_bounds import PROVEN, REFUTED, UNKNOWN, examine
from tessera.ir.tile.passes.check_races import find_race
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.machine import Machine
from tessera.types.numerics import LEAF
from tests.backends.cpu.bodies import Writer, kernel_of, kernels_of
from tests.target.samples import BODIES

M, N, K = (Dim.symbol(name) for name in "MNK")
MACHINE = Machine("generic", lanes=8)


def kernel(body: Tape, **overrides: Any) -> SpecOp:
    return kernel_of(body, MACHINE, **overrides)


def ops(kernel: SpecOp, name: str) -> list[SpecOp]:
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == f"ttile.{name}"]


def steps(kernel: SpecOp) -> list[int]:
    """The steps of the loops of a kernel, less those within another one."""
    return [loop.value("step") for loop in ops(kernel, "for") if loop.parent_op() is kernel]


def shapes_of_scratch(kernel: SpecOp) -> list[tuple[Dim, ...]]:
    return [shaped_type(op.results[0]).shape for op in ops(kernel, "scratch")]


def softmax(dtype: DType = dt.f32) -> Tape:
    w = Writer()
    x = w.input([M, N], dtype)
    powers = w.exp(w.sub(x, w.max(x, axes=(1,), keepdims=True)))
    return w.body(w.div(powers, w.sum(powers, axes=(1,), keepdims=True)))


def test_a_contiguous_map_has_one_dim() -> None:
    w = Writer()
    made = kernel(w.body(w.relu(w.input([M, N, K]))))
    assert made.value("grid") == ((M * N * K).ceildiv(4096),)
    types = [str(argument.type) for argument in made.regions[0].block.args]
    assert types == [f"!ttile.buffer<[{M * N * K}], f32>"] * 2


def test_a_row_vector_keeps_rows_apart() -> None:
    w = Writer()
    made = kernel(w.body(w.add(w.input([M, N, K]), w.input([K]))))
    assert made.value("grid") == (M * N, K.ceildiv(4096))


def test_a_scalar_has_one_program() -> None:
    w = Writer()
    made = kernel(w.body(w.neg(w.input([]))))
    assert made.value("grid") == (Dim.constant(1),)
    assert not ops(made, "for")


def test_the_tile_is_a_choice() -> None:
    w = Writer()
    body = w.body(w.relu(w.input([N])))
    assert ops(kernel(body), "for")[0].value("step") == 16
    assert ops(kernel(body, **{"map.tile": 64}), "for")[0].value("step") == 64


def test_softmax_walks_its_row_three_times() -> None:
    """Once for the largest, in wide lanes as no order changes it; once for powers and their sum; once to divide.

    Of a symbolic row the second goes over whole leaves, and then over the one that may be left.
    """
    made = kernel(softmax())
    assert steps(made) == [WIDE, LEAF, 1, GROUP]
    assert made.value("grid") == (M,)


def test_a_value_that_is_dear_is_computed_once_and_kept() -> None:
    """The loops over leaves compute it, and the one that divides reads it from scratch."""
    made = kernel(softmax())
    found = [op for op in ops(made, "elementwise") if op.value("fn") == "exp"]
    loops = [loop for loop in ops(made, "for") if loop.parent_op() is made]
    assert found
    assert [any(op in list(loop.walk()) for op in found) for loop in loops] == [False, True, True, False]
    assert shapes_of_scratch(made)[0] == (N, Dim.constant(1))


def test_passes_follow_from_what_needs_what() -> None:
    body = softmax()
    plan = plan_passes(body, row_space(body, (1,)))
    top, _, powers, total, out = (record.results[0] for record in body.records)
    assert plan.ready == {top: 1, total: 2}
    assert (plan.stage[powers], plan.stage[out]) == (1, 2)
    assert plan.kept == [powers]
    assert plan.passes == 3


def test_reductions_that_need_nothing_of_each_other_share_a_pass() -> None:
    w = Writer()
    x = w.input([M, N])
    made = kernel(w.body(w.sum(x, axes=(1,)), w.max(x, axes=(1,)), w.argmax(x, axes=(1,))))
    assert steps(made) == [LEAF, 1]
    w = Writer()
    x = w.input([M, 32])
    made = kernel(w.body(w.sum(x, axes=(1,)), w.max(x, axes=(1,)), w.argmax(x, axes=(1,))))
    assert len(ops(made, "load")) == 1


@pytest.mark.parametrize(
    ("axes", "grid"),
    [
        ((2,), (M * N,)),
        ((1, 2), (M,)),
        ((0, 1, 2), (Dim.constant(1),)),
        ((0,), ((N * K).ceildiv(64),)),
        ((1,), (M, K.ceildiv(64))),
        ((0, 1), (K.ceildiv(64),)),
        ((0, 2), (N,)),
    ],
    ids=str,
)
def test_the_grid_of_a_reduction(axes: tuple[int, ...], grid: tuple[Dim, ...]) -> None:
    """Rows where the last axis is reduced; strips of columns, eight vectors wide, where it is not."""
    w = Writer()
    assert kernel(w.body(w.sum(w.input([M, N, K]), axes=axes))).value("grid") == grid


def test_columns_that_take_several_passes_or_fit_a_register_have_no_strips() -> None:
    """Sums that wait in scratch pay where many columns are read once."""
    w = Writer()
    x = w.input([M, N])
    twice = w.body(w.sum(w.exp(w.sub(x, w.max(x, axes=(0,), keepdims=True))), axes=(0,)))
    assert kernel(twice).value("grid") == (N.ceildiv(8),)
    w = Writer()
    few = kernel(w.body(w.sum(w.input([M, 5]), axes=(0,))))
    assert few.value("grid") == (Dim.constant(1),)
    assert {width.value for _, width in shapes_of_scratch(few)} == {8}


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f64, dt.i8, dt.i32, dt.u8, dt.i64], ids=str)
def test_what_contractions_accumulate_in(dtype: DType) -> None:
    w = Writer()
    (dot,) = ops(kernel(w.body(w.matmul(w.input([M, K], dtype), w.input([K, N], dtype)))), "dot")
    wanted = {"f64": "f64", "i64": "i64"}.get(dtype.name, "f32" if dtype.is_float else "i32")
    assert str(dot.results[0].type) == f"!ttile.tile<[64, 128], {wanted}>"


def narrowings(kernel: SpecOp) -> list[str]:
    return [op.value("rounding") for op in ops(kernel, "cast") if op.value("rounding")]


def test_every_narrow_result_is_rounded_once() -> None:
    """Each op of the graph with a narrow float result is one edge that narrows, and one cast that says how."""
    w = Writer()
    total = w.add(w.input([N], dt.bf16), w.input([N], dt.bf16))
    made = kernel(w.body(w.relu(w.mul(total, w.cast(w.input([N], dt.f32), dtype=dt.bf16)))))
    assert narrowings(made) == ["nearest_even"] * 4
    w = Writer()
    assert narrowings(kernel(w.body(w.cast(w.input([N], dt.f32), dtype=dt.i8)))) == ["toward_zero"]
    w = Writer()
    assert narrowings(kernel(w.body(w.cast(w.input([N], dt.i32), dtype=dt.u8)))) == ["wrap"]
    w = Writer()
    assert narrowings(kernel(w.body(w.relu(w.input([N], dt.f32))))) == []


def test_a_box_of_no_elements_has_no_kernel() -> None:
    w = Writer()
    assert len(kernels_of(w.body(w.concat(w.input([N]), w.input([0]), axis=0)), MACHINE)) == 1


@pytest.mark.parametrize("name", BODIES)
def test_kernels_are_in_bounds_and_free_of_races(name: str) -> None:
    w = Writer()
    for made in kernels_of(w.body(BODIES[name](w)), MACHINE, name):
        verdicts = [finding.verdict for finding in examine(made)]
        assert REFUTED not in verdicts
        assert PROVEN in verdicts
        assert verdicts.count(UNKNOWN) <= (name == "gathered")
        assert find_race(made) is None
