"""Cases that are backward programs: gradients of layers, losses, loops, branches, indices and batches."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tessera as ts
from tests.replay.case import MAIN, Case, case

ops = ts.ops


def gradient(function: Callable[..., Any], *about: int) -> Callable[..., Any]:
    """The gradient of the sum of a function's squares by some of its arguments, the first by default."""
    return ts.grad(lambda *tensors: (function(*tensors) ** 2.0).sum(), about or (0,))


def _mlp(x: Any, w: Any, u: Any) -> Any:
    return x + ops.layernorm(ops.silu(x @ w) @ u)


def _steps(x: Any, w: Any) -> Any:
    return ts.scan(lambda h, r: (ops.tanh(h @ w + r), h * r), ops.zeros_like(x[0]), x)[1]


def _branch(x: Any) -> Any:
    return ts.cond(x.sum() > 0, lambda: ops.exp(x), lambda: ops.sin(x) * x)


def gradient_cases() -> dict[str, Case]:
    """Gradients, on one machine of each kind."""
    heads = ["2 4 S 64 f32"] * 3
    given: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "mlp": (gradient(_mlp, 0, 1, 2), ("M K f32", "K N f32", "N K f32")),
        "layernorm": (gradient(lambda x, w, b: ops.layernorm(x, w, b), 0, 1, 2), ("M N f32", "N f32", "N f32")),
        "cross entropy": (ts.grad(lambda x, y: ops.cross_entropy(x, y)), ("M N f32", "M i64")),
        "attention": (gradient(lambda q, k, v: ops.attention(q, k, v, causal=True), 0, 1, 2), (*heads,)),
        "embedding": (gradient(lambda table, rows: ops.embedding(table, rows)), ("N 64 f32", "M i64")),
        "convolution": (gradient(lambda x, w: ops.conv2d(x, w, padding=1), 0, 1), ("B C L W f32", "8 C 3 3 f32")),
        "sort": (gradient(lambda x: ops.sort(x)), ("M 100 f32",)),
        "scan": (gradient(_steps, 0, 1), ("M 64 f32", "64 64 f32")),
        "cond": (gradient(_branch), ("M N f32",)),
        "batch": (ts.vmap(gradient(_mlp, 1), in_axes=(0, None, None)), ("B M K f32", "K N f32", "N K f32")),
        "tangent": (lambda x, w: ts.jvp(lambda v: _steps(v, w), (x,), (x,))[1], ("M 64 f32", "64 64 f32")),
    }
    return {name: case(function, *types, machines=MAIN) for name, (function, types) in given.items()}
