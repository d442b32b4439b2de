"""Cases that are whole programs: user kernels, models, control flow, callbacks, collectives, builds and donation."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tessera as ts
from examples import effects, flash_attention, matmul, mlp, pipelines, ranks, softmax, transformer
from tests.kernel import kernels
from tests.kernel.test_scaled import scaled_product
from tests.replay.case import HOSTS, MAIN, Case, case, zeros
from tests.replay.contractions import attention_cases, matmul_cases
from tests.replay.rows import norm_cases

ops = ts.ops


def kernel_cases() -> dict[str, Case]:
    """Kernels written in the tile language: those of the examples, of the library, and of the tests."""
    heads, cache = "2 4 S 64", "2 2 T 64"
    found: dict[str, Case] = {}
    for dtype in ("f32", "bf16"):
        found[f"matmul {dtype}"] = case(lambda a, b: matmul.matmul(a, b), f"M K {dtype}", f"K N {dtype}")
        found[f"matmul static {dtype}"] = case(lambda a, b: matmul.matmul(a, b), f"256 128 {dtype}", f"128 256 {dtype}")
        found[f"softmax {dtype}"] = case(lambda x: softmax.rows(x), f"M 1000 {dtype}")
        for causal in (False, True):
            found[f"flash {dtype}{' causal' * causal}"] = case(
                lambda q, k, v, causal=causal: flash_attention.flash(q, k, v, causal=causal),
                f"{heads} {dtype}", f"{cache} {dtype}", f"{cache} {dtype}",
            )  # fmt: skip
    found["pipeline"] = case(lambda a, b: pipelines.matmul_with_prefetch(a, b), "M K f32", "K N f32")
    found["vector_add"] = case(lambda x, y: kernels.vector_add(x, y), "N f32", "N f32")
    found["rows"] = case(lambda x: kernels.rows(x), "M 100 f32")
    found["row softmax"] = case(lambda x: kernels.softmax(x), "M 100 f32")
    found["scan"] = case(lambda x: kernels.running(x, reverse=True), "M 100 f32", machines=MAIN)
    found["scan exclusive"] = case(lambda x: kernels.running(x, exclusive=True), "M 100 f32", machines=MAIN)
    found["scan by function"] = case(lambda x: kernels.decayed(x), "M 100 f32", machines=MAIN)
    found["slots"] = case(lambda a, b: kernels.piped(a, b, slots=2), "128 64 f32", "64 128 f32", machines=MAIN)
    found["prescaled"] = case(lambda q, k, v: kernels.prescaled(q, k, v), *["4 S 64 bf16", *["4 T 64 bf16"] * 2])
    found["scaled"] = case(
        lambda a, s, b, r: scaled_product(a, s, b, r), "256 256 f8e4m3", "256 2 f32", "256 256 f8e4m3", "256 2 f32"
    )
    found["library softmax"] = case(lambda x: ts.stdlib.stable_softmax(x), "M 500 bf16")
    found["library layernorm"] = case(
        lambda x, w, b: ts.stdlib.efficient_layernorm(x, w, b), "M 512 f32", "512 f32", "512 f32"
    )
    return found


def model_cases() -> dict[str, Case]:
    """The models of the examples."""

    def layers(count: int) -> Any:
        rng = np.random.default_rng(0)
        return lambda: [zeros("2 S 64 f32"), [transformer.random_layer(64, rng) for _ in range(count)], 4]

    def perceptron() -> list[Any]:
        sizes = ((48, 32), (32, 16), (16, 10))
        return [zeros("7 48 f32"), *({"w": zeros(f"{a} {b} f32"), "b": zeros(f"{b} f32")} for a, b in sizes)]

    narrow: Any = ts.Training()
    return {
        "transformer": Case(transformer.forward, layers(1)),
        "transformer of two layers": Case(transformer.forward, layers(2), machines=MAIN),
        "transformer bf16": Case(transformer.forward, layers(1), {"policy": narrow}),
        "mlp": Case(mlp.classify.function, perceptron),
        "mlp bf16": Case(mlp.classify.function, perceptron, {"policy": narrow}, MAIN),
        "attend": Case(
            flash_attention.attend.function, lambda: [zeros("1 8 50 64 f32"), *[zeros("1 2 70 64 f32")] * 2]
        ),
        "matmul": Case(
            matmul.scale_add_relu.function, lambda: [zeros("37 72 f32"), zeros("72 100 f32"), zeros("100 f32")]
        ),
        "accumulate": Case(matmul.narrow.function, lambda: [zeros("37 72 bf16"), zeros("72 100 bf16")]),
        "two branches": case(_branches, "64 64 f32", "64 64 f32", "64 64 f32"),
    }


def _branches(x: Any, w: Any, u: Any) -> Any:
    """Launches that do not wait for each other."""
    return ops.softmax(x @ w), ops.softmax(x @ u), x.sum(axis=0)


def _while(x: Any) -> Any:
    return ts.while_loop(lambda s: s[0].sum() < 9.0, lambda s: (s[0] + s[1], s[1] * 0.5), (x, x))


def _steps(x: Any, w: Any) -> Any:
    return ts.scan(lambda state, row: (ops.tanh(state @ w + row), state.sum()), x[0] * 0.0, x)


def _branch(x: Any, limit: Any) -> Any:
    doubled = x * 2.0
    return ts.cond(x.sum() > limit, lambda v: v + doubled, lambda v: ops.exp(v), x)


def _nested(x: Any) -> Any:
    return ts.fori_loop(0, 4, lambda i, v: ts.cond(v.sum() > 1.0, lambda: v * 0.5, lambda: v + 1.0), x)


def _printing(x: Any) -> Any:
    ts.debug_print("{} {:.1f}", x, x.max())
    return x * 2.0


def _calling(x: Any) -> Any:
    return ts.io_callback(_answer, x, result=x) + 1.0


def _answer(x: Any) -> Any:
    return x


def control_cases() -> dict[str, Case]:
    """Control flow on the host, callbacks, checks and caches."""
    found = {
        "while": case(_while, "N f32"),
        "fori": case(lambda x: ts.fori_loop(0, x.shape[0], lambda i, v: v * 0.5 + x, x), "N f32"),
        "scan": case(_steps, "M 16 f32", "16 16 f32"),
        "scan reverse": case(
            lambda x: ts.scan(lambda s, row: (s + row, s), x[0] * 0.0, x, reverse=True), "M 16 f32", machines=MAIN
        ),
        "cond": case(_branch, "N f32", "f32"),
        "nested": case(_nested, "N f32", machines=MAIN),
        "print": case(_printing, "N f32"),
        "callback": case(_calling, "8 f32"),
        "descent": Case(effects.descend(_log, 3).function, lambda: [zeros("16 8 f32"), zeros("16 f32")], machines=MAIN),
    }
    found["append to a cache"] = case(
        lambda k, v, n, new: ts.KVCache(k, v, n).append(new, new), *["1 2 32 16 f32"] * 2, "i64", "1 2 1 16 f32"
    )
    return found


def _log(step: Any, loss: Any) -> None:
    """Nothing is said."""


def _in_mesh(function: Callable[..., Any], *types: str, **sizes: int) -> Case:
    return replace(case(function, *types, machines=HOSTS), context=lambda: ts.dist.mesh(**sizes))


def collective_cases() -> dict[str, Case]:
    """What ranks do together; a GPU does none of it."""
    x = "8 16 f32"
    return {
        "all_reduce": _in_mesh(lambda x: ts.dist.all_reduce(x * 2.0, "dp") + 1.0, x, dp=4),
        "all_reduce max": _in_mesh(lambda x: ts.dist.all_reduce(x, "dp", op="max"), x, dp=4),
        "all_gather": _in_mesh(lambda x: ts.dist.all_gather(x, "dp"), x, dp=2),
        "reduce_scatter": _in_mesh(lambda x: ts.dist.reduce_scatter(x, "dp"), x, dp=2),
        "all_to_all": _in_mesh(lambda x: ts.dist.all_to_all(x, "dp", 0, 1), x, dp=2),
        "axis_index": _in_mesh(lambda x: x + ts.dist.axis_index("tp").cast(ts.f32), x, dp=2, tp=2),
        "layer": _in_mesh(ranks.mlp.function, "8 16 f32", "16 32 f32", "32 16 f32", "16 16 f32", tp=2),
        "joined": _in_mesh(pipelines.reduce_parts.function, "8 16 f32", "16 16 f32", tp=2),
    }


def build_cases() -> dict[str, Case]:
    """Debug builds, fast math, no fusion, policies and donation."""
    some = {
        "matmul": matmul_cases()["nt bf16 symbolic"],
        "matmul f32": matmul_cases()["nn f32 symbolic"],
        "attention": attention_cases()["causal bf16"],
        "softmax": norm_cases()["softmax 1000 f32"],
        "layernorm": norm_cases()["layernorm N bf16"],
        "take": case(lambda x, i: x[i], "M N f32", "K i64"),
        "flash": kernel_cases()["flash bf16 causal"],
        "kernel matmul": kernel_cases()["matmul bf16"],
        "chain": case(lambda x, y: ops.tanh(x * y + x).sum(axis=-1), "M N f32", "M N f32"),
    }
    found: dict[str, Case] = {}
    for name, one in some.items():
        for word, option in (("debug", {"debug": True}), ("fast", {"fast_math": True}), ("apart", {"fusion": False})):
            found[f"{name} {word}"] = replace(one, options={**one.options, **option})
    found["donated"] = case(lambda x: x * 2.0 + 1.0, "64 f32", donate={"x0"})
    found["donated cache"] = Case(
        _append,
        lambda: [
            ts.KVCache(zeros("1 2 32 16 f32"), zeros("1 2 32 16 f32"), zeros("i64")),
            *[zeros("1 2 1 16 f32")] * 2,
        ],
        {"donate": {"cache"}},
    )
    policies = {
        "bf16 storage": ts.Training(),
        "e4m3 storage": ts.Inference(),
        "stochastic": ts.Policy(storage=ts.bf16, rounding="stochastic", accumulate=ts.f32),
        "flush": ts.flush_denormals,
    }
    for name, policy in policies.items():
        for word in ("softmax", "layernorm", "matmul f32", "chain"):
            one = some[word]
            found[f"{word} {name}"] = replace(one, options={**one.options, "policy": policy}, machines=MAIN)
    return found


def _append(cache: Any, k: Any, v: Any) -> Any:
    return cache.append(k, v)
