"""Passes with sums on a CPU: bodies are written a few times, the longer the fewer, with the bits of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tests.schedule.emit.test_runs import numbers


def of_rows(x: Any) -> Any:
    return x.sum(axis=1), x.argmax(axis=1)


def of_columns(x: Any) -> Any:
    return (x.sum(axis=0),)


def of_parts(x: Any) -> Any:
    """A row is in several places."""
    return (x.sum(axis=(0, 2)),)


def bits(found: Any) -> list[bytes]:
    return [one.numpy().tobytes() for one in found]


# One element and several more than whole vectors, lanes and leaves have.
@pytest.mark.parametrize("size", [512, 515, 768, 1021, 1024, 2175])
@pytest.mark.parametrize("reduce", [of_rows, of_columns, of_parts])
def test_long_bodies_keep_the_bits_of_the_reference(reduce: Any, size: int) -> None:
    shapes = {of_rows: (2, size), of_columns: (size, 21), of_parts: (3, 2, size // 3 + 1)}
    x = numbers(np.float32, *shapes[reduce]) / np.float32(64)

    def fused(x: Any) -> Any:
        return reduce(ops.gelu(x))

    elements = ts.jit(ops.gelu)(x).numpy()
    assert bits(ts.jit(fused)(x)) == bits(ts.jit(reduce, backend="reference")(elements))


def test_long_bodies_are_written_a_few_times() -> None:
    def count(function: Any, what: str, *shape: int) -> int:
        compiled: Any = ts.jit(function)
        return compiled.lower(np.zeros(shape, np.float32)).tile.count(what)

    def long(x: Any) -> Any:
        return of_rows(ops.gelu(x))

    def long_columns(x: Any) -> Any:
        return of_columns(ops.gelu(x))

    assert count(long, '"erf"', 2, 4096) <= 16
    assert count(long_columns, '"erf"', 4096, 64) <= 16
    assert count(of_parts, "ttile.load %0", 3, 2, 4096) <= 8
    assert count(of_rows, "ttile.load %0", 2, 4096) <= 16
