"""Matrix products: every result is one chain over k, bit for bit, whatever the plan, the path and the machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.backends.cpu.gemm import GemmPlan, GemmProblem, emit_gemm, scratch_bytes
from tessera.backends.cpu.micro_kernel import multiply_add
from tessera.backends.cpu.packing import Operand
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tests.backends.cpu.jit import Compiled, build, targets

Array = np.ndarray[Any, Any]
EXTENTS = (0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 97, 129)
ARGUMENTS = [*[("ptr", name) for name in ("out", "lhs", "rhs", "scratch")], *[("i64", name) for name in (
    "m", "n", "k", "lhs_row", "lhs_column", "rhs_row", "rhs_column")]]  # fmt: skip

each_target = pytest.mark.parametrize("target", targets(), ids=lambda target: f"lanes{target.lanes}")


@dataclass(frozen=True)
class Case:
    """Operand dtypes and the dtype of accumulators."""

    lhs: DType
    rhs: DType
    accumulator: DType

    def __str__(self) -> str:
        return f"{self.lhs}*{self.rhs}->{self.accumulator}"


CASES = (
    Case(dt.f32, dt.f32, dt.f32),
    Case(dt.f64, dt.f64, dt.f64),
    Case(dt.bf16, dt.bf16, dt.f32),
    Case(dt.f32, dt.f16, dt.f32),
    Case(dt.f8e4m3, dt.f8e5m2, dt.f32),
    Case(dt.i8, dt.u8, dt.i32),
    Case(dt.i32, dt.i32, dt.i32),
    Case(dt.i64, dt.i16, dt.i64),
    Case(dt.bool_, dt.i4, dt.i64),
)


def tiny(plan: GemmPlan) -> GemmPlan:
    """A plan that cuts every loop of the small matrices here, and never streams."""
    shape = plan.shape
    return replace(plan, MC=2 * shape.rows, KC=16, NC=shape.columns, MB=4 * shape.rows, skinny=0)


def run_gemm(
    f: FunctionText, plan: GemmPlan, case: Case, by_element: bool, known: tuple[int, int] | None = None
) -> None:
    """A kernel over whole matrices whose epilogue stores the accumulators."""
    out, lhs, rhs, scratch, m, n, k, *strides = f.arguments

    def epilogue(
        g: FunctionText, accs: list[Value], row: Value, column: Value, masks: list[Value] | None, frame: list[Value]
    ) -> None:
        base, columns = frame
        for v, acc in enumerate(accs):
            at = g.add(g.add(g.mul(row, columns), column), v * plan.shape.lanes)
            address = g.gep(base, at, plan.shape.element)
            convert.store(g, acc, address, case.accumulator, None if masks is None else masks[v])

    def element(dtype: DType) -> Any:
        def read(g: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
            base, by_row, by_column = frame
            at = g.add(g.mul(row, by_row), g.mul(column, by_column))
            return convert.load(g, g.gep(base, at, convert.storage_type(dtype)), dtype, 1)

        return read

    left = Operand(case.lhs, lhs, strides[0], strides[1])
    right = Operand(case.rhs, rhs, strides[2], strides[3])
    if by_element:
        left = Operand(case.lhs, element=element(case.lhs), frame=(lhs, strides[0], strides[1]))
        right = Operand(case.rhs, element=element(case.rhs), frame=(rhs, strides[2], strides[3]))
    rows, columns = known or (None, None)
    emit_gemm(f, plan, GemmProblem(0, m, 0, n, k, left, right, scratch, epilogue, (out, n), rows, columns))
    f.ret()


def chain(f: FunctionText, case: Case) -> None:
    """The definition: three loops and one accumulator."""
    out, lhs, rhs, _, m, n, k, *strides = f.arguments
    element = convert.compute_type(case.accumulator)

    def read(base: Value, dtype: DType, row: Value, column: Value, by: Sequence[Value]) -> Value:
        at = f.add(f.mul(row, by[0]), f.mul(column, by[1]))
        value = convert.load(f, f.gep(base, at, convert.storage_type(dtype)), dtype, 1)
        return convert.cast(f, value, dtype, case.accumulator)

    def one(row: Value, column: Value) -> None:
        def step(at: Value, acc: list[Value]) -> Value:
            a = read(lhs, case.lhs, row, at, strides[:2])
            return multiply_add(f, a, read(rhs, case.rhs, at, column, strides[2:]), acc[0])

        (total,) = f.loop(0, k, 1, step, [f.const(element, 0)])
        f.store(total, f.gep(out, f.add(f.mul(row, n), column), element))

    def every_column(row: Value) -> None:
        f.loop(0, n, 1, lambda column: one(row, column))

    f.loop(0, m, 1, every_column)
    f.ret()


@cache
def kernels(target: TargetText, case: Case) -> tuple[Compiled, int]:
    module = ModuleText(target)
    plan = GemmPlan.of(target, case.accumulator)
    run_gemm(module.function("default", ARGUMENTS), plan, case, by_element=False)
    run_gemm(module.function("tiny", ARGUMENTS), tiny(plan), case, by_element=False)
    if case.accumulator is case.lhs or case.lhs is dt.i8:
        run_gemm(module.function("element", ARGUMENTS), plan, case, by_element=True)
    chain(module.function("chain", ARGUMENTS), case)
    return build(module), scratch_bytes(plan)


def matrix(rng: np.random.Generator, rows: int, columns: int, dtype: DType, layout: str) -> Array:
    if dtype is dt.i4:
        values = rng.integers(-8, 8, (rows, columns))
    elif dtype.is_bool:
        values = rng.integers(0, 2, (rows, columns))
    elif dtype.is_float:
        values = rng.normal(size=(rows, columns))
    else:
        info = np.iinfo(numpy_dtype(dtype))
        values = rng.integers(info.min, info.max, (rows, columns), dtype=numpy_dtype(dtype), endpoint=True)
    array = values.astype(numpy_dtype(dtype))
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "strided":
        wide = np.zeros((2 * rows + 1, 3 * columns + 1), array.dtype)
        wide[: 2 * rows : 2, : 3 * columns : 3] = array
        return wide[: 2 * rows : 2, : 3 * columns : 3]
    return array


def align(size: int) -> Array:
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


def run(target: TargetText, case: Case, name: str, lhs: Array, rhs: Array) -> Array:
    kernel, size = kernels(target, case)
    (m, k), n = lhs.shape, rhs.shape[1]
    out = np.full((m, n), 77, numpy_dtype(case.accumulator))
    strides = [step // array.itemsize for array in (lhs, rhs) for step in array.strides]
    kernel(name, out, lhs, rhs, align(size), m, n, k, *strides)
    return out


def sizes(seed: int, count: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    return [tuple(int(extent) for extent in rng.choice(EXTENTS, 3)) for _ in range(count)]  # pyright: ignore[reportReturnType]


@each_target
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_path_gives_the_chain(target: TargetText, case: Case) -> None:
    rng = np.random.default_rng(1)
    layouts = itertools.cycle(itertools.product(("plain", "transposed", "strided"), repeat=2))
    names = ["default", "tiny"] + (["element"] if case.accumulator is case.lhs or case.lhs is dt.i8 else [])
    for (m, n, k), (left, right) in zip(sizes(len(str(case)), 70), layouts, strict=False):
        lhs, rhs = matrix(rng, m, k, case.lhs, left), matrix(rng, k, n, case.rhs, right)
        expected = run(target, case, "chain", lhs, rhs)
        for name in names:
            actual = run(target, case, name, lhs, rhs)
            np.testing.assert_array_equal(actual, expected, f"{name} {m}x{n}x{k} {left} {right}")


@each_target
def test_blocks_of_the_default_plan_do_not_show(target: TargetText) -> None:
    case = CASES[0]
    rng = np.random.default_rng(2)
    for m, n, k in ((3, 5000, 20), (7, 30, 1200), (100, 600, 1100), (801, 20, 600)):
        lhs, rhs = matrix(rng, m, k, dt.f32, "plain"), matrix(rng, k, n, dt.f32, "plain")
        np.testing.assert_array_equal(run(target, case, "default", lhs, rhs), run(target, case, "chain", lhs, rhs))


@each_target
@pytest.mark.parametrize("known", [(3, 40), (64, 64), (66, 128), (53, 129), (5, 16), (100, 1)], ids=str)
def test_known_sizes_save_code_and_change_nothing(target: TargetText, known: tuple[int, int]) -> None:
    module, case = ModuleText(target), CASES[0]
    plan = GemmPlan.of(target, dt.f32)
    run_gemm(module.function("known", ARGUMENTS), plan, case, by_element=False, known=known)
    whole = ModuleText(target)
    run_gemm(whole.function("known", ARGUMENTS), plan, case, by_element=False)
    assert len(module.text()) < len(whole.text())
    rng = np.random.default_rng(5)
    lhs, rhs = matrix(rng, known[0], 70, dt.f32, "plain"), matrix(rng, 70, known[1], dt.f32, "plain")
    out = np.zeros(known, np.float32)
    build(module)("known", out, lhs, rhs, align(scratch_bytes(plan)), *known, 70, 70, 1, known[1], 1)
    np.testing.assert_array_equal(out, run(target, case, "chain", lhs, rhs))


def test_machines_agree() -> None:
    rng = np.random.default_rng(3)
    lhs, rhs = matrix(rng, 65, 70, dt.f32, "plain"), matrix(rng, 70, 81, dt.f32, "transposed")
    first, *others = [run(target, CASES[0], "default", lhs, rhs) for target in targets()]
    for other in others:
        np.testing.assert_array_equal(first, other)
    np.testing.assert_allclose(first, lhs.astype(np.float64) @ rhs, rtol=1e-4, atol=1e-5)


def test_rows_are_the_same_alone_and_together() -> None:
    rng = np.random.default_rng(4)
    lhs, rhs = matrix(rng, 40, 100, dt.f32, "plain"), matrix(rng, 100, 130, dt.f32, "plain")
    target = targets()[-1]
    together = run(target, CASES[0], "default", lhs, rhs)
    for row in (0, 17, 39):
        np.testing.assert_array_equal(run(target, CASES[0], "default", lhs[row : row + 1], rhs)[0], together[row])
