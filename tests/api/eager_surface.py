"""What users write with tensors outside `jit`, as functions of two matrices and a vector, for any device."""

# They are lambdas, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, ops, tile

X = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)
Y = np.array([[2.0, 2.0, -1.0], [0.25, 8.0, 3.0]], np.float32)
I = np.array([1, 0, 1, -1], np.int32)  # noqa: E741

WRITTEN: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y, i: x + y,
    "x - 1": lambda x, y, i: x - 1,
    "2.5 * x": lambda x, y, i: 2.5 * x,
    "1 / x": lambda x, y, i: 1 / x,
    "x ** 2": lambda x, y, i: x**2,
    "x @ y.T": lambda x, y, i: x @ y.T,
    "-x": lambda x, y, i: -x,
    "abs(x)": lambda x, y, i: abs(x),
    "x > y": lambda x, y, i: x > y,
    "x == 3": lambda x, y, i: x == 3,
    "~(x < 0)": lambda x, y, i: ~(x < 0),
    "x[1:]": lambda x, y, i: x[1:],
    "x[0]": lambda x, y, i: x[0],
    "x[:, ::-1]": lambda x, y, i: x[:, ::-1],
    "x[i]": lambda x, y, i: x[i],
    "x[[1, 0]]": lambda x, y, i: x[[1, 0]],
    "x.sum()": lambda x, y, i: x.sum(),
    "x.max(axis=1)": lambda x, y, i: x.max(axis=1),
    "x.reshape(3, 2)": lambda x, y, i: x.reshape(3, 2),
    "x.T": lambda x, y, i: x.T,
    "x.astype(bf16)": lambda x, y, i: x.astype(ts.bf16),
    "i // 2": lambda x, y, i: i // 2,
    "i + x[0, 0].astype(i32)": lambda x, y, i: i + x[0, 0].astype(ts.i32),
    "zeros_like": lambda x, y, i: ops.zeros_like(x) + ops.full_like(x, 2.5) * ops.ones_like(y),
    "dropout": lambda x, y, i: ts.random.dropout(x, ts.random.key(3), 0.5),
    "relu": lambda x, y, i: ops.relu(x),
    "softmax": lambda x, y, i: ops.softmax(x, axis=-1),
    "where": lambda x, y, i: ops.where(x > 0, x, y),
    "concat": lambda x, y, i: ops.concat([x, y], axis=0),
    "cumsum": lambda x, y, i: x.cumsum(axis=1),
}


@ts.jit
def twice(x: Any) -> Any:
    return x + x


@kernel
def double(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0
