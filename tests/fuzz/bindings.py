"""The names that the text of a program to differentiate speaks of, as Tessera has them and as JAX has them."""

# JAX is not among the libraries that tests need: what it gives has no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import tessera as ts
from tests.fuzz.kernels import KERNELS, write_kernels
from tests.fuzz.program import Program

TRIPS = 4


def _is_small(x: Any) -> Any:
    return (x * x).sum() < 5.0


def _double(x: Any) -> Any:
    return x * 2.0 - x * x * 0.1 + 0.3


def _grow(x: Any, np: Any) -> Any:
    for _ in range(TRIPS):
        x = np.where(_is_small(x), _double(x), x)
    return x


def has_jax() -> bool:
    return importlib.util.find_spec("jax") is not None


@cache
def tessera_names() -> dict[str, Any]:
    ops = ts.ops

    def numbers(x: Any) -> Any:
        return ops.cast(ops.arange(x.size), x.dtype).reshape(x.shape)

    return {
        "ts": ts,
        "ops": _Joined(ops, {"stop_gradient": ts.stop_gradient}),
        "topk": lambda x, k: ops.topk(x, k)[0],
        "take": lambda x, i, axis, mode: ops.take(x, i, axis, mode=mode),
        "grow": lambda x: ts.while_loop(_is_small, _double, x, max_trips=TRIPS),
        **KERNELS,
        **_with_rules(ts, ops),
        **_shared(numbers, ops),
    }


def _shared(numbers: Callable[[Any], Any], ops: Any) -> dict[str, Any]:
    return {
        "jitter": lambda x: x + 0.05 * ops.sin(numbers(x) * 1.7 + 0.3),
        "weigh": lambda x: (x * ops.cos(numbers(x) * 0.9 + 0.1)).sum(),
    }


def _with_rules(library: Any, ops: Any) -> dict[str, Any]:
    """Functions with derivatives of their own, which are right: one for reverse mode, one for both."""
    product = library.custom_vjp(lambda x, y: ops.sin(x) * y)
    product.defvjp(
        lambda x, y: (ops.sin(x) * y, (x, y)), lambda held, g: (g * ops.cos(held[0]) * held[1], g * ops.sin(held[0]))
    )
    bend = library.custom_jvp(lambda x: x * ops.tanh(x))

    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return bend(x), t * (ops.tanh(x) + x * (1.0 - ops.tanh(x) ** 2.0))

    bend.defjvp(rule)
    return {"ruled_product": product, "ruled_bend": bend}


class _Joined:
    """The names of a table, and those of other modules behind it."""

    def __init__(self, *places: Any) -> None:
        self._places = places

    def __getattr__(self, name: str) -> Any:
        for place in self._places:
            if isinstance(place, dict) and name in place:
                return place[name]
            if not isinstance(place, dict) and hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)


class _AnyType:
    """What stands for types, which this library does not ask for."""

    def __class_getitem__(cls, dims: Any) -> Any:
        return dims


@cache
def jax_names() -> dict[str, Any]:
    """The same names by JAX, in 64 bits, with its conventions."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp, lax, nn = (importlib.import_module(f"jax.{name}") for name in ("numpy", "lax", "nn"))

    def numbers(x: Any) -> Any:
        return jnp.arange(x.size).astype(x.dtype).reshape(x.shape)

    def take(x: Any, i: Any, axis: int, mode: str) -> Any:
        count = x.shape[axis]
        i = jnp.where(i < 0, i + count, i)
        found = jnp.take(x, jnp.clip(i, 0, count - 1), axis=axis)
        if mode == "clip":
            return found
        shape = [1] * x.ndim
        shape[axis] = i.size
        return jnp.where(((i >= 0) & (i < count)).reshape(shape), found, 0.0)

    def normalize(x: Any, weight: Any, bias: Any, is_centred: bool) -> Any:
        value = x - x.mean(-1, keepdims=True) if is_centred else x
        value = value * lax.rsqrt((value * value).mean(-1, keepdims=True) + 1e-5)
        value = value if weight is None else value * weight
        return value if bias is None else value + bias

    def cross_entropy(x: Any, labels: Any, reduction: str) -> Any:
        each = -jnp.take_along_axis(nn.log_softmax(x), labels[:, None], axis=1)[:, 0]
        return {"none": each, "mean": each.mean(), "sum": each.sum()}[reduction]

    def sort(x: Any, axis: int, descending: bool = False) -> Any:
        return jnp.sort(x, axis=axis, descending=descending)

    table = {
        "stop_gradient": lax.stop_gradient, "erf": lax.erf, "gelu": lambda x: nn.gelu(x, approximate=False),
        "sigmoid": nn.sigmoid, "rsqrt": lax.rsqrt, "atan2": jnp.arctan2,
        "clamp": lambda x, low, high: lax.clamp(low, x, high),
        "concat": lambda parts, axis: jnp.concatenate(parts, axis), "pad": jnp.pad, "sort": sort,
        "cummax": lambda x, axis: lax.cummax(x, axis), "logsumexp": nn.logsumexp, "softmax": nn.softmax,
        "norm": lambda x, axis, keepdims: jnp.sqrt((x * x).sum(axis, keepdims=keepdims)),
        "layernorm": lambda x, w=None, b=None: normalize(x, w, b, True),
        "rmsnorm": lambda x, w=None: normalize(x, w, None, False),
        "cross_entropy": cross_entropy, "dynamic_slice": lax.dynamic_slice,
    }  # fmt: skip
    control = {
        "Tensor": _AnyType, "f64": None, "f32": None, "i64": None, "cond": lax.cond, "scan": lax.scan,
        "fori_loop": lax.fori_loop, "checkpoint": jax.checkpoint,
    }  # fmt: skip
    return {
        "ts": _Joined(control, jax),
        "ops": _Joined(table, nn, jnp),
        "topk": lambda x, k: lax.top_k(x, k)[0],
        "take": take,
        "grow": lambda x: _grow(x, jnp),
        **write_kernels(jnp),
        **_with_rules(jax, jnp),
        **_shared(numbers, jnp),
    }


def loss_of(program: Program, names: dict[str, Any]) -> Callable[..., Any]:
    """A program as a loss: its outputs weighed and added."""
    head, _, _ = program.text.removeprefix("@ts.jit\n").rpartition("    return ")
    text = f"{head}    return {' + '.join(f'weigh({output})' for output in program.outputs)}\n"
    scope = dict(names)
    exec(compile(text, f"<program {program.seed}>", "exec"), scope)
    return scope["program"]
