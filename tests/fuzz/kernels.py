"""Kernels that random programs call, and the same by whole tensors in the words of NumPy."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

from tessera import KTile, kernel, tile


@kernel
def mix(x: KTile["M", "N"], y: KTile["M", "N"]) -> Any:
    """Elementwise: a product of two functions."""
    T = tile.context()
    left, right = tile.load(x, T.m, T.n), tile.load(y, T.m, T.n)
    return tile.tanh(left) * tile.sigmoid(right) + left * 0.25


@kernel
def scale_rows(x: KTile["M", "D"]) -> Any:
    """Rows over their root mean square."""
    T = tile.context()
    rows = tile.load(x, T.m, T.d)
    return rows * tile.rsqrt(tile.sum(rows * rows, 1) / float(T.d) + 0.5)[:, None]


@kernel
def share_rows(x: KTile["M", "D"]) -> Any:
    """The softmax of rows."""
    T = tile.context()
    return tile.softmax(tile.load(x, T.m, T.d))


KERNELS: dict[str, Any] = {"mix": mix, "scale_rows": scale_rows, "share_rows": share_rows}


def write_kernels(np: Any) -> dict[str, Any]:
    """The kernels by a library that has the names of NumPy."""

    def mix(x: Any, y: Any) -> Any:
        return np.tanh(x) / (1.0 + np.exp(-y)) + x * 0.25

    def scale_rows(x: Any) -> Any:
        return x / np.sqrt((x * x).mean(1, keepdims=True) + 0.5)

    def share_rows(x: Any) -> Any:
        powers = np.exp(x - x.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    return {"mix": mix, "scale_rows": scale_rows, "share_rows": share_rows}
