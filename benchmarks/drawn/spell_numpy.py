"""How NumPy and JAX say each op: one table for both, since JAX has NumPy's names; and what only JAX has."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tessera.ir.base.arrays import numpy_dtype
from tessera.types.dtype import BY_NAME

Function: TypeAlias = "Callable[..., Any]"
Spelling: TypeAlias = "Callable[[Any, Mapping[str, Any]], Function]"
"""From NumPy or `jax.numpy`, and an op's attributes, to a function of arrays."""

_NAMES = {
    "neg": "negative", "abs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil", "round": "round",
    "trunc": "trunc", "isnan": "isnan", "isinf": "isinf", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "atan2": "arctan2",
    "tanh": "tanh", "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "maximum": "maximum", "minimum": "minimum", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "logical_not": "logical_not",
    "bitwise_not": "invert", "logical_and": "logical_and", "bitwise_and": "bitwise_and", "logical_or": "logical_or",
    "bitwise_or": "bitwise_or", "logical_xor": "logical_xor", "bitwise_xor": "bitwise_xor", "shift_left": "left_shift",
    "shift_right": "right_shift", "where": "where", "clamp": "clip", "matmul": "matmul",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh", "log10": "log10", "hypot": "hypot", "copysign": "copysign", "gcd": "gcd",
}  # fmt: skip


def _named(name: str) -> Spelling:
    return lambda xp, a: getattr(xp, name)


