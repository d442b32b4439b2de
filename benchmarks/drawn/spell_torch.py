"""How PyTorch says each op: from attributes to a function of tensors; ops that it does not have are not here."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

Function: TypeAlias = "Callable[..., Any]"
Spelling: TypeAlias = "Callable[[Any, Mapping[str, Any]], Function]"

DTYPES = {
    "f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64",
    "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip

VIEWS = frozenset(
    {"reshape", "transpose", "broadcast_to", "expand_dims", "squeeze", "slice", "split", "diagonal", "split_qkv"}
)
"""Ops that give a view of their operand: where one comes last, its result is copied, as everybody else's is new."""
RANDOM = frozenset({"uniform", "normal", "bernoulli", "dropout", "random_bits"})
"""Ops of which a peer gives other numbers."""
ANY_ORDER = frozenset({"scatter", "index_put", "argsort", "topk", "argmax", "argmin"})
"""Ops of which a peer may take any of several equal or competing elements."""


def dtype_of(torch: Any, name: str) -> Any:
    """The dtype of a name of ours; raises KeyError for one that torch does not have."""
    return getattr(torch, DTYPES[name])


def _named(name: str, *, functional: bool = False) -> Spelling:
    """The function of a name, which takes the operands and nothing more."""
    return lambda torch, attributes: getattr(torch.nn.functional if functional else torch, name)


def _reduction(name: str, **more: Any) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        function, axes, keep = getattr(torch, name), attributes["axes"], attributes["keepdims"]
        if not axes:
            return lambda x: function(x.reshape(1), dim=0, **more)
        return lambda x: function(x, dim=axes, keepdim=keep, **more)

    return spell


def _one_axis(name: str) -> Spelling:
    """Reductions that take one axis: several are made one first."""

    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        function, axes, keep = getattr(torch, name), attributes["axes"], attributes["keepdims"]
        if len(axes) == 1:
            return lambda x: _value(function(x, dim=axes[0], keepdim=keep))

        def run(x: Any) -> Any:
            kept = [axis for axis in range(x.ndim) if axis not in axes]
            flat = x.permute(*kept, *axes).flatten(len(kept)) if axes else x.reshape(1)
            made = _value(function(flat, dim=-1))
            return made.reshape([1 if axis in axes else x.shape[axis] for axis in range(x.ndim)]) if keep else made

        return run

    return spell


