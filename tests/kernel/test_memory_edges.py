"""Compiled loads and stores at ragged edges: canaries around the memory of every buffer stay as they were."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera import KTile, Schedule, kernel, tile
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.tile.write_records import write_kernel
from tests.backends.cpu.native import build, interpret, machines

SIZES = (1, 2, 3, 5, 7, 11, 13, 17, 31, 61)
SHAPES = [*zip(SIZES, SIZES, strict=True), *zip(SIZES, reversed(SIZES), strict=True), *((s, 127) for s in SIZES)]
DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f64": np.float64}


@kernel(Schedule(block=(8, 32)))
def copied(x: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n)


@kernel(Schedule(block=(8, 32)))
def transposed(x: KTile["M", "N"], out: KTile["N", "M"]) -> None:
    T = tile.context()
    tile.store(out, tile.load(x, rows=T.m, cols=T.n).T, T.n, T.m)


@kernel(Schedule(block=(8, 32)))
def evens(x: KTile["M", "N"], out: KTile["M", "N"]) -> None:
    """Every second column; the others stay as they were."""
    T = tile.context()
    chosen = tile.broadcast((tile.col_index() % 2 == 0)[None, :], (T.m, T.n))
    tile.store(out, tile.load(x, rows=T.m, cols=T.n), T.m, T.n, mask=chosen)


@kernel(Schedule(block=(8, 32)))
def shifted(x: KTile["M", "N"], out: KTile["M", "N"]) -> None:
    """Each row one column further: the last element is stored nowhere."""
    T = tile.context()
    tile.store(out, tile.load(x, rows=T.m, cols=T.n), T.m, slice(T.n.start + 1, T.n.start + 1 + T.n))


@kernel(Schedule(block=(16,)))
def doubled(x: KTile["N"]) -> Any:
    T = tile.context()
    return tile.load(x, T.m) + tile.load(x, T.m)


def check(made: Any, x: Any, machine: Any) -> Any:
    """The results of machine code in memory with canaries around each buffer, equal to those of the interpreter."""
    program = made.program(x)
    written = write_kernel(program)
    results = [np.full([dim.value or 0 for dim in one.shape], 7, numpy_dtype(one.dtype)) for one in program.results]
    expected = interpret(written, [x, *results], {})
    found = build(written, machine).run([x, *results], {})
    np.testing.assert_array_equal(found[0], x)  # what is read stays as it was
    for left, right in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(left, right)
    return found[1]


@pytest.mark.parametrize("machine", machines(), ids=lambda one: f"{one.bits}" if hasattr(one, "bits") else one.name)
def test_ragged_edges_of_thirty_shapes_leave_canaries_alone(machine: Any) -> None:
    assert len(SHAPES) == 30
    for number, shape in enumerate(SHAPES):
        name = list(DTYPES)[number % len(DTYPES)]
        x = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(DTYPES[name])
        np.testing.assert_array_equal(check(copied, x, machine), x)


@pytest.mark.parametrize("name", DTYPES)
def test_masked_transposed_and_shifted_stores_leave_canaries_alone(name: str) -> None:
    machine = machines()[0]
    for shape in ((1, 1), (3, 5), (7, 31), (13, 61)):
        x = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(DTYPES[name])
        np.testing.assert_array_equal(check(transposed, x, machine), x.T)
        masked = np.where(np.arange(shape[1]) % 2 == 0, x, np.asarray(7, x.dtype))
        np.testing.assert_array_equal(check(evens, x, machine), masked)
        moved = np.full(shape, 7, x.dtype)
        moved[:, 1:] = x[:, :-1]
        np.testing.assert_array_equal(check(shifted, x, machine), moved)
        flat = np.ascontiguousarray(x.reshape(-1) // np.asarray(3, x.dtype))
        twice = check(doubled, flat, machine)
        np.testing.assert_array_equal(twice, flat.astype(twice.dtype) + flat.astype(twice.dtype))


def test_the_canaries_find_a_store_that_ignores_its_edge() -> None:
    """The same copy with the bounds of its store taken away writes beyond the buffer, and is found."""
    x = np.ones((3, 5), np.float32)
    program = copied.program(x)
    (store,) = [op for op in program.body.ops if op.name == "store"]
    store.values = {**store.values, "bounds": tuple(-1 * bound // bound for bound in store.values["bounds"])}
    written = write_kernel(program)
    with pytest.raises(AssertionError, match="memory behind the buffer was written"):
        build(written, machines()[0]).run([x, np.zeros_like(x)], {})
