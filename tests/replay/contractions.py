"""Cases with contractions: matmul in every form and dtype, quantized ones, convolutions, and attention."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tests.replay.case import MAIN, Case, case

ops = ts.ops
FLOATS = ("bf16", "f16", "f32")


def _nn(x: Any, w: Any) -> Any:
    return x @ w


def _nt(x: Any, w: Any) -> Any:
    return x @ ops.transpose(w)


def _tn(x: Any, w: Any) -> Any:
    return ops.transpose(x) @ w


def _tt(x: Any, w: Any) -> Any:
    return ops.transpose(x) @ ops.transpose(w)


def _wide(x: Any, w: Any) -> Any:
    return ops.matmul(x, ops.transpose(w), dtype=ts.f32)


def _whole(x: Any, w: Any) -> Any:
    return ops.matmul(x, ops.transpose(w), dtype=ts.i32)


def _gelu(x: Any, w: Any, b: Any) -> Any:
    return ops.gelu(x @ w + b, approximate="tanh")


def _erf(x: Any, w: Any, b: Any) -> Any:
    return ops.gelu(x @ w + b)


def _residual(x: Any, w: Any, b: Any, r: Any) -> Any:
    return ops.relu(x @ w * 0.5 + b) + r


def _gated(x: Any, w: Any, u: Any) -> Any:
    return ops.silu(x @ w) * (x @ u)


def _two(x: Any, w: Any, u: Any) -> Any:
    return ops.gelu(x @ w) @ u


FORMS: dict[str, tuple[Any, str, str]] = {
    "nn": (_nn, "M K", "K N"),
    "nt": (_nt, "M K", "N K"),
    "tn": (_tn, "K M", "K N"),
    "tt": (_tt, "K M", "N K"),
}
SIZES: dict[str, dict[str, int]] = {
    "even": {"M": 256, "N": 256, "K": 128},
    "ragged": {"M": 77, "N": 100, "K": 33},
    "odd": {"M": 129, "N": 72, "K": 40},
    "few": {"M": 3, "N": 512, "K": 256},
    "one": {"M": 1, "N": 1000, "K": 128},
    "narrow": {"M": 300, "N": 8, "K": 64},
    "deep": {"M": 64, "N": 64, "K": 4096},
    "large": {"M": 2048, "N": 4096, "K": 1024},
}


def _sized(dims: str, sizes: dict[str, int]) -> str:
    return " ".join(str(sizes[dim]) for dim in dims.split())


def matmul_cases() -> dict[str, Case]:
    """Forms, sizes and dtypes."""
    found: dict[str, Case] = {}
    for form, (function, left, right) in FORMS.items():
        for dtype in FLOATS:
            found[f"{form} {dtype} symbolic"] = case(function, f"{left} {dtype}", f"{right} {dtype}")
        for size in ("even", "ragged", "odd"):
            sizes = SIZES[size]
            found[f"{form} bf16 {size}"] = case(function, f"{_sized(left, sizes)} bf16", f"{_sized(right, sizes)} bf16")
    for size in ("few", "one", "narrow", "deep", "large"):
        for dtype in ("bf16", "f32"):
            types = [f"{_sized(dims, SIZES[size])} {dtype}" for dims in ("M K", "N K")]
            found[f"nt {dtype} {size}"] = case(_nt, *types)
    for dtype in ("f8e4m3", "f8e5m2"):
        found[f"wide {dtype}"] = case(_wide, f"128 256 {dtype}", f"64 256 {dtype}")
        found[f"wide {dtype} symbolic"] = case(_wide, f"M K {dtype}", f"N K {dtype}", machines=MAIN)
    for dtype in ("i8", "u8"):
        found[f"whole {dtype}"] = case(_whole, f"128 256 {dtype}", f"64 256 {dtype}")
    for dtype in ("f64", "i32", "i64"):
        found[f"nn {dtype}"] = case(_nn, f"M K {dtype}", f"K N {dtype}", machines=MAIN)
    found["batched"] = case(_nn, "B H S 64 bf16", "B H 64 T bf16")
    found["batched ragged"] = case(_nn, "3 50 40 f32", "3 40 30 f32")
    found["shared right side"] = case(_nn, "B M K f32", "K N f32")
    found["row by matrix"] = case(_nn, "K f32", "K N f32", machines=MAIN)
    found["matrix by column"] = case(_nn, "M K f32", "K f32", machines=MAIN)
    found["mixed dtypes"] = case(_nn, "M K bf16", "K N f32", machines=MAIN)
    return found


def epilogue_cases() -> dict[str, Case]:
    """What is computed on a result before it is stored."""
    found: dict[str, Case] = {}
    for name, function in (("tanh gelu", _gelu), ("gelu", _erf)):
        for dtype in FLOATS:
            found[f"{name} {dtype}"] = case(function, f"M 72 {dtype}", f"72 264 {dtype}", f"264 {dtype}")
        found[f"{name} even"] = case(function, "256 128 bf16", "128 256 bf16", "256 bf16")
    found["residual"] = case(_residual, "M K bf16", "K N bf16", "N bf16", "M N bf16")
    found["residual f32 bias"] = case(_residual, "128 64 bf16", "64 128 bf16", "128 f32", "128 128 bf16")
    found["gated"] = case(_gated, "128 64 bf16", "64 128 bf16", "64 128 bf16")
    found["two layers"] = case(_two, "M 64 bf16", "64 128 bf16", "128 64 bf16")
    found["softmax after"] = case(lambda x, w: ops.softmax(x @ w), "M 64 f32", "64 10 f32")
    found["norm before"] = case(lambda x, w, g: ops.rmsnorm(x, g) @ w, "M 64 bf16", "64 128 bf16", "64 bf16")
    found["sum after"] = case(lambda x, w: (x @ w).sum(axis=-1), "M K f32", "K N f32", machines=MAIN)
    chain = ops.epilogue
    found["chain"] = case(
        lambda x, w, b, r: chain.chain([chain.bias(b), chain.act("silu"), chain.residual(r)])(x @ w),
        "128 64 bf16", "64 128 bf16", "128 bf16", "128 128 bf16",
    )  # fmt: skip
    found["einsum"] = case(lambda x, w: ops.einsum("bqd,bkd->bqk", x, w), "B S 64 f32", "B T 64 f32")
    found["einsum chain"] = case(
        lambda x, y, z: ops.einsum("ij,jk,kl->il", x, y, z), "M K f32", "K N f32", "N 8 f32", machines=MAIN
    )
    found["dot_general"] = case(
        lambda x, y: ops.dot_general(x, y, contract=((1, 2), (1, 0))), "M 4 8 f32", "8 4 N f32", machines=MAIN
    )
    found["f32 into bf16 units"] = case(
        lambda x, w: ops.matmul(x.cast(ts.bf16), w.cast(ts.bf16), dtype=ts.f32), "64 64 f32", "64 64 f32"
    )
    return found


def _policy_product(policy: Any) -> Any:
    def function(x: Any, w: Any) -> Any:
        with ts.policy(policy):
            return x @ w

    return function


def _quantized(dtype: Any, left: Any, right: Any) -> Case:
    def weigh(x: Any, w: Any) -> Any:
        return x @ w

    weigh.__annotations__ = {"x": ts.Tensor["M", "K", dtype @ left], "w": ts.Tensor["K", "N", dtype @ right]}
    return Case(weigh, lambda: [_scaled(dtype, (24, 48), (24, 1)), _scaled(dtype, (48, 20), (1, 20))])


def _scaled(dtype: Any, shape: tuple[int, ...], scale: tuple[int, ...]) -> Any:
    """A quantized tensor of zeros."""
    kinds = {ts.i8: np.int8, ts.i4: ml_dtypes.int4, ts.f8e4m3: ml_dtypes.float8_e4m3fn}
    return ts.Quantized(ts.array(np.zeros(shape, kinds[dtype]), dtype), np.zeros(scale, np.float32))


def quantized_cases() -> dict[str, Case]:
    """Scales, narrow formats and policies of precision."""
    found: dict[str, Case] = {}
    for dtype in (ts.i8, ts.i4, ts.f8e4m3):
        found[f"scaled {dtype}"] = _quantized(dtype, ts.scaled(0), ts.scaled(1))
    policies = {
        "training": ts.Training(),
        "training f16": ts.Training(ts.f16),
        "inference": ts.Inference(),
        "nvfp4": ts.NVFP4(),
        "tf32": ts.Policy(compute=ts.tf32),
        "bf16 accumulators": ts.Policy(storage=ts.bf16, accumulate=ts.bf16),
        "flushed": ts.Policy(storage=ts.f16, denormals="flush", saturation="saturate"),
        "toward zero": ts.Policy(storage=ts.bf16, rounding="toward_zero"),
    }
    for name, policy in policies.items():
        found[name] = case(_policy_product(policy), "64 128 f32", "128 64 f32")
    found["int8 by scale"] = case(
        lambda x, s, w: x @ ops.dequantize(w, s, dtype=ts.bf16), "M 64 bf16", "1 96 f32", "64 96 i8"
    )
    found["quantize"] = case(lambda x, s: ops.quantize(x, s, ts.i8), "M N f32", "1 N f32")
    found["quantize f8"] = case(lambda x, s: ops.quantize(x, s, ts.f8e4m3), "M N f32", "M 1 f32")
    found["quantize by tile"] = case(
        lambda x, s: ops.quantize(x, s, ts.f8e4m3, block=(16, 16)), "64 32 f32", "4 2 f32", machines=MAIN
    )
    found["blocks"] = case(lambda x: ops.round_blocks(x), "M 32 f32", machines=MAIN)
    return found


def convolution_cases() -> dict[str, Case]:
    """One and two dims, strides, groups and depthwise."""
    found: dict[str, Case] = {}
    for dtype in FLOATS:
        found[f"conv1d {dtype}"] = case(lambda x, w: ops.conv1d(x, w, padding=1), f"B C L {dtype}", f"8 C 3 {dtype}")
        found[f"conv2d {dtype}"] = case(
            lambda x, w: ops.conv2d(x, w, padding="same"), f"B 16 L W {dtype}", f"32 16 3 3 {dtype}"
        )
    found["conv1d stride"] = case(lambda x, w: ops.conv1d(x, w, stride=2, dilation=2), "B C L f32", "8 C 3 f32")
    found["conv2d stride"] = case(lambda x, w: ops.conv2d(x, w, stride=2, padding=1), "2 16 33 21 f32", "32 16 3 3 f32")
    found["conv2d 1x1"] = case(lambda x, w: ops.conv2d(x, w), "2 16 32 32 bf16", "32 16 1 1 bf16")
    found["conv2d relu"] = case(
        lambda x, w, b: ops.relu(ops.conv2d(x, w, padding=1) + b), "2 3 32 32 f32", "8 3 3 3 f32", "8 1 1 f32"
    )
    found["conv1d depthwise"] = case(lambda x, w: ops.conv1d(x, w, padding=1, groups=8), "B 8 L f32", "8 1 3 f32")
    found["conv2d depthwise"] = case(lambda x, w: ops.conv2d(x, w, padding=1, groups=8), "B 8 L W f32", "8 1 3 3 f32")
    found["conv2d groups"] = case(lambda x, w: ops.conv2d(x, w, groups=4), "B 16 L W f32", "8 4 3 3 f32")
    return found


def _attend(**given: Any) -> Any:
    return lambda q, k, v: ops.attention(q, k, v, **given)


def _masked(q: Any, k: Any, v: Any, m: Any) -> Any:
    return ops.attention(q, k, v, m)


def _cached(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ops.attention(q, ts.KVCache(k, v, length), causal=True)


def _appended(q: Any, k: Any, v: Any, length: Any, new: Any) -> Any:
    cache = ts.KVCache(k, v, length).append(new, new)
    return ops.attention(q, cache, causal=True), cache


def _heads(queries: Any, keys: Any, size: int, dtype: str, heads: int = 4, shared: int = 1) -> list[str]:
    others = f"1 {heads // shared} {keys} {size} {dtype}"
    return [f"1 {heads} {queries} {size} {dtype}", others, others]


def attention_cases() -> dict[str, Case]:
    """Masks, head sizes, grouped heads, caches, and what tensor cores do not take."""
    found: dict[str, Case] = {}
    for size in (16, 32, 64, 80, 96, 128, 256):
        found[f"causal {size}"] = case(_attend(causal=True), *_heads("S", "T", size, "bf16"))
    for dtype in FLOATS:
        found[f"full {dtype}"] = case(_attend(), *_heads(128, 128, 64, dtype))
        found[f"causal {dtype}"] = case(_attend(causal=True), *_heads(100, 130, 64, dtype))
        found[f"lse {dtype}"] = case(_attend(causal=True, return_lse=True), *_heads("S", "T", 64, dtype))
    found["grouped"] = case(_attend(causal=True), *_heads("S", "T", 64, "bf16", 8, 4))
    found["grouped f32"] = case(_attend(causal=True), *_heads(70, 70, 64, "f32", 8, 4))
    found["scaled"] = case(_attend(scale=0.25), *_heads(64, 64, 64, "bf16"))
    found["mask bool"] = case(_masked, *_heads("S", "T", 64, "bf16"), "S T bool")
    found["mask added"] = case(_masked, *_heads("S", "T", 64, "f32"), "S T f32")
    found["decode"] = case(_attend(split_keys=True), *_heads(1, 4096, 128, "bf16", 16, 8))
    found["decode symbolic"] = case(_attend(split_keys=True), *_heads(1, "T", 64, "bf16", 8, 2))
    found["odd head"] = case(_attend(causal=True), *_heads("S", "T", 20, "f32"))
    found["f64"] = case(_attend(), *_heads(20, 30, 16, "f64"), machines=MAIN)
    for dtype in ("bf16", "f32"):
        found[f"cached {dtype}"] = case(_cached, *_heads(40, 330, 64, dtype, 4, 2), "i64")
        found[f"cached parts {dtype}"] = case(_cached, *_heads(40, 1300, 64, dtype, 4, 2), "i64")
        found[f"cached decode {dtype}"] = case(_cached, *_heads(1, 4600, 64, dtype, 8, 4), "i64")
    found["append"] = case(_appended, *_heads(1, 128, 64, "f32", 4, 2), "i64", "1 2 1 64 f32")
    found["split qkv"] = case(lambda x: ops.attention(*ops.split_qkv(x, heads=4), causal=True), "B S 768 bf16")
    found["rotary"] = case(
        lambda q, k, v, c, s: ops.attention(ops.rotary(q, c, s), ops.rotary(k, c, s), v, causal=True),
        *_heads("S", "S", 64, "bf16"), "S 32 bf16", "S 32 bf16",
    )  # fmt: skip
    found["flash dropout none"] = case(lambda q, k, v: ops.flash_attention(q, k, v), *_heads("S", "T", 64, "bf16"))
    return found
