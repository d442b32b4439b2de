"""The workloads in Tessera, twice: with every dim dynamic, and compiled for the very sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType
from typing import Any

import tessera as ts
from benchmarks.contenders.contender import Contender, Library, Run
from benchmarks.workloads import Arrays, Workload
from examples.transformer import Layer, forward

ops = ts.ops


def matmul(a: Any, b: Any) -> Any:
    """One matmul."""
    return a @ b


def matmul_bias_gelu(a: Any, b: Any, bias: Any) -> Any:
    """A layer of an MLP."""
    return ops.gelu(a @ b + bias, approximate="tanh")


def bias_gelu_mul(x: Any, bias: Any, gate: Any) -> Any:
    """A gated activation, with gelu in its tanh form."""
    return ops.gelu(x + bias, approximate="tanh") * gate


def bias_gelu_erf_mul(x: Any, bias: Any, gate: Any) -> Any:
    """A gated activation, with gelu by erf."""
    return ops.gelu(x + bias) * gate


def softmax(x: Any) -> Any:
    """Softmax of rows."""
    return ops.softmax(x)


def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    """Layer norm of rows."""
    return ops.layernorm(x, weight, bias)


def rmsnorm(x: Any, weight: Any) -> Any:
    """Root-mean-square norm of rows."""
    return ops.rmsnorm(x, weight)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention to every key."""
    return ops.attention(q, k, v)


def attention_causal(q: Any, k: Any, v: Any) -> Any:
    """Attention to the keys up to the query's own position."""
    return ops.attention(q, k, v, causal=True)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        matmul,
        matmul_bias_gelu,
        bias_gelu_mul,
        bias_gelu_erf_mul,
        softmax,
        layernorm,
        rmsnorm,
        attention,
        attention_causal,
    )
}


_FREE: dict[str, dict[str, str]] = {
    "matmul": {"a": "M K", "b": "K N"},
    "matmul_bias_gelu": {"a": "M K", "b": "K N", "bias": "N"},
    "softmax": {"x": "M N"},
    "layernorm": {"x": "M N", "weight": "N", "bias": "N"},
    "rmsnorm": {"x": "M N", "weight": "N"},
    "bias_gelu_mul": {"x": "M N", "bias": "N", "gate": "M N"},
    "bias_gelu_erf_mul": {"x": "M N", "bias": "N", "gate": "M N"},
    "attention": dict.fromkeys("qkv", "B H S D"),
    "attention_causal": dict.fromkeys("qkv", "B H S D"),
}


def free(work: Workload) -> Any:
    """The function with every dim of every argument named; only the number of heads is fixed."""
    if work.kind == "transformer":
        return ts.jit(forward)
    body, dtype = _FUNCTIONS[work.kind], getattr(ts, work.dtype)
    function = FunctionType(body.__code__, body.__globals__, body.__name__)
    function.__annotations__ = {name: ts.Tensor[(*dims.split(), dtype)] for name, dims in _FREE[work.kind].items()}
    return ts.jit(function)


def static(work: Workload) -> Any:
    """The function compiled for the very sizes it is called with."""
    if work.kind != "transformer":
        return ts.jit(_FUNCTIONS[work.kind])
    function = FunctionType(forward.__code__, forward.__globals__, "static_forward", forward.__defaults__)
    return ts.jit(function)


def _prepare(make: Callable[[Workload], Any], work: Workload, arrays: Arrays) -> Run:
    function, arguments = make(work), tuple(arrays.values())
    if work.kind == "transformer":
        arguments = arrays["x"], [Layer(**parameters) for parameters in arrays["layers"]], work.sizes["H"]
    return lambda: function(*arguments)


def _load(module: Any, threads: int) -> Iterable[Contender]:
    yield Contender("tessera", partial(_prepare, free), is_ours=True)
    yield Contender("tessera static", partial(_prepare, static), is_ours=True)


LIBRARY = Library("tessera", _load)
