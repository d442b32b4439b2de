"""Programs that were once compiled wrongly."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops

X = np.random.default_rng(2).uniform(-2, 2, (67, 45))

FOUND: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a cast that cuts off, before a product": (lambda x: x.cast(ts.u8) @ x.cast(ts.u8).T, (X,)),
    "a cast that rounds, before a product": (lambda x: x.cast(ts.bf16) @ x.cast(ts.bf16).T, (X.astype(np.float32),)),
    "a cast there and back, before a product": (
        lambda x: x.cast(ts.f16).cast(ts.f32) @ x.cast(ts.f16).cast(ts.f32).T,
        (X.astype(np.float32),),
    ),
    "a cast that wraps, before a product": (
        lambda x: x.cast(ts.i8).cast(ts.i32) @ x.cast(ts.i8).cast(ts.i32).T,
        ((X * 100).astype(np.float32),),
    ),
    "a cast of bools, before a product": (lambda x: (x > 0).cast(ts.f16) @ (x > 0).cast(ts.f16).T, (X,)),
    "a gather of a value, and the value": (
        lambda i: i.cast(ts.f64) + ops.take(i.cast(ts.f64), i),
        (np.arange(9)[::-1].copy(),),
    ),
    "a cast that stops at the end of the range, between casts": (
        lambda x: x.cast(ts.f32).cast(ts.u8) @ x.cast(ts.f32).cast(ts.u8).T,
        ((X * 60).astype(np.int8),),
    ),
    "a cast that wraps between casts, before a product": (
        lambda x: x.cast(ts.u8).cast(ts.i32) @ x.cast(ts.u8).cast(ts.i32).T,
        ((X * 60).astype(np.int8),),
    ),
    "bits read otherwise, before a product": (
        lambda x: ops.bitcast(x, ts.f32) @ ops.bitcast(x, ts.f32).T,
        (X.astype(np.float32).view(np.int32),),
    ),
    "work before a cast, before a product": (
        lambda x: ops.relu(x[:, 1:]).cast(ts.i32) @ ops.sign(x)[:, 1:].cast(ts.i32).T,
        (X,),
    ),
    "two equal loops that compute something twice": (
        lambda x: sum(ts.scan(lambda c, r: (c * r + c * r, c), x[0], x)[1] for _ in range(2)),
        (X[:5, :3].copy(),),
    ),
    "a product summed in f64": (lambda x: ops.matmul(x, x.T, accumulate=ts.f64), (X.astype(np.float32),)),
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("dynamic", [True, False], ids=["free", "known"])
def test_found(name: str, dynamic: bool) -> None:
    function, arrays = FOUND[name]
    given = ts.jit(function, dynamic=dynamic)(*arrays)
    wanted = ts.jit(function, dynamic=dynamic, backend="reference")(*arrays)
    pairs = zip(given, wanted, strict=True) if isinstance(given, tuple) else [(given, wanted)]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
