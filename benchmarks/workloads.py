"""The workloads of the CPU benchmark: shapes, inputs, and what the right answer is in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np

from benchmarks import transformer

Array: TypeAlias = "np.ndarray[Any, Any]"
Arrays: TypeAlias = "dict[str, Any]"

EPSILON = {"f32": 2.0**-24, "bf16": 2.0**-8}
NUMPY_DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Workload:
    """One row of the table: an operation at one shape and dtype.

    `kind` says what is computed (contenders know how), `sizes` its dims by name. `quick` marks the rows that are left
    when time is short. `flops` and `bytes` are of the operation as written down, not of how a library does it.
    """

    family: str
    kind: str
    sizes: Mapping[str, int]
    dtype: str = "f32"
    quick: bool = False

    @property
    def name(self) -> str:
        """What the row is called: `matmul 1024x1024x1024 f32`."""
        return f"{self.kind} {'x'.join(str(size) for size in self.sizes.values())} {self.dtype}"

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply and an add counted as two."""
        return float(_FLOPS.get(self.kind, _row_flops)(self.sizes))

    def inputs(self, seed: int = 0) -> Arrays:
        """Arguments by name, the same at every call."""
        rng = np.random.default_rng(seed)
        return _INPUTS.get(self.kind, _row_inputs)(self, rng)

    def reference(self, arrays: Arrays) -> Array:
        """The answer, computed in float64 from the very inputs the contenders get."""
        return _REFERENCES[self.kind](self, _in_float64(arrays))

    def tolerance(self, reference: Array) -> float:
        """Largest error that rounding explains: a random walk of f32 sums over a typical value, and one last rounding.

        Eight standard deviations: the largest of sixteen million errors is near five and a half.
        """
        typical = math.sqrt(float(np.mean(np.square(reference))))
        walk = 8 * EPSILON["f32"] * (math.sqrt(_depth(self)) + 8) * typical
        return walk + 2 * EPSILON[self.dtype] * float(np.max(np.abs(reference)))


def _in_float64(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_float64(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_in_float64(item) for item in cast("list[Any]", value)]
    return value.astype(np.float64)


def _depth(work: Workload) -> int:
    """How many roundings follow each other that lead to one element."""
    sizes = work.sizes
    if work.kind in ("matmul", "matmul_bias_gelu"):
        return sizes["K"]
    if work.kind.startswith("attention"):
        return sizes["S"] + sizes["D"]
    if work.kind == "transformer":
        # Errors of each layer pass through the norms of the next ones.
        return 16 * sizes["L"] * (sizes["S"] + 6 * sizes["D"])
    return sizes["N"]


def _row_flops(sizes: Mapping[str, int]) -> float:
    # Five visits an element: what a softmax or a norm takes at least (subtract, function, sum, scale, shift).
    return 5.0 * sizes["M"] * sizes["N"]


def _matmul_flops(sizes: Mapping[str, int]) -> float:
    return 2.0 * sizes["M"] * sizes["N"] * sizes["K"]


def _attention_flops(sizes: Mapping[str, int]) -> float:
    return 4.0 * sizes["B"] * sizes["H"] * sizes["S"] ** 2 * sizes["D"]


_FLOPS: dict[str, Callable[[Mapping[str, int]], float]] = {
    "matmul": _matmul_flops,
    "matmul_bias_gelu": _matmul_flops,
    "attention": _attention_flops,
    "attention_causal": lambda sizes: _attention_flops(sizes) / 2,
    "transformer": transformer.flops,
}


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "f32") -> Array:
    return rng.standard_normal(shape, np.float32).astype(NUMPY_DTYPES[dtype], copy=False)


def _matmul_inputs(work: Workload, rng: np.random.Generator) -> Arrays:
    M, K, N = (work.sizes[name] for name in "MKN")
    arrays = {"a": _normal(rng, (M, K), work.dtype), "b": _normal(rng, (K, N), work.dtype)}
    if work.kind == "matmul_bias_gelu":
        # Weights of a trained size, so that gelu sees both of its sides and not only its tails.
        arrays["b"] = (arrays["b"] * np.float32(1 / math.sqrt(K))).astype(arrays["b"].dtype)
        arrays["bias"] = _normal(rng, (N,), work.dtype)
    return arrays


def _row_inputs(work: Workload, rng: np.random.Generator) -> Arrays:
    M, N = work.sizes["M"], work.sizes["N"]
    arrays = {"x": _normal(rng, (M, N), work.dtype)}
    if work.kind in ("layernorm", "rmsnorm"):
        arrays["weight"] = _normal(rng, (N,), work.dtype)
    if work.kind == "layernorm":
        arrays["bias"] = _normal(rng, (N,), work.dtype)
    if work.kind in ("bias_gelu_mul", "bias_gelu_erf_mul"):
        arrays |= {"bias": _normal(rng, (N,), work.dtype), "gate": _normal(rng, (M, N), work.dtype)}
    return arrays


def _attention_inputs(work: Workload, rng: np.random.Generator) -> Arrays:
    shape = tuple(work.sizes[name] for name in "BHSD")
    return {name: _normal(rng, shape, work.dtype) for name in ("q", "k", "v")}


