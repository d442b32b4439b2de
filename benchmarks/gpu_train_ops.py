"""Backward ops and updates of training on a GPU: attention beside cuDNN, norms, softmax and AdamW beside a copy.

A row is checked against float64 first, and run twice for the same bits; then bursts of contenders are interleaved.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import timed
from tessera.ir.base import dispatch

EPS = 2.0**-8
"""Half a step of bf16."""
ATTENTION = tuple(
    (form, 16, 16, length, head) for length in (3072, 1024, 8192) for head in (128, 64) for form in ("full", "causal")
)
"""Form, batch, heads, length and size of a head; 3072 first, which the goals are of."""
WIDE = (32768, 4096)
"""Rows and columns of norms and softmax."""
PARAMETERS = 1 << 27


def error_of(mine: Any, wanted: Any) -> float:
    """The distance to the wanted values, in parts of their size; NaN where any element is."""
    return float(((mine.double() - wanted.double()).norm() / wanted.double().norm()).item())


# Attention.


def backward(causal: bool) -> Callable[..., Any]:
    """The gradients of attention by queries, keys and values, from its result and log-sum-exps."""

    def run(q: Any, k: Any, v: Any, out: Any, lse: Any, given: Any) -> Any:
        delta = (out.cast(ts.f32) * given.cast(ts.f32)).sum(axis=3)
        attributes = {"causal": causal, "scale": None}
        return dispatch.apply("attention_backward", (q, k, v, given, lse, delta), attributes)

    return run


def forward(causal: bool) -> Callable[..., Any]:
    """Attention with its log-sum-exps."""

    def run(q: Any, k: Any, v: Any) -> Any:
        return ts.ops.attention(q, k, v, causal=causal, return_lse=True)

    return run


def exact_gradients(torch: Any, given: Sequence[Any], causal: bool) -> list[Any]:
    """The gradients in float64, by torch."""
    q, k, v, cotangent = (one.double() for one in given)
    for one in (q, k, v):
        one.requires_grad_()
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores + torch.full_like(scores, -math.inf).triu(1)
    return list(torch.autograd.grad(torch.softmax(scores, -1) @ v, (q, k, v), cotangent))


@contextlib.contextmanager
def deterministic(torch: Any, is_on: bool) -> Generator[None]:
    """Within it torch takes kernels whose sums have one order."""
    torch.use_deterministic_algorithms(is_on, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def attention_row(torch: Any, form: str, batch: int, heads: int, length: int, head: int) -> dict[str, Any]:
    """One gradient of attention beside cuDNN's, as it comes and deterministic."""
    causal = form == "causal"
    tensors = [torch.randn(batch, heads, length, head, device="cuda").bfloat16() for _ in range(4)]
    q, k, v, cotangent = tensors
    given = [ts.cuda.array(one) for one in tensors]
    out, lse = ts.jit(forward(causal), backend="cuda")(*given[:3])
    pull: Any = ts.jit(backward(causal), backend="cuda")
    operands = (*given[:3], out, lse, given[3])
    first, again = ([torch.from_dlpack(one) for one in pull(*operands)] for _ in range(2))
    torch.cuda.synchronize()
    part = (slice(-1, None), slice(-1, None))
    wanted = exact_gradients(torch, [one[part] for one in tensors], causal)
    errors = [error_of(one[part], want) for one, want in zip(first, wanted, strict=True)]
    same = all(bool((one == other).all()) for one, other in zip(first, again, strict=True))
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        result = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)

    def peer(is_deterministic: bool) -> Callable[[], Any]:
        def run() -> Any:
            with deterministic(torch, is_deterministic):
                return torch.autograd.grad(result, leaves, cotangent, retain_graph=True)

        return run

    flops = 10.0 * batch * heads * length * length * head / (2 if causal else 1)
    runs = {"tessera": lambda: pull(*operands), "cudnn": peer(False), "cudnn deterministic": peer(True)}
    times = timed(torch, runs, flops)
    rates = {name: flops / seconds / 1e12 for name, seconds in times.items()}
    return {
        "name": f"attention backward {form} S{length} D{head}", "teraflops": rates, "errors": errors,
        "is_right": all(one <= 4 * EPS for one in errors), "same_bits": same,
        "ratio": times["cudnn"] / times["tessera"],
        "ratio_deterministic": times["cudnn deterministic"] / times["tessera"],
    }  # fmt: skip


# Rows, and the update.


