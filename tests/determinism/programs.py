"""Programs whose bits must not depend on anything but their inputs; run as a script, it prints a hash of each."""

# Traced functions take what tracing gives them, which has no types.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import ops
from tessera.api.jit import Jit

B, S, D, N = 67, 45, 131, 97


@dataclass(frozen=True)
class Case:
    """A function, its inputs, and how many of the inputs have the batch as their first dim; none where it is summed."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    batched: int = 1
    dtype: Any = np.float32

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(17)
        return [rng.standard_normal(shape).astype(self.dtype) for shape in self.shapes]

    def jitted(self, **options: Any) -> Jit:
        return ts.jit(self.function, dynamic=True, **options)


def matmul(x, w):
    return x @ w


def linear(x, w, b):
    return ops.gelu(x @ w + b)


def softmax(x):
    return ops.softmax(x)


def layernorm(x, w, b):
    return ops.layernorm(x, w, b)


def rmsnorm(x, w):
    return ops.rmsnorm(x, w)


def attention(q, k, v):
    return ops.attention(q, k, v, causal=True)


def chain(x, y):
    z = ops.tanh(x * y) + ops.exp(-ops.abs(x))
    return z / (z.sum(axis=-1, keepdims=True) + 1.0)


def columns(x):
    return x - x.mean(axis=1, keepdims=True)


def mlp(x, w, u):
    return x + ops.layernorm(ops.silu(x @ w) @ u)


def weigh(y):
    """A loss of a result: numbers of all sizes come back from it."""
    return (y * ops.sin(y)).sum()


def rows_of_softmax(x):
    return ts.grad(lambda v: weigh(ops.softmax(v)))(x)


def rows_of_attention(q, k, v):
    return ts.grad(lambda t: weigh(attention(t, k, v)))(q)


def weights_of_mlp(x, w, u):
    return ts.grad(lambda t: weigh(mlp(x, t, u)))(w)


def weights_of_layernorm(x, w, b):
    return ts.grad(lambda t: weigh(layernorm(x, t, b)))(w)


def weights_of_steps(x, w):
    """Of a loop over rows, which reads some of them by an index."""

    def step(state, row):
        return ops.tanh((state * row) @ w @ w.T), state + ops.take(x, (ops.abs(row) * 9.0).cast(ts.i64)[:1])[0]

    return ts.grad(lambda t: weigh(ts.scan(step, t[:, 0], x[:9])[1]))(w)


CASES: dict[str, Case] = {
    "matmul": Case(matmul, ((B, D), (D, N))),
    "matmul bf16": Case(matmul, ((B, D), (D, N)), dtype=ml_dtypes.bfloat16),
    "linear": Case(linear, ((B, D), (D, N), (N,))),
    "softmax": Case(softmax, ((B, D),)),
    "layernorm": Case(layernorm, ((B, D), (D,), (D,))),
    "layernorm bf16": Case(layernorm, ((B, D), (D,), (D,)), dtype=ml_dtypes.bfloat16),
    "rmsnorm": Case(rmsnorm, ((B, D), (D,))),
    "attention": Case(attention, ((B, 2, S, 64), (B, 2, S, 64), (B, 2, S, 64)), batched=3),
    "chain": Case(chain, ((B, D), (B, D)), batched=2),
    "columns": Case(columns, ((B, S, D),)),
    "mlp": Case(mlp, ((B, D), (D, N), (N, D))),
    "gradient of softmax": Case(rows_of_softmax, ((B, D),)),
    "gradient of attention": Case(rows_of_attention, ((B, 2, S, 64), (B, 2, S, 64), (B, 2, S, 64)), batched=3),
    "gradient of mlp": Case(weights_of_mlp, ((B, D), (D, N), (N, D)), batched=0),
    "gradient of layernorm": Case(weights_of_layernorm, ((B, D), (D,), (D,)), batched=0),
    "gradient of steps": Case(weights_of_steps, ((B, D), (D, N)), batched=0),
}
BATCHED = [name for name, case in CASES.items() if case.batched]
"""Those whose rows are of their own: a gradient by weights sums over the batch."""


def bits(result: Any) -> str:
    """The hash of a result's shape and bytes."""
    array = np.ascontiguousarray(np.asarray(result))
    return hashlib.sha256(repr((array.shape, str(array.dtype))).encode() + array.tobytes()).hexdigest()


def main() -> None:
    """Print, for each program, the hash of its result and where its code came from."""
    found: dict[str, tuple[str, str]] = {}
    for name, case in CASES.items():
        jitted = case.jitted()
        result = bits(jitted(*case.arrays()))
        found[name] = (result, jitted.specializations[0].origin.source)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
