"""Short rows on a GPU: several to a program, as one tile, with the bits of the recipe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.tile.passes.check_races import find_race
from tessera.ir.tile.typed_ops import ForOp, KernelOp
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.emit.test_runs import kernels, numbers, outputs


def statistics(x: Any) -> Any:
    """Results of rows, an index, and one of the size of all."""
    mean = x.mean(axis=-1, keepdims=True)
    return ops.var(x, axis=-1), x.max(axis=-1), x.argmax(axis=-1), (x - mean) * 2.0


def over_two(x: Any) -> Any:
    return x.sum(axis=(1, 2)), x - x.max(axis=(1, 2), keepdims=True)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (statistics, (37, 5)),
        (statistics, (3, 4, 256)),
        (statistics, (2, 100)),
        (statistics, (301, 249)),
        (statistics, (301, 101)),
        (over_two, (50, 3, 7)),
    ],
)
def test_short_rows_have_the_bits_of_the_reference(function: Any, shape: tuple[int, ...]) -> None:
    x = numbers(np.float32, *shape)
    module = kernels(function, x)
    wanted = outputs(ts.jit(function, backend="reference")(x))
    assert [one.tobytes() for one in outputs(run_program(module, x))] == [one.tobytes() for one in wanted]
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert find_race(kernel) is None
    assert not any(isinstance(op, ForOp) for op in kernel.walk())


def total(x: Any) -> Any:
    return x.sum(axis=-1)


def test_a_program_has_as_many_rows_as_fill_a_tile() -> None:
    def grid(*shape: int) -> list[int | None]:
        module = kernels(total, np.broadcast_to(np.float32(0), shape))
        (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
        return [dim.value for dim in kernel.grid]

    assert grid(1 << 20, 8) == [(1 << 20) // 256]
    assert grid(1 << 20, 128) == [(1 << 20) // 16]
    # Fewer where there are few: each multiprocessor has a part.
    assert grid(1024, 64) == [256]


@pytest.mark.parametrize(("width", "rows"), [(256, 1), (255, 1), (132, 1), (128, 16), (100, 16), (101, 2), (61, 32)])
def test_a_warp_has_long_rows_and_such_as_begin_anywhere(width: int, rows: int) -> None:
    module = kernels(total, np.broadcast_to(np.float32(0), (1 << 20, width)))
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert kernel.grid[0].value == (1 << 20) // rows


def test_a_program_has_several_short_columns() -> None:
    def middle(x: Any) -> Any:
        return x.sum(axis=1), x - x.mean(axis=1, keepdims=True)

    x = numbers(np.float32, 6000, 5, 3)
    module = kernels(middle, x)
    wanted = outputs(ts.jit(middle, backend="reference")(x))
    assert [one.tobytes() for one in outputs(run_program(module, x))] == [one.tobytes() for one in wanted]
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert (kernel.grid[0].value or 6000) < 6000 // 8


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8)])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_tensor_without_elements_is_beside_what_is_reduced(shape: tuple[int, ...], axis: int) -> None:
    def both(x: Any) -> Any:
        return ops.exp(x), ops.exp(x).sum(axis=axis)

    x = np.zeros(shape, np.float32)
    whole, reduced = outputs(ts.jit(both)(x))
    assert whole.shape == shape
    assert reduced.tobytes() == x.sum(axis=axis).tobytes()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 2, 8)])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_tensor_without_elements_meets_what_it_was_reduced_to(shape: tuple[int, ...], axis: int) -> None:
    """What is kept between the two passes has no elements, and nothing writes it."""

    def around(x: Any) -> Any:
        return ops.cos(x.sum(axis=axis, keepdims=True)) + ops.cos(x)

    x = np.zeros(shape, np.float32)
    assert ts.jit(around)(x).shape == around(ts.asarray(x)).shape == shape

    def total(x: Any) -> Any:
        return ops.sin(x.sum(axis=axis)).sum() + ops.sin(x).sum()

    slope = ts.jit(ts.grad(total))(x)
    assert slope.shape == shape