_INPUTS: dict[str, Callable[[Workload, np.random.Generator], Arrays]] = {
    "matmul": _matmul_inputs,
    "matmul_bias_gelu": _matmul_inputs,
    "attention": _attention_inputs,
    "attention_causal": _attention_inputs,
    "transformer": lambda work, rng: transformer.inputs(work.sizes, rng),
}


def _gelu_erf(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def _softmax(work: Workload, arrays: Arrays) -> Array:
    shifted = np.exp(arrays["x"] - arrays["x"].max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _layernorm(work: Workload, arrays: Arrays) -> Array:
    return transformer.layernorm(arrays["x"], arrays["weight"], arrays["bias"])


def _rmsnorm(work: Workload, arrays: Arrays) -> Array:
    x = arrays["x"]
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * arrays["weight"]


def _attention(work: Workload, arrays: Arrays) -> Array:
    q, k, v = arrays["q"], arrays["k"], arrays["v"]
    out = np.empty_like(q)
    for index in np.ndindex(q.shape[:2]):  # a head at a time: all scores together would fill the memory
        out[index] = transformer.attend(q[index], k[index], v[index], causal=work.kind == "attention_causal")
    return out


_REFERENCES: dict[str, Callable[[Workload, Arrays], Array]] = {
    "matmul": lambda work, arrays: arrays["a"] @ arrays["b"],
    "matmul_bias_gelu": lambda work, arrays: transformer.gelu(arrays["a"] @ arrays["b"] + arrays["bias"]),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "bias_gelu_mul": lambda work, arrays: transformer.gelu(arrays["x"] + arrays["bias"]) * arrays["gate"],
    "bias_gelu_erf_mul": lambda work, arrays: _gelu_erf(arrays["x"] + arrays["bias"]) * arrays["gate"],
    "attention": _attention,
    "attention_causal": _attention,
    "transformer": lambda work, arrays: transformer.forward(arrays["x"], arrays["layers"], work.sizes["H"]),
}


def _product(family: str, kind: str, M: int, K: int, N: int, dtype: str = "f32", quick: bool = False) -> Workload:
    return Workload(family, kind, {"M": M, "K": K, "N": N}, dtype, quick)


def _gemms() -> Iterator[Workload]:
    for dtype in ("f32", "bf16"):
        for size in (256, 257, 384, 512, 768, 1000, 1023, 1024, 1536, 2048):
            quick = size in (257, 512, 1000)
            yield _product(f"gemm_{dtype}", "matmul", size, size, size, dtype, quick)
    for shape in ((128, 4096, 1024), (1000, 333, 2049)):
        yield _product("gemm_f32", "matmul", *shape)
    for rows in (1, 8):
        yield _product("skinny", "matmul", rows, 4096, 4096, quick=True)
    for shape in ((1, 4096, 4095), (5, 4000, 4001)):
        yield _product("skinny", "matmul", *shape)
    shapes = (
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (512, 768, 3072),
        (128, 1024, 4096),
        (1000, 257, 1023),
    )
    for shape in shapes:
        yield _product("gemm_gelu", "matmul_bias_gelu", *shape, quick=shape[0] in (512, 1000) and shape[1] < 600)


def _rows() -> Iterator[Workload]:
    for kind in ("softmax", "layernorm", "rmsnorm", "bias_gelu_mul", "bias_gelu_erf_mul"):
        for rows, columns in ((128, 1024), (1000, 1023), (4096, 4096)):
            # math.erf takes elements one at a time: the answer for 16 million would take longer than the row.
            if kind != "bias_gelu_erf_mul" or rows <= 1000:
                yield Workload("rows", kind, {"M": rows, "N": columns}, quick=rows == 1000)


def _attentions() -> Iterator[Workload]:
    for kind in ("attention", "attention_causal"):
        for length in (1024, 1333, 2048, 4096):
            sizes = {"B": 1, "H": 8, "S": length, "D": 64}
            yield Workload("attention", kind, sizes, quick=length == 1024)


def _transformers() -> Iterator[Workload]:
    for batch, length in ((1, 512), (4, 128), (1, 333)):
        sizes = {"L": 4, "B": batch, "S": length, "D": 512, "H": 8}
        yield Workload("transformer", "transformer", sizes, quick=batch == 4)


def workloads() -> tuple[Workload, ...]:
    """All rows, family by family, small sizes before large ones."""
    return (*_gemms(), *_rows(), *_attentions(), *_transformers())


TARGETS: Mapping[str, float] = {
    "gemm_f32": 1.0,
    "gemm_bf16": 1.3,
    "skinny": 1.0,
    "gemm_gelu": 1.1,
    "rows": 1.4,
    "attention": 1.2,
    "transformer": 1.2,
}
"""The geometric mean of best peer's time over ours that each family is meant to reach."""

TARGET_OVERALL, FLOOR, FREE_SHARE = 1.25, 0.93, 0.9
"""Over all rows; the least of any row; the least share of static speed that dynamic dims may keep."""