def _value(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def _deviation(name: str) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        more = {"correction": attributes["correction"], "keepdim": attributes["keepdims"]}
        axes = attributes["axes"]
        return lambda x: getattr(torch, name)(x, dim=axes, **more)

    return spell


def _norm(torch: Any, attributes: Mapping[str, Any]) -> Function:
    order, axes, keep = attributes["order"], attributes["axes"], attributes["keepdims"]
    return lambda x: torch.linalg.vector_norm(x, ord=order, dim=axes or None, keepdim=keep)


def _scan(name: str) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        function, axis = getattr(torch, name), attributes["axis"]

        def run(x: Any) -> Any:
            # Integers accumulate in 64 bits, as ours do.
            given = {"dtype": x.dtype} if name != "cummax" and x.is_floating_point() else {}
            return _value(function(x, axis, **given))

        if not attributes["reverse"]:
            return run
        return lambda x: run(x.flip(axis)).flip(axis)

    return spell


def _axis(name: str, *, functional: bool = False) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        function, axis = getattr(torch.nn.functional if functional else torch, name), attributes["axis"]
        return lambda x: function(x, dim=axis)

    return spell


def _norm_over(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axis, eps = attributes["axis"], attributes["eps"]
    return lambda x, *more: torch.nn.functional.layer_norm(x, x.shape[axis:], *more, eps=eps)


def _rms_over(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axis, eps = attributes["axis"], attributes["eps"]
    return lambda x, *more: torch.nn.functional.rms_norm(x, x.shape[axis:], *more, eps=eps)


def _attention(torch: Any, attributes: Mapping[str, Any]) -> Function:
    attend = torch.nn.functional.scaled_dot_product_attention
    causal, scale = attributes["causal"], attributes["scale"]

    def run(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        more = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        if causal and q.shape[2] != k.shape[2]:
            # Ours ends with the last key; is_causal of torch begins with the first.
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
            return attend(q, k, v, attn_mask=mask, scale=scale, **more)
        given = mask.to(q.dtype) if mask is not None and mask.dtype.is_floating_point else mask
        return attend(q, k, v, attn_mask=given, is_causal=causal, scale=scale, **more)

    return run


def _cached_attention(torch: Any, attributes: Mapping[str, Any]) -> Function:
    attend = torch.nn.functional.scaled_dot_product_attention
    causal, scale = attributes["causal"], attributes["scale"]

    def run(q: Any, k: Any, v: Any, length: Any) -> Any:
        keys = torch.arange(k.shape[2], device=q.device)
        mask = (keys < length)[None, :]
        if causal:
            queries = torch.arange(q.shape[2], device=q.device)[:, None]
            mask = mask & (keys[None, :] <= queries + length - q.shape[2])
        return attend(q, k, v, attn_mask=mask.expand(q.shape[2], -1), scale=scale, enable_gqa=True)

    return run


def _split_qkv(torch: Any, attributes: Mapping[str, Any]) -> Function:
    heads, kv = attributes["heads"], attributes["kv_heads"] or attributes["heads"]

    def run(x: Any) -> Any:
        size = x.shape[-1] // (heads + 2 * kv)
        parts = x.split([heads * size, kv * size, kv * size], -1)
        return tuple(part.unflatten(-1, (-1, size)).transpose(1, 2) for part in parts)

    return run


def _rotary(torch: Any, attributes: Mapping[str, Any]) -> Function:
    def halves(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)

    def neighbours(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2).to(x.dtype)

    return neighbours if attributes["interleaved"] else halves


def _matmul(torch: Any, attributes: Mapping[str, Any]) -> Function:
    if attributes["dtype"] is None:
        return torch.matmul
    made = dtype_of(torch, attributes["dtype"])

    def run(a: Any, b: Any) -> Any:
        if a.dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=a.device)
            return torch._scaled_mm(a, b, one, one, out_dtype=made)
        return torch.matmul(a.to(made), b.to(made))

    return run


def _ragged_dot(torch: Any, attributes: Mapping[str, Any]) -> Function:
    """One matmul for each group: `_grouped_mm` takes bf16 in rows of whole 16 bytes alone."""

    def run(x: Any, w: Any, offsets: Any) -> Any:
        ends = offsets.clamp(0, x.shape[0]).tolist()
        out = x.new_zeros((x.shape[0], w.shape[2]))
        for matrix, first, end in zip(w, ends, ends[1:], strict=False):
            out[first:end] = x[first:end] @ matrix
        return out

    return run


def _dot_general(torch: Any, attributes: Mapping[str, Any]) -> Function:
    names = [f"{side}_{kind}" for side in ("lhs", "rhs") for kind in ("batch", "contract")]
    lhs_batch, lhs_contract, rhs_batch, rhs_contract = (attributes[name] for name in names)

    def run(a: Any, b: Any) -> Any:
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        left = {axis: next(letters) for axis in range(a.ndim)}
        pairs = {**dict(zip(rhs_batch, lhs_batch, strict=True)), **dict(zip(rhs_contract, lhs_contract, strict=True))}
        right = {axis: left[pairs[axis]] if axis in pairs else next(letters) for axis in range(b.ndim)}
        free = [left[axis] for axis in range(a.ndim) if axis not in (*lhs_batch, *lhs_contract)]
        free += [right[axis] for axis in range(b.ndim) if axis not in (*rhs_batch, *rhs_contract)]
        made = [left[axis] for axis in lhs_batch] + free
        return torch.einsum(f"{''.join(left.values())},{''.join(right.values())}->{''.join(made)}", a, b)

    return run


def _window(attributes: Mapping[str, Any], name: str, count: int) -> tuple[int, ...]:
    given = tuple(attributes[name])
    return given * count if len(given) == 1 else given


def _pads(attributes: Mapping[str, Any], sizes: Any, taps: Any) -> list[int]:
    """Zeros before and behind each axis, the last axis first, as `torch.nn.functional.pad` takes them."""
    count = len(taps)
    stride, dilation = _window(attributes, "stride", count), _window(attributes, "dilation", count)
    pairs: list[tuple[int, int]] = []
    for axis in range(count):
        if attributes["padding_mode"] == "same":
            made = -(-sizes[axis] // stride[axis])
            whole = max(0, (made - 1) * stride[axis] + dilation[axis] * (taps[axis] - 1) + 1 - sizes[axis])
            pairs.append((whole // 2, whole - whole // 2))
        elif attributes["padding_mode"] == "valid":
            pairs.append((0, 0))
        else:
            given = tuple(attributes["padding"])
            pair = given[2 * axis : 2 * axis + 2] if len(given) == 2 * count else None
            own = given[axis] if len(given) == count else given[0]
            pairs.append(pair if pair is not None and len(given) > count else (own, own))
    return [size for pair in reversed(pairs) for size in pair]


def _conv(spatial: int) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        convolve = getattr(torch.nn.functional, f"conv{spatial}d")
        more = {name: _window(attributes, name, spatial) for name in ("stride", "dilation")}

        def run(x: Any, w: Any) -> Any:
            pads = _pads(attributes, x.shape[2:], w.shape[2:])
            lows, highs = pads[-2::-2], pads[-1::-2]
            if lows == highs:
                return convolve(x, w, padding=tuple(lows), groups=attributes["groups"], **more)
            return convolve(torch.nn.functional.pad(x, pads), w, groups=attributes["groups"], **more)

        return run

    return spell


def _conv_transpose(spatial: int) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        convolve = getattr(torch.nn.functional, f"conv_transpose{spatial}d")
        more = {name: _window(attributes, name, spatial) for name in ("stride", "dilation", "output_padding")}

        def run(x: Any, w: Any) -> Any:
            pads = _pads(attributes, x.shape[2:], w.shape[2:])
            lows, highs = pads[-2::-2], pads[-1::-2]
            if lows == highs:
                return convolve(x, w, padding=tuple(lows), groups=attributes["groups"], **more)
            made = convolve(x, w, groups=attributes["groups"], **more)
            sizes = zip(lows, made.shape[2:], highs, strict=True)
            cuts = [slice(low, size - high) for low, size, high in sizes]
            return made[(slice(None), slice(None), *cuts)]

        return run

    return spell


def _pool(name: str, fill: float) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        window = tuple(attributes["window"])
        count, F = len(window), torch.nn.functional
        stride = _window(attributes, "stride", count) if attributes["stride"] else window
        filled = {**attributes, "stride": stride}
        dilation = _window(attributes, "dilation", count)

        def run(x: Any) -> Any:
            whole = x.reshape(1, -1, *x.shape[-count:])
            pads = _pads(filled, x.shape[-count:], window)
            if any(pads):
                whole = F.pad(whole, pads, value=fill)
            if name == "max":
                made = getattr(F, f"max_pool{count}d")(whole, window, stride, dilation=dilation)
            elif max(dilation) > 1:
                raise NotImplementedError("torch has no dilated average pool")
            else:
                made = getattr(F, f"avg_pool{count}d")(whole, window, stride)
            return made.reshape(*x.shape[:-count], *made.shape[2:])

        return run

    return spell


def _cross_entropy(torch: Any, attributes: Mapping[str, Any]) -> Function:
    return partial(torch.nn.functional.cross_entropy, reduction=attributes["reduction"])


def _pad(torch: Any, attributes: Mapping[str, Any]) -> Function:
    pairs = list(zip(attributes["low"], attributes["high"], strict=True))
    widths, value = [size for pair in reversed(pairs) for size in pair], attributes["value"]
    return lambda x: torch.nn.functional.pad(x, widths, value=value)


def _created(make: Callable[[Any, Mapping[str, Any], Any], Function]) -> Spelling:
    """Ops without operands; the device is the one that tensors are made on by default."""
    return lambda torch, attributes: make(torch, attributes, dtype_of(torch, attributes["dtype"]))


def _iota(torch: Any, attributes: Mapping[str, Any], dtype: Any) -> Function:
    shape, axis = attributes["shape"], attributes["axis"]
    view = [-1 if at == axis else 1 for at in range(len(shape))]
    return lambda: torch.arange(shape[axis], dtype=dtype).view(view).expand(shape).contiguous()


def _eye(torch: Any, attributes: Mapping[str, Any], dtype: Any) -> Function:
    (rows, columns), offset = attributes["shape"], attributes["offset"]
    if not offset:
        return lambda: torch.eye(rows, columns, dtype=dtype)

    def run() -> Any:
        made = torch.zeros(rows, columns, dtype=dtype)
        made.diagonal(offset).fill_(1)
        return made

    return run


def _linspace(torch: Any, attributes: Mapping[str, Any], dtype: Any) -> Function:
    start, stop, num = (attributes[name] for name in ("start", "stop", "num"))
    end = stop if attributes["endpoint"] else stop - (stop - start) / max(num, 1)
    return lambda: torch.linspace(start, end, num, dtype=dtype)


def _one_hot(torch: Any, attributes: Mapping[str, Any]) -> Function:
    (depth,), dtype = attributes["depth"], dtype_of(torch, attributes["dtype"])

    def run(indices: Any) -> Any:
        return (indices[..., None] == torch.arange(depth, device=indices.device)).to(dtype)

    return run


def _gather(torch: Any, attributes: Mapping[str, Any]) -> Function:
    return lambda x, indices: x[tuple(indices.long().unbind(-1))]


def _take(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axis = attributes.get("axis", 0)

    def run(x: Any, indices: Any) -> Any:
        made = torch.index_select(x, axis, indices.reshape(-1))
        at = axis % x.ndim
        return made.reshape(*x.shape[:at], *indices.shape, *x.shape[at + 1 :])

    return run


def _index_get(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axes = attributes["axes"]

    def run(x: Any, *indices: Any) -> Any:
        places: list[Any] = [slice(None)] * x.ndim
        for axis, index in zip(axes, indices, strict=True):
            places[axis] = index
        return x[tuple(places)]

    return run


def _index_put(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axes, reduce = attributes["axes"], attributes["reduce"]
    if reduce not in ("set", "add"):
        raise NotImplementedError(f"torch has no index_put that reduces by {reduce}")

    if tuple(axes) != tuple(range(len(axes))):
        raise NotImplementedError("torch puts at the first axes")
    return lambda x, updates, *indices: torch.index_put(x, indices, updates, accumulate=reduce == "add")


def _scatter(name: str) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        axis, function = attributes["axis"], getattr(torch, name)

        def run(x: Any, indices: Any, updates: Any) -> Any:
            if not indices.ndim:
                return function(x, axis, indices[None], updates.unsqueeze(axis))
            return function(x, axis, indices, updates)

        return run

    return spell


def _topk(torch: Any, attributes: Mapping[str, Any]) -> Function:
    k, axis, largest = attributes["k"], attributes["axis"], attributes["largest"]
    return lambda x: tuple(torch.topk(x, k, dim=axis, largest=largest))


def _sorted(which: int) -> Spelling:
    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        axis, down = attributes["axis"], attributes["descending"]
        if which:
            return lambda x: torch.argsort(x, dim=axis, descending=down, stable=True)
        return lambda x: torch.sort(x, dim=axis, descending=down)[0]

    return spell


def _slice(torch: Any, attributes: Mapping[str, Any]) -> Function:
    parts = list(zip(attributes["start"], attributes["stop"], attributes["step"], strict=True))

    def run(x: Any) -> Any:
        flipped = [axis for axis, (_, _, step) in enumerate(parts) if step < 0]
        cut = tuple(
            slice(start, stop, step) if step > 0 else slice(size - 1 - start, size - 1 - stop, -step)
            for size, (start, stop, step) in zip(x.shape, parts, strict=True)
        )
        return (x.flip(flipped) if flipped else x)[cut]

    return run


def _squeezed(torch: Any, attributes: Mapping[str, Any]) -> Function:
    return lambda x: x.squeeze(attributes["axes"])


def _expanded(torch: Any, attributes: Mapping[str, Any]) -> Function:
    axes = sorted(attributes["axes"])

    def run(x: Any) -> Any:
        for axis in axes:
            x = x.unsqueeze(axis)
        return x

    return run


def _drawn(make: Callable[[Any, Mapping[str, Any]], Function]) -> Spelling:
    """Random numbers: the key is not used."""

    def spell(torch: Any, attributes: Mapping[str, Any]) -> Function:
        function = make(torch, attributes)
        return lambda key: function(key.device)

    return spell


def _uniform(torch: Any, attributes: Mapping[str, Any]) -> Function:
    shape, low, high = attributes["shape"], attributes["low"], attributes["high"]
    dtype = dtype_of(torch, attributes["dtype"])
    return lambda device: torch.empty(shape, dtype=dtype, device=device).uniform_(low, high)


def _normal(torch: Any, attributes: Mapping[str, Any]) -> Function:
    shape, mean, std = attributes["shape"], attributes["mean"], attributes["std"]
    dtype = dtype_of(torch, attributes["dtype"])
    return lambda device: torch.empty(shape, dtype=dtype, device=device).normal_(mean, std)


def _bernoulli(torch: Any, attributes: Mapping[str, Any]) -> Function:
    shape, p = attributes["shape"], attributes["p"]
    return lambda device: torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(p)


def _bits(torch: Any, attributes: Mapping[str, Any]) -> Function:
    shape, dtype = attributes["shape"], dtype_of(torch, attributes["dtype"])
    signed = {8: torch.int8, 4: torch.int32, 2: torch.int16, 1: torch.int8}
    if dtype.itemsize == 8:
        return lambda device: torch.empty(shape, dtype=torch.int64, device=device).random_().view(dtype)
    kind = signed[dtype.itemsize]
    low, high = torch.iinfo(kind).min, torch.iinfo(kind).max
    return lambda device: torch.empty(shape, dtype=kind, device=device).random_(low, high).view(dtype)


def _dropout(torch: Any, attributes: Mapping[str, Any]) -> Function:
    rate = attributes["rate"]
    return lambda x, key: torch.nn.functional.dropout(x, rate)


def _residual(torch: Any, attributes: Mapping[str, Any]) -> Function:
    rate = attributes["dropout"]
    if not rate:
        return lambda x, y: x + y
    return lambda x, y, key: x + torch.nn.functional.dropout(y, rate)


def _round_to(torch: Any, attributes: Mapping[str, Any]) -> Function:
    target = dtype_of(torch, attributes["format"])
    if attributes["rounding"] != "nearest_even" or not target.is_floating_point:
        raise NotImplementedError("torch rounds to nearest floats alone")
    return lambda x: x.to(target).to(x.dtype)


def _quantize(torch: Any, attributes: Mapping[str, Any]) -> Function:
    target = dtype_of(torch, attributes["dtype"])
    if attributes["block"]:
        raise NotImplementedError("torch has no scales of blocks")
    if target.is_floating_point:
        top = torch.finfo(target).max
        return lambda x, scale: (x / scale).clamp(-top, top).to(target)
    low, high = torch.iinfo(target).min, torch.iinfo(target).max
    return lambda x, scale: (x / scale).round().clamp(low, high).to(target)


def _dequantize(torch: Any, attributes: Mapping[str, Any]) -> Function:
    target = dtype_of(torch, attributes["dtype"])
    if attributes["block"]:
        raise NotImplementedError("torch has no scales of blocks")
    return lambda q, scale: (q.to(torch.float32) * scale).to(target)


def _cast(torch: Any, attributes: Mapping[str, Any]) -> Function:
    target = dtype_of(torch, attributes["dtype"])
    return lambda x: x.to(target, copy=True)


def _count_bits(torch: Any, attributes: Mapping[str, Any]) -> Function:
    """A table of bytes: torch counts the bits of no tensor by itself."""
    table = torch.tensor([value.bit_count() for value in range(256)], dtype=torch.uint8)

    def count(x: Any) -> Any:
        parts = x.contiguous().view(torch.uint8).reshape(*x.shape, x.element_size())
        return table.to(x.device)[parts.long()].sum(-1).to(x.dtype)

    return count


_SAME_NAME = (
    "neg", "abs", "sign", "relu", "floor", "ceil", "round", "trunc", "isnan", "isinf", "exp", "exp2", "expm1", "log",
    "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "atan2", "tanh", "sigmoid", "erf", "add",
    "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "bitwise_not",
    "logical_and", "bitwise_and", "logical_or", "bitwise_or", "logical_xor", "bitwise_xor", "where",
    "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "log10", "erfc", "hypot", "copysign", "gcd",
)  # fmt: skip

SPELLINGS: dict[str, Spelling] = {
    **{name: _named(name) for name in _SAME_NAME},
    "silu": _named("silu", functional=True),
    "population_count": _count_bits,
    "softplus": _named("softplus", functional=True),
    "floordiv": _named("floor_divide"),
    "mod": _named("remainder"),
    "shift_left": _named("bitwise_left_shift"),
    "shift_right": _named("bitwise_right_shift"),
    "clamp": _named("clamp"),
    "gelu": lambda torch, a: partial(torch.nn.functional.gelu, approximate=a["approximate"]),
    "cast": _cast,
    "bitcast": lambda torch, a: lambda x: x.view(dtype_of(torch, a["dtype"])).clone(),
    "cast_like": lambda torch, a: lambda x, like: x.to(like.dtype, copy=True),
    **{name: _reduction(name) for name in ("sum", "mean", "amax", "amin", "logsumexp")},
    "sum": lambda torch, a: lambda x: _reduction("sum", dtype=None if x.dtype == torch.bool else x.dtype)(torch, a)(x),
    "max": _reduction("amax"),
    "min": _reduction("amin"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "logsumexp_safe": _reduction("logsumexp"),
    "prod": _one_axis("prod"),
    "argmax": _one_axis("argmax"),
    "argmin": _one_axis("argmin"),
    "var": _deviation("var"),
    "std": _deviation("std"),
    "norm": _norm,
    **{name: _scan(name) for name in ("cumsum", "cumprod", "cummax")},
    "softmax": _axis("softmax"),
    "softmax_safe": _axis("softmax"),
    "log_softmax": _axis("log_softmax"),
    "layernorm_safe": _norm_over,
    "rmsnorm_safe": _rms_over,
    "cross_entropy": _cross_entropy,
    "attention": _attention,
    "cached_attention": _cached_attention,
    "split_qkv": _split_qkv,
    "rotary": _rotary,
    "residual": _residual,
    "matmul": _matmul,
    "dot_general": _dot_general,
    "ragged_dot": _ragged_dot,
    "einsum": lambda torch, a: partial(torch.einsum, a["equation"]),
    "conv1d": _conv(1),
    "conv2d": _conv(2),
    "conv3d": _conv(3),
    **{f"conv_transpose{spatial}d": _conv_transpose(spatial) for spatial in (1, 2, 3)},
    "max_pool": _pool("max", -math.inf),
    "avg_pool": _pool("avg", 0.0),
    "concat": lambda torch, a: lambda *xs: torch.cat(xs, a["axis"]),
    "stack": lambda torch, a: lambda *xs: torch.stack(xs, a["axis"]),
    "pad": _pad,
    "iota": _created(_iota),
    "full": _created(lambda torch, a, dtype: lambda: torch.full(a["shape"], a["value"], dtype=dtype)),
    "eye": _created(_eye),
    "linspace": _created(_linspace),
    "tril": lambda torch, a: lambda x: torch.tril(x, a["offset"]),
    "triu": lambda torch, a: lambda x: torch.triu(x, a["offset"]),
    "diagonal": lambda torch, a: lambda x: torch.diagonal(x, 0, a["axis1"], a["axis2"]).movedim(-1, a["axis1"]),
    "reshape": lambda torch, a: lambda x: x.reshape(a["shape"]),
    "transpose": lambda torch, a: lambda x: x.permute(a["axes"]),
    "broadcast_to": lambda torch, a: lambda x: x.expand(a["shape"]),
    "expand_dims": _expanded,
    "squeeze": _squeezed,
    "slice": _slice,
    "flip": lambda torch, a: lambda x: torch.flip(x, a["axes"]),
    "roll": lambda torch, a: lambda x: torch.roll(x, a["shifts"], a["axes"]),
    "tile": lambda torch, a: lambda x: torch.tile(x, a["reps"]),
    "repeat": lambda torch, a: lambda x: torch.repeat_interleave(x, a["repeats"], a["axis"]),
    "split": lambda torch, a: lambda x: torch.split(x, list(a["sizes"]), a["axis"]),
    "take": _take,
    "embedding": lambda torch, a: lambda table, indices: torch.nn.functional.embedding(indices, table),
    "gather": _gather,
    "index_get": _index_get,
    "index_put": _index_put,
    "take_along_axis": lambda torch, a: lambda x, indices: torch.take_along_dim(x, indices, a["axis"]),
    "one_hot": _one_hot,
    "scatter": _scatter("index_copy"),
    "scatter_add": _scatter("index_add"),
    "sort": _sorted(0),
    "argsort": _sorted(1),
    "topk": _topk,
    "uniform": _drawn(_uniform),
    "normal": _drawn(_normal),
    "bernoulli": _drawn(_bernoulli),
    "random_bits": _drawn(_bits),
    "dropout": _dropout,
    "round_to": _round_to,
    "quantize": _quantize,
    "dequantize": _dequantize,
}
