"""Rows that many programs share: runs of leaves give the bits of whole rows, in whatever length, kind and dtype."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule.kinds import all_models
from tessera.ir.schedule.kinds.row import row_runs
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.tile.passes.check_races import find_race
from tessera.ir.tile.typed_ops import KernelOp
from tessera.stdlib.kernels import StandardLibrary
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import simplify

RNG = np.random.default_rng(3)
GPU = GPUS["sm_90a"]
RUNS = (0, 1, 2, 4, 8, 16, 32, 64)


def numbers(dtype: Any, *shape: int) -> Any:
    """Numbers of many sizes, so that the order of additions shows."""
    if np.issubdtype(dtype, np.integer):
        return RNG.integers(-9, 9, shape).astype(dtype)
    return (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-6, 7, shape)).astype(dtype)


def statistics(axis: Any) -> Callable[[Any], Any]:
    """Reductions of two levels, and of kinds whose order is free."""
    return lambda x: ((x * 2).sum(axis=axis), x.max(axis=axis), ops.var(x, axis=axis), x.argmax(axis=axis))


def centred(x: Any) -> Any:
    """A result of the size of the space, beside one of its rows."""
    mean = x.mean(axis=(0, 2), keepdims=True)
    return (x - mean) * 2.0, mean


def wholes(x: Any) -> Any:
    return x.sum(axis=0), x.prod(axis=0), (x > 8).any(axis=0), (x > -9).all(), x.argmin()


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rows": (statistics(1), numbers(np.float32, 3, 5000)),
    "rows of bf16": (statistics(1), numbers(ml_dtypes.bfloat16, 2, 2048)),
    "a single row": (lambda x: x.mean(), numbers(np.float64, 40000)),
    "columns": (statistics(0), numbers(np.float32, 2100, 37)),
    "a few columns": (statistics(0), numbers(np.float16, 5000, 3)),
    "inner columns": (statistics(1), numbers(np.float32, 2, 1500, 5)),
    "several axes": (centred, numbers(np.float32, 40, 3, 70)),
    "integers": (wholes, numbers(np.int32, 3000, 4)),
}


def outputs(found: Any) -> list[Any]:
    several = cast("Sequence[Any]", found) if isinstance(found, tuple | list) else (found,)
    return [np.asarray(one) for one in several]


def kernels(function: Callable[..., Any], x: Any, **overrides: Any) -> Any:
    """The host program of a function and its tile kernels, as the schedule stage makes them for a GPU."""
    module = simplify(ts.jit(function).trace(x).tape)
    for one in schedule.pipeline(GPU, StaticChooser(overrides, all_models()), StandardLibrary()):
        one.run(module)
    return module


@pytest.mark.parametrize(("name", "run"), list(zip(CASES, (1, 2, 64, 1, 2, 1, 2, 1), strict=True)))
def test_runs_have_the_bits_of_rows(name: str, run: int) -> None:
    function, x = CASES[name]
    wanted = outputs(ts.jit(function, backend="reference")(x))
    found = outputs(ts.jit(function, overrides={"row.runs": run})(x))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]


@pytest.mark.parametrize(("name", "run"), [("rows", 4), ("columns", 0), ("a few columns", 2), ("several axes", 1)])
def test_kernels_of_a_gpu_have_the_bits_of_the_reference(name: str, run: int) -> None:
    function, x = CASES[name]
    module = kernels(function, x, **{"row.runs": run})
    wanted = outputs(ts.jit(function, backend="reference")(x))
    assert [one.tobytes() for one in outputs(run_program(module, x))] == [one.tobytes() for one in wanted]
    for kernel in module.walk():
        assert not isinstance(kernel, KernelOp) or find_race(kernel) is None


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 5000])
def test_symbolic_rows_are_cut_too(size: int) -> None:
    def total(x: ts.Tensor["M", 3, ts.f32]) -> Any:
        return x.sum(), x.sum(axis=0), ops.var(x, axis=0)

    x = numbers(np.float32, size, 3)
    with np.errstate(all="ignore"):
        wanted = outputs(ts.jit(total, backend="reference")(x))
    found = outputs(ts.jit(total, overrides={"row.runs": 1})(x))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]


def test_softmax_keeps_its_bits() -> None:
    x = numbers(np.float32, 3, 4000)
    whole, cut = (ts.jit(ops.softmax, overrides={"row.runs": run})(x) for run in (0, 2))
    assert np.asarray(whole).tobytes() == np.asarray(cut).tobytes()


def test_each_level_is_two_kernels_with_memory_between() -> None:
    def both(x: Any) -> Any:
        return ops.var(x, axis=1), x - x.max(axis=1, keepdims=True)

    module = kernels(both, numbers(np.float32, 2, 4096), **{"row.runs": 1})
    names = [op.symbol.rpartition("_")[2] for op in module.walk() if isinstance(op, KernelOp)]
    assert names == ["runs0", "join0", "runs1", "join1", "full", "rows"]
    assert not fusions_in(module)


def choose(extent: int | str, programs: int | str, width: int = 1, shared: bool = True, machine: Machine = GPU) -> int:
    sizes = {"extent": Dim.of(extent), "programs": Dim.of(programs)}
    return row_runs(RUNS, {"machine": machine, **sizes, "width": width, "is_shared": shared})


def test_rows_are_cut_where_there_are_too_few_or_they_are_too_long() -> None:
    # A tensor of a gigabyte: as many blocks as keep all multiprocessors busy, each with as much as it can have.
    assert choose(1 << 28, 1) == 64
    # A megabyte: fewer leaves to each.
    assert 0 < choose(1 << 20, 1) <= 8
    # Small ones are one kernel.
    assert choose(4096, 1) == choose(50000, 8) == 0
    # So are rows that fill the machine, unless one is longer than a block holds.
    assert choose(8192, 4096) == choose("N", "M") == 0
    assert choose(64 * 56 * 56, 256) > 0
    # Columns: a block goes through its leaves one after the other.
    assert choose(4096, 256, width=32) == 0
    assert choose(1 << 20, 2, width=32) > 0
    assert choose("M", 2, width=32) > 0
    # What warps do not share has many more programs.
    assert choose(1 << 24, 1, shared=False) < choose(1 << 24, 1)


def test_cores_share_a_long_row() -> None:
    cpu = Machine("generic", lanes=8)
    assert choose(1 << 22, 1, machine=cpu) > 0
    assert choose(1 << 22, 64, machine=cpu) == choose(1 << 12, 1, machine=cpu) == 0