def _reduction(name: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        function, axes, keep = getattr(xp, name), tuple(a["axes"]), a["keepdims"]
        more = {"ddof": a["correction"]} if "correction" in a else {}

        def run(x: Any) -> Any:
            kept = {"dtype": x.dtype} if name in ("sum", "prod") and x.dtype.kind != "b" else {}
            return function(x, axis=axes, keepdims=keep, **kept, **more)

        return run

    return spell


def _argreduce(name: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        function, axes, keep = getattr(xp, name), a["axes"], a["keepdims"]
        if len(axes) > 1:
            raise NotImplementedError("NumPy takes one axis")
        return lambda x: function(x, axis=axes[0] if axes else None, keepdims=keep)

    return spell


def _logsumexp(xp: Any, a: Mapping[str, Any]) -> Function:
    axes, keep = tuple(a["axes"]), a["keepdims"]

    def run(x: Any) -> Any:
        top = xp.max(x, axis=axes, keepdims=True)
        made = xp.log(xp.sum(xp.exp(x - top), axis=axes, keepdims=True)) + top
        return made if keep else xp.squeeze(made, axes)

    return run


def _norm(xp: Any, a: Mapping[str, Any]) -> Function:
    if a["order"] != 2.0:
        raise NotImplementedError("only the order 2 is spelled")
    return lambda x: xp.sqrt(xp.sum(x * x, axis=tuple(a["axes"]), keepdims=a["keepdims"]))


def _scan(name: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        axis = a["axis"]

        def run(x: Any) -> Any:
            if name == "cummax":
                return xp.maximum.accumulate(x, axis=axis)
            return getattr(xp, name)(x, axis=axis, dtype=None if x.dtype.kind in "iu" else x.dtype)

        return run if not a["reverse"] else lambda x: xp.flip(run(xp.flip(x, axis)), axis)

    return spell


def _softmax(xp: Any, a: Mapping[str, Any]) -> Function:
    axis = a["axis"]

    def run(x: Any) -> Any:
        made = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
        return made / xp.sum(made, axis=axis, keepdims=True)

    return run


def _log_softmax(xp: Any, a: Mapping[str, Any]) -> Function:
    axis = a["axis"]

    def run(x: Any) -> Any:
        moved = x - xp.max(x, axis=axis, keepdims=True)
        return moved - xp.log(xp.sum(xp.exp(moved), axis=axis, keepdims=True))

    return run


def _layernorm(xp: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, *more: Any) -> Any:
        axes = tuple(range(a["axis"] % x.ndim, x.ndim))
        centred = x - xp.mean(x, axis=axes, keepdims=True)
        made = centred / xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + x.dtype.type(a["eps"]))
        made = made * more[0] if more else made
        return made + more[1] if len(more) > 1 else made

    return run


def _rmsnorm(xp: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, *more: Any) -> Any:
        axes = tuple(range(a["axis"] % x.ndim, x.ndim))
        made = x / xp.sqrt(xp.mean(x * x, axis=axes, keepdims=True) + x.dtype.type(a["eps"]))
        return made * more[0] if more else made

    return run


def _attention(xp: Any, a: Mapping[str, Any]) -> Function:
    if a["causal"]:
        raise NotImplementedError("causal attention is left to libraries that have it")

    def run(q: Any, k: Any, v: Any) -> Any:
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = xp.repeat(k, groups, axis=1), xp.repeat(v, groups, axis=1)
        scale = q.dtype.type(a["scale"] or 1 / math.sqrt(q.shape[-1]))
        return _softmax(xp, {"axis": -1})(xp.matmul(q, xp.swapaxes(k, 2, 3)) * scale) @ v

    return run


def _pad(xp: Any, a: Mapping[str, Any]) -> Function:
    widths = list(zip(a["low"], a["high"], strict=True))
    return lambda x: xp.pad(x, widths, constant_values=a["value"])


def _cast(xp: Any, a: Mapping[str, Any]) -> Function:
    target = numpy_dtype(BY_NAME[a["dtype"]])
    return lambda x: x.astype(target)


def _iota(xp: Any, a: Mapping[str, Any]) -> Function:
    shape, axis, dtype = a["shape"], a["axis"], numpy_dtype(BY_NAME[a["dtype"]])
    view = [-1 if at == axis else 1 for at in range(len(shape))]
    return lambda: xp.broadcast_to(xp.arange(shape[axis], dtype=dtype).reshape(view), shape).copy()


def _full(xp: Any, a: Mapping[str, Any]) -> Function:
    dtype = numpy_dtype(BY_NAME[a["dtype"]])
    return lambda: xp.full(a["shape"], a["value"], dtype)


def _eye(xp: Any, a: Mapping[str, Any]) -> Function:
    if xp.__name__ == "numpy":
        raise NotImplementedError("NumPy's zeros are pages that the system fills when somebody reads them")
    dtype = numpy_dtype(BY_NAME[a["dtype"]])
    return lambda: xp.eye(*a["shape"], k=a["offset"], dtype=dtype)


def _linspace(xp: Any, a: Mapping[str, Any]) -> Function:
    dtype = numpy_dtype(BY_NAME[a["dtype"]])
    return lambda: xp.linspace(a["start"], a["stop"], a["num"], endpoint=a["endpoint"], dtype=dtype)


def _slice(xp: Any, a: Mapping[str, Any]) -> Function:
    parts = zip(a["start"], a["stop"], a["step"], strict=True)
    # A slice backwards ends before the first element where it stops at -1, which Python would count from the end.
    cut = tuple(slice(start, None if step < 0 and stop < 0 else stop, step) for start, stop, step in parts)
    return lambda x: x[cut]


def _split(xp: Any, a: Mapping[str, Any]) -> Function:
    ends = [sum(a["sizes"][: at + 1]) for at in range(len(a["sizes"]) - 1)]
    return lambda x: tuple(xp.split(x, ends, a["axis"]))


def _index_get(xp: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, *indices: Any) -> Any:
        places: list[Any] = [slice(None)] * x.ndim
        for axis, index in zip(a["axes"], indices, strict=True):
            places[axis] = index
        return x[tuple(places)]

    return run


def _scatter(reduce: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        def run(x: Any, indices: Any, updates: Any) -> Any:
            places = (*[slice(None)] * (a["axis"] % x.ndim), indices)
            if hasattr(x, "at"):
                return x.at[places].add(updates) if reduce == "add" else x.at[places].set(updates)
            made = x.copy()
            if reduce == "add":
                xp.add.at(made, places, updates)
            else:
                made[places] = updates
            return made

        return run

    return spell


def _sort(name: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        if a["descending"]:
            raise NotImplementedError("NumPy sorts up")
        more = {"stable": True} if name == "argsort" else {}
        return lambda x: getattr(xp, name)(x, axis=a["axis"], **more)

    return spell


def _rotary(xp: Any, a: Mapping[str, Any]) -> Function:
    if a["interleaved"]:
        raise NotImplementedError("only halves are spelled")

    def run(x: Any, cos: Any, sin: Any) -> Any:
        first, second = xp.split(x, 2, -1)
        return xp.concatenate((first * cos - second * sin, second * cos + first * sin), -1).astype(x.dtype)

    return run


def _residual(xp: Any, a: Mapping[str, Any]) -> Function:
    if a["dropout"]:
        raise NotImplementedError("dropout is left to libraries that have it")
    return xp.add


def _count_bits(xp: Any, attributes: Mapping[str, Any]) -> Function:
    """Of negative integers `bitwise_count` counts the bits of their magnitudes."""
    return lambda x: xp.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


SPELLINGS: dict[str, Spelling] = {
    **{ours: _named(theirs) for ours, theirs in _NAMES.items()},
    "relu": lambda xp, a: lambda x: xp.maximum(x, x.dtype.type(0)),
    "rsqrt": lambda xp, a: lambda x: x.dtype.type(1) / xp.sqrt(x),
    "population_count": _count_bits,
    "reciprocal": lambda xp, a: lambda x: x.dtype.type(1) / x,
    "sigmoid": lambda xp, a: lambda x: x.dtype.type(1) / (x.dtype.type(1) + xp.exp(-x)),
    "silu": lambda xp, a: lambda x: x / (x.dtype.type(1) + xp.exp(-x)),
    "softplus": lambda xp, a: lambda x: xp.logaddexp(x, x.dtype.type(0)),
    "cast": _cast,
    "cast_like": lambda xp, a: lambda x, like: x.astype(like.dtype),
    **{name: _reduction(name) for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std")},
    **{name: _argreduce(name) for name in ("argmax", "argmin")},
    **dict.fromkeys(("logsumexp", "logsumexp_safe"), _logsumexp),
    "norm": _norm,
    **{name: _scan(name) for name in ("cumsum", "cumprod", "cummax")},
    **dict.fromkeys(("softmax", "softmax_safe"), _softmax),
    "log_softmax": _log_softmax,
    "layernorm_safe": _layernorm,
    "rmsnorm_safe": _rmsnorm,
    "attention": _attention,
    "rotary": _rotary,
    "residual": _residual,
    "einsum": lambda xp, a: lambda *xs: xp.einsum(a["equation"], *xs, optimize=True),
    "concat": lambda xp, a: lambda *xs: xp.concatenate(xs, a["axis"]),
    "stack": lambda xp, a: lambda *xs: xp.stack(xs, a["axis"]),
    "pad": _pad,
    "iota": _iota,
    "full": _full,
    "eye": _eye,
    "linspace": _linspace,
    "tril": lambda xp, a: lambda x: xp.tril(x, a["offset"]),
    "triu": lambda xp, a: lambda x: xp.triu(x, a["offset"]),
    "diagonal": lambda xp, a: lambda x: xp.moveaxis(xp.diagonal(x, 0, a["axis1"], a["axis2"]), -1, a["axis1"]),
    "reshape": lambda xp, a: lambda x: xp.reshape(x, a["shape"]),
    "transpose": lambda xp, a: lambda x: xp.transpose(x, a["axes"]),
    "broadcast_to": lambda xp, a: lambda x: xp.broadcast_to(x, a["shape"]),
    "expand_dims": lambda xp, a: lambda x: xp.expand_dims(x, tuple(a["axes"])),
    "squeeze": lambda xp, a: lambda x: xp.squeeze(x, tuple(a["axes"])),
    "slice": _slice,
    "flip": lambda xp, a: lambda x: xp.flip(x, tuple(a["axes"])).copy(),
    "roll": lambda xp, a: lambda x: xp.roll(x, a["shifts"], a["axes"]),
    "tile": lambda xp, a: lambda x: xp.tile(x, a["reps"]),
    "repeat": lambda xp, a: lambda x: xp.repeat(x, a["repeats"], axis=a["axis"]),
    "split": _split,
    "take": lambda xp, a: lambda x, indices: xp.take(x, indices, axis=a["axis"]),
    "embedding": lambda xp, a: lambda table, indices: xp.take(table, indices, axis=0),
    "gather": lambda xp, a: lambda x, indices: x[tuple(xp.moveaxis(indices, -1, 0))],
    "index_get": _index_get,
    "take_along_axis": lambda xp, a: lambda x, indices: xp.take_along_axis(x, indices, axis=a["axis"]),
    "scatter": _scatter("set"),
    "scatter_add": _scatter("add"),
    "sort": _sort("sort"),
    "argsort": _sort("argsort"),
}


def _jax_pool(name: str) -> Function:
    def spell(jax: Any, a: Mapping[str, Any]) -> Function:
        explicit = a["padding_mode"] == "explicit" and not any(a["padding"]) and set(a["dilation"]) == {1}
        if not explicit:
            raise NotImplementedError("only pools without padding are spelled")
        window, stride = tuple(a["window"]), tuple(a["stride"] or a["window"])
        stride = stride * len(window) if len(stride) == 1 else stride

        def run(x: Any) -> Any:
            ones = (1,) * (x.ndim - len(window))
            least = x.dtype.type(-math.inf if name == "max" else 0)
            by = jax.lax.max if name == "max" else jax.lax.add
            made = jax.lax.reduce_window(x, least, by, (*ones, *window), (*ones, *stride), "VALID")
            return made if name == "max" else made / x.dtype.type(math.prod(window))

        return run

    return spell


def _jax_conv(jax: Any, a: Mapping[str, Any]) -> Function:
    if a["padding_mode"] != "explicit":
        raise NotImplementedError("only explicit padding is spelled")

    def run(x: Any, w: Any) -> Any:
        count = x.ndim - 2
        given = [tuple(a[name]) for name in ("stride", "dilation", "padding")]
        stride, dilation, pads = (one * count if len(one) == 1 else one for one in given)
        both = [(pads[2 * at], pads[2 * at + 1]) if len(pads) > count else (pads[at],) * 2 for at in range(count)]
        groups = a["groups"]
        return jax.lax.conv_general_dilated(x, w, stride, both, rhs_dilation=dilation, feature_group_count=groups)

    return run


def _jax_attention(jax: Any, a: Mapping[str, Any]) -> Function:
    def run(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        if a["causal"] and q.shape[2] != k.shape[2]:
            raise NotImplementedError("only square causal masks are spelled")
        swapped = [jax.numpy.swapaxes(part, 1, 2) for part in (q, k, v)]
        more = {} if mask is None else {"bias" if mask.dtype.kind != "b" else "mask": mask[None, None]}
        made = jax.nn.dot_product_attention(*swapped, scale=a["scale"], is_causal=a["causal"], **more)
        return jax.numpy.swapaxes(made, 1, 2)

    return run


def _jax_cross_entropy(jax: Any, a: Mapping[str, Any]) -> Function:
    def run(logits: Any, classes: Any) -> Any:
        logs = jax.nn.log_softmax(logits, -1)
        each = -jax.numpy.take_along_axis(logs, classes[..., None], -1)[..., 0]
        return {"none": lambda: each, "mean": each.mean, "sum": each.sum}[a["reduction"]]()

    return run


def _jax_topk(jax: Any, a: Mapping[str, Any]) -> Function:
    if not a["largest"]:
        raise NotImplementedError("JAX gives the largest")

    def run(x: Any) -> Any:
        found = jax.lax.top_k(jax.numpy.moveaxis(x, a["axis"], -1), a["k"])
        return tuple(jax.numpy.moveaxis(part, -1, a["axis"]) for part in found)

    return run


def _jax_random(draw: Callable[[Any, Mapping[str, Any], Any], Any]) -> Spelling:
    """Random numbers from the operand that is our key: a constant one would be folded."""

    def spell(jax: Any, a: Mapping[str, Any]) -> Function:
        return lambda key: draw(jax, a, jax.random.wrap_key_data(key[:2].astype(jax.numpy.uint32)))

    return spell


def _jax_uniform(jax: Any, a: Mapping[str, Any], key: Any) -> Any:
    return jax.random.uniform(key, a["shape"], numpy_dtype(BY_NAME[a["dtype"]]), a["low"], a["high"])


def _jax_normal(jax: Any, a: Mapping[str, Any], key: Any) -> Any:
    return jax.random.normal(key, a["shape"], numpy_dtype(BY_NAME[a["dtype"]])) * a["std"] + a["mean"]


def _jax_bits(jax: Any, a: Mapping[str, Any], key: Any) -> Any:
    return jax.random.bits(key, a["shape"], numpy_dtype(BY_NAME[a["dtype"]]))


def _jax_dropout(jax: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, key: Any) -> Any:
        seed = jax.random.wrap_key_data(key[:2].astype(jax.numpy.uint32))
        kept = jax.random.bernoulli(seed, 1 - a["rate"], x.shape)
        return jax.numpy.where(kept, x / x.dtype.type(1 - a["rate"]), x.dtype.type(0))

    return run


def _jax_dot_general(jax: Any, a: Mapping[str, Any]) -> Function:
    numbers = (a["lhs_contract"], a["rhs_contract"]), (a["lhs_batch"], a["rhs_batch"])
    return lambda x, y: jax.lax.dot_general(x, y, numbers)


JAX_SPELLINGS: dict[str, Spelling] = {
    "erf": lambda jax, a: jax.scipy.special.erf,
    "gelu": lambda jax, a: lambda x: jax.nn.gelu(x, approximate=a["approximate"] == "tanh"),
    "cummax": lambda jax, a: lambda x: jax.lax.cummax(x, a["axis"], reverse=a["reverse"]),
    "conv1d": _jax_conv,
    "conv2d": _jax_conv,
    "max_pool": _jax_pool("max"),
    "avg_pool": _jax_pool("avg"),
    "attention": _jax_attention,
    "cross_entropy": _jax_cross_entropy,
    "topk": _jax_topk,
    "dot_general": _jax_dot_general,
    "uniform": _jax_random(_jax_uniform),
    "normal": _jax_random(_jax_normal),
    "bernoulli": _jax_random(lambda jax, a, key: jax.random.bernoulli(key, a["p"], a["shape"])),
    "random_bits": _jax_random(_jax_bits),
    "dropout": _jax_dropout,
    "one_hot": lambda jax, a: lambda x: jax.nn.one_hot(x, a["depth"][0], dtype=numpy_dtype(BY_NAME[a["dtype"]])),
}
"""What `jax.numpy` does not have; these get `jax`."""