def _pull(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def run(*operands: Any) -> Any:
        return ts.vjp(function, *operands[:count])[1](operands[count])

    return run


def _row_functions(torch: Any) -> dict[str, tuple[Callable[..., Any], Callable[..., Any], int]]:
    """Both sides' functions of rows by name, and how many vectors they take beside them."""
    functional = torch.nn.functional

    def layernorm(x: Any, w: Any, b: Any) -> Any:
        return functional.layer_norm(x, x.shape[-1:], w, b)

    def rmsnorm(x: Any, w: Any) -> Any:
        return functional.rms_norm(x, x.shape[-1:], w, 1e-5)

    def softmax(x: Any) -> Any:
        return torch.softmax(x, -1)

    return {
        "layernorm": (ts.ops.layernorm, layernorm, 2),
        "rmsnorm": (ts.ops.rmsnorm, rmsnorm, 1),
        "softmax": (ts.ops.softmax, softmax, 0),
    }


def copy_seconds(torch: Any, moved: int) -> Callable[[], Any]:
    """A copy on the device that moves so many bytes, read and written."""
    source = torch.empty(moved // 4, device="cuda", dtype=torch.bfloat16).normal_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def norm_row(torch: Any, name: str) -> dict[str, Any]:
    """The gradient of a function of rows: rows and cotangents are read, and gradients written, in bf16."""
    ours, theirs, vectors = _row_functions(torch)[name]
    rows, columns = WIDE
    x, cotangent = (torch.randn(rows, columns, device="cuda").bfloat16() for _ in range(2))
    others = [torch.randn(columns, device="cuda").bfloat16() for _ in range(vectors)]
    given = [ts.cuda.array(one) for one in (x, *others, cotangent)]
    pull: Any = ts.jit(_pull(ours, vectors + 1), backend="cuda")
    found = [torch.from_dlpack(one) for one in pull(*given)]
    wide = [one.double().requires_grad_() for one in (x[:256], *others)]
    (wanted,) = torch.autograd.grad(theirs(*wide), wide[:1], cotangent[:256].double())
    leaves = [one.clone().requires_grad_() for one in (x, *others)]
    result = torch.compile(theirs)(*leaves)
    moved = 3 * x.numel() * x.element_size()
    runs = {
        "tessera": lambda: pull(*given),
        "torch.compile": lambda: torch.autograd.grad(result, leaves, cotangent, retain_graph=True),
        "copy": copy_seconds(torch, moved),
    }
    times = timed(torch, runs, 1e12)
    error = error_of(found[0][:256], wanted)
    return {
        "name": f"{name} backward", "microseconds": {who: 1e6 * one for who, one in times.items()},
        "errors": [error], "is_right": error <= 4 * EPS, "share_of_copy": times["copy"] / times["tessera"],
        "ratio": times["torch.compile"] / times["tessera"],
    }  # fmt: skip


def update(p: Any, g: Any, m: Any, v: Any, count: Any) -> Any:
    """One AdamW update, in place of what is donated."""
    return ts.stdlib.fused_adam(p, g, m, v, count, 3e-4, weight_decay=0.1)


def adamw_row(torch: Any) -> dict[str, Any]:
    """An update of f32 parameters: 28 bytes of each are moved."""
    p, g = (torch.randn(PARAMETERS, device="cuda") for _ in range(2))
    step: Any = ts.jit(update, backend="cuda", donate={"p", "m", "v"})
    grads, count = ts.cuda.array(g), ts.cuda.array(torch.tensor(1, device="cuda"))
    held = [step(*[ts.cuda.array(one.clone()) for one in (p, g, torch.zeros_like(p), torch.zeros_like(p))], count)]
    own = torch.from_dlpack(held[0][0]).clone()
    theirs = p.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], 3e-4, weight_decay=0.1, fused=True)
    theirs.grad = g
    optimizer.step()
    error = error_of(own - p, theirs.detach() - p)

    def run() -> None:
        held[0] = step(held[0][0], grads, *held[0][1:], count)

    moved = 28 * PARAMETERS
    times = timed(torch, {"tessera": run, "torch fused": optimizer.step, "copy": copy_seconds(torch, moved)}, 1e12)
    return {
        "name": "adamw", "microseconds": {who: 1e6 * one for who, one in times.items()}, "errors": [error],
        "is_right": error <= 2.0**-10, "share_of_copy": times["copy"] / times["tessera"],
        "ratio": times["torch fused"] / times["tessera"],
    }  # fmt: skip
