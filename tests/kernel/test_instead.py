"""Functions that are no part of the language: the error names what to write, and that is there."""

# What is refused has no types to give.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import KernelError
from tessera.frontend.kernel.suggestions import BINARY_REPLACEMENTS, REPLACEMENTS, SCALAR_NAMES, advice_for

X = np.ones((4, 8), np.float32)


@kernel
def clipped(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return np.clip(tile.load(x, T.m, T.n), 0.0, 1.0)  # pyright: ignore[reportCallIssue, reportArgumentType]


@kernel
def larger(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return max(tile.load(x, T.m, T.n), 0.0)  # pyright: ignore[reportArgumentType, reportCallIssue]


@kernel
def of_the_tensor(x: KTile["M", "N", ts.f32]) -> Any:
    return np.exp(x)  # pyright: ignore[reportCallIssue, reportArgumentType]


@kernel
def misspelt(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.maximun(tile.load(x, T.m, T.n), 0.0)  # pyright: ignore[reportAttributeAccessIssue]


@kernel
def unknown(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return np.fft.fft(tile.load(x, T.m, T.n))  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    ("function", "message", "fix"),
    [
        (clipped, "`np.clip` is not part of the kernel language", "tile.minimum(tile.maximum(x, low), high)"),
        (larger, "`max` is not part of the kernel language", "tile.maximum(a, b)"),
        (of_the_tensor, "`x` is a tensor in memory", "tile.load(x, rows=T.m, cols=T.n)"),
        (misspelt, "`tile.maximun` is not part of the kernel language", "tile.maximum"),
        (unknown, "`np.fft.fft` is not part of the kernel language", "on whole tensors outside of the kernel"),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_the_error_names_what_to_write(function: Any, message: str, fix: str) -> None:
    with pytest.raises(KernelError, match=re.escape(message)) as caught:
        function(X)
    assert caught.value.fix is not None
    assert fix in caught.value.fix.message


def test_all_that_is_named_is_there() -> None:
    texts = [*REPLACEMENTS.values(), *BINARY_REPLACEMENTS.values(), *(advice_for(name) for name in SCALAR_NAMES)]
    named = set(re.findall(r"tile\.(\w+)", " ".join(texts)))
    assert named >= SCALAR_NAMES
    assert all(hasattr(tile, name) for name in named)


@kernel
def times_a_number(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) * np.float32(2.5) + np.int64(1)


@kernel
def plus_an_array(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) + np.ones(8, np.float32)


def test_numbers_of_numpy_are_numbers_and_arrays_are_to_be_given() -> None:
    np.testing.assert_array_equal(np.asarray(times_a_number(X)), 3.5)
    with pytest.raises(KernelError, match="ndarray beside a tile") as caught:
        plus_an_array(X)
    assert caught.value.fix is not None
    assert "as a parameter" in caught.value.fix.message


@kernel
def power_of_a_tensor(x: KTile["M", "N", ts.f32]) -> Any:
    return tile.exp(x)


@kernel
def larger_of_tensors(x: KTile["M", "N", ts.f32]) -> Any:
    return tile.maximum(x, x)


@kernel
def tile_and_tensor(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.maximum(x, tile.load(x, T.m, T.n))


@kernel
def tensor_itself(x: KTile["M", "N", ts.f32]) -> Any:
    return x


@pytest.mark.parametrize("function", [power_of_a_tensor, larger_of_tensors, tile_and_tensor, tensor_itself])
def test_a_tensor_that_was_not_loaded_is_told_so(function: Any) -> None:
    with pytest.raises(KernelError, match="`x` is a tensor in memory, and kernels compute on tiles") as caught:
        function(X)
    assert caught.value.fix is not None
    assert "tile.load(x, rows=T.m, cols=T.n)" in caught.value.fix.message
