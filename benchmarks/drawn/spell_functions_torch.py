"""How PyTorch says functions that are written with ops: from arguments to a function of tensors."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from benchmarks.drawn.functions import POLYNOMIALS
from benchmarks.drawn.spell_torch import dtype_of

Function: TypeAlias = "Callable[..., Any]"
Spelling: TypeAlias = "Callable[[Any, Mapping[str, Any]], Function]"

_NAMED = {
    **{name: name for name in ("deg2rad", "rad2deg", "isfinite", "isneginf", "isposinf", "signbit", "lgamma")},
    **{name: name for name in ("digamma", "logaddexp", "logaddexp2", "fmod", "heaviside", "isclose", "nextafter")},
    **{name: name for name in ("erfinv", "lcm", "ldexp", "square", "sinc", "logit", "zeros_like", "ones_like")},
    **{name: name for name in ("atleast_1d", "atleast_2d", "atleast_3d", "kron", "outer", "cartesian_prod")},
}
_FUNCTIONAL = {
    "hard_sigmoid": "hardsigmoid", "hard_swish": "hardswish", "log_sigmoid": "logsigmoid", "mish": "mish",
    "relu6": "relu6", "selu": "selu", "tanhshrink": "tanhshrink", "bilinear": "bilinear",
}  # fmt: skip
_SPECIAL = ("ndtr", "erfcx", "log_ndtr", "ndtri", "entr", "i0", "i1", "i0e", "i1e", "xlogy", "xlog1py", "zeta")


def _named(name: str) -> Spelling:
    return lambda torch, a: getattr(torch, name)


def _functional(name: str, *arguments: str) -> Spelling:
    """A function of `torch.nn.functional`, with some arguments in its order."""
    return lambda torch, a: lambda *xs: getattr(torch.nn.functional, name)(*xs, *(a[one] for one in arguments))


def _special(name: str) -> Spelling:
    return lambda torch, a: getattr(torch.special, name)


def _listed(name: str) -> Spelling:
    return lambda torch, a: lambda *xs: getattr(torch, name)(xs)


def _over(x: Any, axis: Any, keep: bool, reduce: Callable[[Any, int, bool], Any]) -> Any:
    """A reduction over one axis, or over all, whose dims may stay."""
    if axis is not None:
        return reduce(x, axis, keep)
    made = reduce(x.reshape(-1), 0, False)
    return made.reshape(*made.shape, *(1,) * x.ndim) if keep else made


def _reducing(reduce: Callable[[Any, Any, int, bool], Any]) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        return lambda x: _over(x, a["axis"], a["keepdims"], lambda *given: reduce(torch, *given))

    return spell


def _filled(value: float, then: Callable[[Any, Any, int, bool], Any]) -> Spelling:
    """A reduction of what is left with a value in place of NaN."""
    return _reducing(lambda torch, x, axis, keep: then(torch, torch.where(x.isnan(), value, x), axis, keep))


def _nan_extreme(name: str, value: float) -> Spelling:
    def reduce(torch: Any, x: Any, axis: int, keep: bool) -> Any:
        missing = x.isnan()
        found = getattr(torch.where(missing, value, x), name)(dim=axis, keepdim=keep)
        return torch.where(missing.all(dim=axis, keepdim=keep), math.nan, found)

    return _reducing(reduce)


def _nan_variance(torch: Any, x: Any, axis: int, keep: bool, correction: float) -> Any:
    missing = x.isnan()
    apart = torch.where(missing, 0.0, x - x.nanmean(dim=axis, keepdim=True))
    count = (~missing).sum(dim=axis, keepdim=keep) - correction
    made = (apart * apart).sum(dim=axis, keepdim=keep) / count
    return torch.where(count > 0, made, math.nan)


def _nan_deviation(*, has_root: bool) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        def reduce(x: Any, axis: int, keep: bool) -> Any:
            made = _nan_variance(torch, x, axis, keep, a["correction"])
            return made.sqrt() if has_root else made

        return lambda x: _over(x, a["axis"], a["keepdims"], reduce)

    return spell


def _quantile(name: str, scale: float, q: float | None = None) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        given: Any = a["q"] if q is None else q

        def run(x: Any) -> Any:
            wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
            shares = [one / scale for one in given] if isinstance(given, tuple) else given / scale
            of = torch.tensor(shares, dtype=wide.dtype, device=x.device) if isinstance(shares, list) else shares
            return getattr(torch, name)(wide, of, dim=a["axis"], keepdim=a["keepdims"]).to(x.dtype)

        return run

    return spell


def _median(torch: Any, a: Mapping[str, Any]) -> Function:
    """The mean of the middle two of an even number, which `torch.median` does not give."""
    return _quantile("quantile", 1.0, 0.5)(torch, a)


def _cummin(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda x: x.cummin(a["axis"]).values


def _index_reduce(name: str) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        return lambda x, indices, updates: x.index_reduce(0, indices, updates, name)

    return spell


def _segments(name: str, start: float) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        def run(data: Any, ids: Any) -> Any:
            begin = torch.full((a["num_segments"], *data.shape[1:]), start, dtype=data.dtype, device=data.device)
            if name == "add":
                return begin.index_add(0, ids, data)
            if name == "mean":
                count = torch.bincount(ids, minlength=a["num_segments"]).clamp(min=1)
                return begin.index_add(0, ids, data) / count[:, None].to(data.dtype)
            return begin.index_reduce(0, ids, data, name)

        return run

    return spell


def _unfold(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda x: torch.nn.functional.unfold(x, a["window"], padding=a["padding"])


def _pad_with(torch: Any, a: Mapping[str, Any]) -> Function:
    mode = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[a["mode"]]
    (top, bottom), (left, right) = a["widths"][2:]
    return lambda x: torch.nn.functional.pad(x, (left, right, top, bottom), mode=mode)


def _interpolate(torch: Any, a: Mapping[str, Any]) -> Function:
    mode = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}[a["mode"]]
    return lambda x: torch.nn.functional.interpolate(x, a["size"], mode=mode)


def _grid_sample(torch: Any, a: Mapping[str, Any]) -> Function:
    mode = {"linear": "bilinear", "nearest": "nearest"}[a["mode"]]
    return lambda x, grid: torch.nn.functional.grid_sample(x, grid, mode=mode, align_corners=False)


def _affine_grid(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda theta: torch.nn.functional.affine_grid(theta, (theta.shape[0], 1, *a["size"]), align_corners=False)


def _nonzero(torch: Any, a: Mapping[str, Any], *, in_rows: bool) -> Function:
    def run(x: Any) -> Any:
        found = x.nonzero()[: a["size"]]
        found = torch.nn.functional.pad(found, (0, 0, 0, a["size"] - found.shape[0]))
        return found if in_rows else tuple(found.unbind(1))

    return run


def _masked_select(torch: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, mask: Any) -> Any:
        found = x.masked_select(mask)[: a["size"]]
        return torch.nn.functional.pad(found, (0, a["size"] - found.shape[0]))

    return run


def _sliced(torch: Any, a: Mapping[str, Any]) -> Function:
    cut = tuple(slice(start, start + size) for start, size in zip(a["starts"], a["sizes"], strict=True))
    return lambda x: x[cut]


def _slice_put(torch: Any, a: Mapping[str, Any]) -> Function:
    def run(x: Any, update: Any) -> Any:
        made = x.clone()
        made[tuple(slice(start, start + size) for start, size in zip(a["starts"], update.shape, strict=True))] = update
        return made

    return run


def _gated(activate: Callable[[Any, Any], Any]) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        def run(x: Any) -> Any:
            gate, value = x.chunk(2, a["axis"])
            return activate(torch, gate) * value

        return run

    return spell


def _arange(torch: Any, a: Mapping[str, Any]) -> Function:
    dtype = dtype_of(torch, a["dtype"])
    return lambda: torch.arange(a["start"], a["stop"], a["step"], dtype=dtype)


def _created(name: str) -> Spelling:
    def spell(torch: Any, a: Mapping[str, Any]) -> Function:
        dtype = dtype_of(torch, a["dtype"])
        return lambda: getattr(torch, name)(a["shape"], dtype=dtype)

    return spell


def _triangle(name: str) -> Spelling:
    return lambda torch, a: lambda: getattr(torch, name)(a["rows"], a["columns"], a["offset"])


def _bag(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda table, indices: torch.nn.functional.embedding_bag(indices, table, mode=a["mode"])


def _polygamma(torch: Any, a: Mapping[str, Any]) -> Function:
    """The first one by way of `zeta` in f64, of which `torch.special.polygamma` has nine digits."""
    if a["n"] != 1:
        return lambda x: torch.special.polygamma(a["n"], x)
    return lambda x: torch.special.zeta(2.0, x) if x.dtype == torch.float64 else torch.special.polygamma(1, x)


def _polynomial(name: str) -> Spelling:
    return lambda torch, a: lambda x: getattr(torch.special, name)(x, a["n"])


def _lerp(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda x, y: torch.lerp(x, y, a["weight"])


def _counted(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda x: torch.bincount(x, minlength=a["length"])


def _attend(torch: Any, a: Mapping[str, Any]) -> Function:
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda q, k, v: attend(q, k, v, is_causal=a["causal"])


def _norm_over(name: str, eps: float) -> Spelling:
    return lambda torch, a: lambda x, *more: getattr(torch.nn.functional, name)(x, x.shape[-1:], *more, eps=eps)


def _meshgrid(torch: Any, a: Mapping[str, Any]) -> Function:
    return lambda *xs: torch.meshgrid(*xs, indexing="xy")


def _extremes(torch: Any, x: Any, axis: int, keep: bool) -> Any:
    return x.amax(dim=axis, keepdim=keep) - x.amin(dim=axis, keepdim=keep)


SPELLINGS: dict[str, Spelling] = {
    **{ours: _named(theirs) for ours, theirs in _NAMED.items()},
    **{ours: _functional(theirs) for ours, theirs in _FUNCTIONAL.items()},
    **{name: _special(name) for name in _SPECIAL},
    **{name: _listed(name) for name in ("hstack", "vstack", "dstack", "column_stack")},
    "concatenate": _listed("cat"),
    "block_diag": _named("block_diag"),
    "broadcast_arrays": _named("broadcast_tensors"),
    "allclose": lambda torch, a: lambda x, y: torch.isclose(x, y).all(),
    "prelu": lambda torch, a: lambda x, weight: torch.where(x > 0, x, weight * x),
    "celu": _functional("celu", "alpha"),
    "elu": _functional("elu", "alpha"),
    "hard_tanh": _functional("hardtanh", "low", "high"),
    "hardshrink": _functional("hardshrink", "threshold"),
    "softshrink": _functional("softshrink", "threshold"),
    "leaky_relu": _functional("leaky_relu", "negative_slope"),
    "threshold": _functional("threshold", "threshold", "value"),
    "glu": lambda torch, a: lambda x: torch.nn.functional.glu(x, a["axis"]),
    "geglu": _gated(lambda torch, x: torch.nn.functional.gelu(x)),
    "swiglu": _gated(lambda torch, x: torch.nn.functional.silu(x)),
    "polygamma": _polygamma,
    **{name: _polynomial(name) for name in POLYNOMIALS},
    **{name: _named(name) for name in ("fmax", "fmin")},
    "multigammaln": lambda torch, a: lambda x: torch.special.multigammaln(x, a["d"]),
    "lerp": _lerp,
    "nan_to_num": lambda torch, a: lambda x: torch.nan_to_num(x, a["nan"], a["posinf"], a["neginf"]),
    "astype": lambda torch, a: lambda x: x.to(dtype_of(torch, a["dtype"])),
    "count_nonzero": _reducing(lambda torch, x, axis, keep: (x != 0).sum(dim=axis, keepdim=keep)),
    "ptp": _reducing(_extremes),
    "nansum": _reducing(lambda torch, x, axis, keep: torch.nansum(x, dim=axis, keepdim=keep)),
    "nanmean": _reducing(lambda torch, x, axis, keep: torch.nanmean(x, dim=axis, keepdim=keep)),
    "nanprod": _filled(1.0, lambda torch, x, axis, keep: x.prod(dim=axis, keepdim=keep)),
    "nanmax": _nan_extreme("amax", -math.inf),
    "nanmin": _nan_extreme("amin", math.inf),
    "nanargmax": _filled(-math.inf, lambda torch, x, axis, keep: x.argmax(dim=axis, keepdim=keep)),
    "nanargmin": _filled(math.inf, lambda torch, x, axis, keep: x.argmin(dim=axis, keepdim=keep)),
    "nanvar": _nan_deviation(has_root=False),
    "nanstd": _nan_deviation(has_root=True),
    "median": _median,
    "nanmedian": lambda torch, a: _quantile("nanquantile", 1.0, 0.5)(torch, a),
    "quantile": _quantile("quantile", 1.0),
    "nanquantile": _quantile("nanquantile", 1.0),
    "percentile": _quantile("quantile", 100.0),
    "nanpercentile": _quantile("nanquantile", 100.0),
    "nancumsum": lambda torch, a: lambda x: torch.where(x.isnan(), 0.0, x).cumsum(a["axis"]),
    "nancumprod": lambda torch, a: lambda x: torch.where(x.isnan(), 1.0, x).cumprod(a["axis"]),
    "cummin": _cummin,
    "logcumsumexp": lambda torch, a: lambda x: torch.logcumsumexp(x, a["axis"]),
    "diff": lambda torch, a: lambda x: torch.diff(x, a["n"], a["axis"]),
    "trapezoid": lambda torch, a: lambda y: torch.trapezoid(y, dx=a["dx"], dim=a["axis"]),
    "cumulative_trapezoid": lambda torch, a: lambda y: torch.cumulative_trapezoid(y, dx=a["dx"], dim=a["axis"]),
    "cov": lambda torch, a: lambda x: torch.cov(x),
    "corrcoef": lambda torch, a: lambda x: torch.corrcoef(x),
    **{name: _created(name) for name in ("zeros", "ones")},
    "full_like": lambda torch, a: lambda x: torch.full_like(x, a["value"]),
    "arange": _arange,
    "tril_indices": _triangle("tril_indices"),
    "triu_indices": _triangle("triu_indices"),
    "array_split": lambda torch, a: lambda x: torch.tensor_split(x, a["parts"], a["axis"]),
    "chunk": lambda torch, a: lambda x: torch.chunk(x, a["chunks"], a["axis"]),
    "flatten": lambda torch, a: lambda x: x.flatten(),
    "diag": lambda torch, a: lambda x: torch.diag(x, a["offset"]),
    "diag_embed": lambda torch, a: lambda x: torch.diag_embed(x, a["offset"]),
    "rot90": lambda torch, a: lambda x: torch.rot90(x, a["k"]),
    "vander": lambda torch, a: lambda x: torch.vander(x, a["n"]),
    "unravel_index": lambda torch, a: lambda x: torch.unravel_index(x, a["shape"]),
    "expand": lambda torch, a: lambda x: x.expand(a["shape"]),
    "permute": lambda torch, a: lambda x: x.permute(a["axes"]),
    "moveaxis": lambda torch, a: lambda x: x.moveaxis(a["source"], a["destination"]),
    "swapaxes": lambda torch, a: lambda x: x.swapaxes(a["first"], a["second"]),
    "unsqueeze": lambda torch, a: lambda x: x.unsqueeze(a["axis"]),
    "unstack": lambda torch, a: lambda x: x.unbind(a["axis"]),
    "narrow": lambda torch, a: lambda x: x.narrow(a["axis"], a["start"], a["length"]),
    "getitem": lambda torch, a: lambda x: x[a["index"]],
    "dynamic_slice": _sliced,
    "dynamic_update_slice": _slice_put,
    "trace": lambda torch, a: lambda x: x.trace(),
    "masked_fill": lambda torch, a: lambda x, mask: x.masked_fill(mask, a["value"]),
    "masked_scatter": lambda torch, a: lambda x, mask, source: x.masked_scatter(mask, source),
    "masked_select": _masked_select,
    "nonzero": lambda torch, a: _nonzero(torch, a, in_rows=False),
    "argwhere": lambda torch, a: _nonzero(torch, a, in_rows=True),
    "searchsorted": lambda torch, a: lambda row, values: torch.searchsorted(row, values, side=a["side"]),
    "isin": lambda torch, a: lambda x, values: torch.isin(x, values, invert=a["invert"]),
    "bincount": _counted,
    "put_along_axis": lambda torch, a: lambda x, indices, values: x.scatter(a["axis"], indices, values),
    "scatter_max": _index_reduce("amax"),
    "scatter_min": _index_reduce("amin"),
    "scatter_mul": _index_reduce("prod"),
    "segment_sum": _segments("add", 0.0),
    "segment_mean": _segments("mean", 0.0),
    "segment_prod": _segments("prod", 1.0),
    "segment_max": _segments("amax", -math.inf),
    "segment_min": _segments("amin", math.inf),
    "combinations": lambda torch, a: lambda x: torch.combinations(x, a["r"]),
    "cdist": lambda torch, a: lambda x, y: torch.cdist(x, y, a["p"]),
    "pdist": lambda torch, a: lambda x: torch.pdist(x, a["p"]),
    "cross": lambda torch, a: lambda x, y: torch.linalg.cross(x, y, dim=a["axis"]),
    "meshgrid": _meshgrid,
    "tensordot": lambda torch, a: lambda x, y: torch.tensordot(x, y, a["axes"]),
    "vecdot": lambda torch, a: lambda x, y: torch.linalg.vecdot(x, y, dim=a["axis"]),
    "normalize": lambda torch, a: lambda x: torch.nn.functional.normalize(x, a["order"], a["axis"]),
    "adaptive_avg_pool": _functional("adaptive_avg_pool2d", "size"),
    "adaptive_max_pool": _functional("adaptive_max_pool2d", "size"),
    "batch_norm": _functional("batch_norm"),
    "group_norm": lambda torch, a: lambda x, *more: torch.nn.functional.group_norm(x, a["groups"], *more),
    "instance_norm": lambda torch, a: lambda x, *more: torch.nn.functional.instance_norm(x, None, None, *more),
    "embedding_bag": _bag,
    "interpolate": _interpolate,
    "pad_with": _pad_with,
    "pixel_shuffle": _functional("pixel_shuffle", "factor"),
    "pixel_unshuffle": _functional("pixel_unshuffle", "factor"),
    "sum_windows": _functional("fold", "size", "window"),
    "unfold": _unfold,
    "affine_grid": _affine_grid,
    "grid_sample": _grid_sample,
    "channel_shuffle": _functional("channel_shuffle", "groups"),
    "local_response_norm": _functional("local_response_norm", "size", "alpha", "beta", "k"),
    "lp_pool": _functional("lp_pool2d", "order", "window"),
    "layernorm": _norm_over("layer_norm", 1e-5),
    "rmsnorm": _norm_over("rms_norm", 1e-5),
    "flash_attention": _attend,
}
VIEWS = frozenset(
    {"array_split", "chunk", "atleast_1d", "atleast_2d", "atleast_3d", "flatten", "expand", "permute", "moveaxis"}
    | {"swapaxes", "unsqueeze", "unstack", "narrow", "getitem", "dynamic_slice", "broadcast_arrays", "meshgrid"}
)
"""Functions that give a view of their operand: it is copied, as everybody else's result is new."""
