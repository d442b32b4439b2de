"""The workloads in JAX, jitted by XLA for the CPU."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks.contenders.contender import Contender, Library, Run
from benchmarks.workloads import Arrays, Workload


def _layernorm(jax: Any, x: Any, weight: Any, bias: Any) -> Any:
    jnp = jax.numpy
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5) * weight + bias


def _attend(jax: Any, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    jnp = jax.numpy
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tri(q.shape[-2], k.shape[-2], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def _functions(jax: Any) -> dict[str, Callable[..., Any]]:
    jnp, gelu = jax.numpy, jax.nn.gelu

    def rmsnorm(x: Any, weight: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    return {
        "matmul": jnp.matmul,
        "matmul_bias_gelu": lambda a, b, bias: gelu(a @ b + bias),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layernorm": partial(_layernorm, jax),
        "rmsnorm": rmsnorm,
        "bias_gelu_mul": lambda x, bias, gate: gelu(x + bias) * gate,
        "bias_gelu_erf_mul": lambda x, bias, gate: gelu(x + bias, approximate=False) * gate,
        "attention": partial(_attend, jax),
        "attention_causal": partial(_attend, jax, causal=True),
    }


def _forward(jax: Any, heads: int) -> Callable[..., Any]:
    def block(x: Any, p: dict[str, Any]) -> Any:
        B, S, D = x.shape
        qkv = _layernorm(jax, x, p["norm1"], p["shift1"]) @ p["qkv"] + p["qkv_bias"]
        q, k, v = qkv.reshape(B, S, 3, heads, D // heads).transpose(2, 0, 3, 1, 4)
        mixed = _attend(jax, q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(B, S, D)
        x = x + mixed @ p["out"] + p["out_bias"]
        hidden = jax.nn.gelu(_layernorm(jax, x, p["norm2"], p["shift2"]) @ p["up"] + p["up_bias"])
        return x + hidden @ p["down"] + p["down_bias"]

    def forward(x: Any, layers: list[dict[str, Any]]) -> Any:
        for parameters in layers:
            x = block(x, parameters)
        return x

    return forward


def _prepare(jax: Any, work: Workload, arrays: Arrays) -> Run:
    body = _forward(jax, work.sizes["H"]) if work.kind == "transformer" else _functions(jax)[work.kind]
    function = jax.jit(body)
    arguments = tuple(jax.tree.map(jax.numpy.asarray, value) for value in arrays.values())
    return lambda: function(*arguments).block_until_ready()


def _load(jax: Any, threads: int) -> Iterable[Contender]:
    jax.config.update("jax_platforms", "cpu")
    yield Contender("jax", partial(_prepare, jax))


LIBRARY = Library("jax", _load)
