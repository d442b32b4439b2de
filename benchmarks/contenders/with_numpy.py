"""The workloads in NumPy, as one writes them with care for speed: in place where that is natural."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks import transformer
from benchmarks.contenders.contender import Contender, Library, NotOfferedError, Run
from benchmarks.workloads import Arrays, Workload

Array = np.ndarray[Any, Any]


def _matmul(a: Array, b: Array) -> Array:
    return a @ b


def _matmul_bf16(a: Array, b: Array) -> Array:
    # A matmul of ml_dtypes arrays is a loop over scalars; through f32 is what one would write.
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16)


def _gelu(x: Array) -> Array:
    inner = x * x
    inner *= np.float32(0.044715)
    inner += 1
    inner *= x
    inner *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _matmul_bias_gelu(a: Array, b: Array, bias: Array) -> Array:
    product = a @ b
    product += bias
    return _gelu(product)


def _softmax(x: Array) -> Array:
    out = x - x.max(-1, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(-1, keepdims=True)
    return out


def _layernorm(x: Array, weight: Array, bias: Array) -> Array:
    out = x - x.mean(-1, keepdims=True)
    out *= 1 / np.sqrt(np.einsum("ij,ij->i", out, out)[:, None] / np.float32(x.shape[-1]) + np.float32(1e-5))
    out *= weight
    out += bias
    return out


def _rmsnorm(x: Array, weight: Array) -> Array:
    out = x * (1 / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[-1]) + np.float32(1e-5)))
    out *= weight
    return out


def _bias_gelu_mul(x: Array, bias: Array, gate: Array) -> Array:
    out = _gelu(x + bias)
    out *= gate
    return out


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "matmul": _matmul,
    "matmul_bias_gelu": _matmul_bias_gelu,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "bias_gelu_mul": _bias_gelu_mul,
    "attention": lambda q, k, v: transformer.attend(q, k, v, causal=False),
    "attention_causal": lambda q, k, v: transformer.attend(q, k, v, causal=True),
}


def _prepare(work: Workload, arrays: Arrays) -> Run:
    if work.kind == "transformer":
        heads = work.sizes["H"]
        return lambda: transformer.forward(arrays["x"], arrays["layers"], heads)
    if work.kind not in _FUNCTIONS:
        raise NotOfferedError(f"NumPy has no function for {work.kind}")
    function = _matmul_bf16 if work.dtype == "bf16" else _FUNCTIONS[work.kind]
    arguments = tuple(arrays.values())
    return lambda: function(*arguments)


def _load(module: Any, threads: int) -> Iterable[Contender]:
    yield Contender("numpy", _prepare)


LIBRARY = Library("numpy", _load)
