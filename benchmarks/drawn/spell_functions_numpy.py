"""How NumPy and JAX say functions that are written with ops: one table for both, since JAX has NumPy's names."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import numpy_dtype
from tessera.types.dtype import BY_NAME

Function: TypeAlias = "Callable[..., Any]"
Spelling: TypeAlias = "Callable[[Any, Mapping[str, Any]], Function]"

_NAMED = (
    *("square", "deg2rad", "rad2deg", "isfinite", "isneginf", "isposinf", "signbit", "logaddexp", "logaddexp2"),
    *("fmod", "heaviside", "isclose", "nextafter", "lcm", "ldexp", "sinc", "zeros_like", "ones_like", "atleast_1d"),
    *("atleast_2d", "atleast_3d", "kron", "outer", "broadcast_arrays", "meshgrid", "allclose", "fmax", "fmin"),
)
_REDUCTIONS = ("count_nonzero", "ptp", "nanmax", "nanmin", "nansum", "nanprod", "nanmean", "median", "nanmedian")


def _named(name: str) -> Spelling:
    return lambda xp, a: getattr(xp, name)


def _reduction(name: str, *more: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        given = {one: a[one] for one in more}
        return lambda x: getattr(xp, name)(x, axis=a["axis"], keepdims=a["keepdims"], **given)

    return spell


def _deviation(name: str) -> Spelling:
    return lambda xp, a: lambda x: getattr(xp, name)(x, axis=a["axis"], ddof=a["correction"], keepdims=a["keepdims"])


def _listed(name: str) -> Spelling:
    return lambda xp, a: lambda *xs: getattr(xp, name)(xs)


def _scan(name: str) -> Spelling:
    return lambda xp, a: lambda x: getattr(xp, name)(x, axis=a["axis"])


def _filled_argument(name: str, value: float) -> Spelling:
    """0 where all are NaN, for which NumPy raises."""

    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        return lambda x: getattr(xp, name)(
            xp.where(xp.isnan(x), x.dtype.type(value), x), axis=a["axis"], keepdims=a["keepdims"]
        )

    return spell


def _created(name: str) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        if name == "zeros" and xp.__name__ == "numpy":
            raise NotImplementedError("NumPy's zeros are pages that the system fills when somebody reads them")
        return lambda: getattr(xp, name)(a["shape"], dtype=numpy_dtype(BY_NAME[a["dtype"]]))

    return spell


def _mode(xp: Any, a: Mapping[str, Any]) -> Function:
    """The smallest of the most frequent elements, and how often it is there."""

    def of_row(row: Any) -> tuple[Any, int]:
        values, counts = np.unique(row, return_counts=True)
        return values[counts.argmax()], int(counts.max())

    def run(x: Any) -> Any:
        moved = np.moveaxis(x, a["axis"], -1)
        found = [of_row(row) for row in moved.reshape(-1, moved.shape[-1])]
        values = np.array([value for value, _ in found], x.dtype).reshape(moved.shape[:-1])
        return values, np.array([count for _, count in found], np.int64).reshape(moved.shape[:-1])

    return run


def _unique(xp: Any, a: Mapping[str, Any], *, has_all: bool) -> Function:
    """Of a known size: what is beyond the distinct ones repeats the largest, 0 times."""

    def run(x: Any) -> Any:
        values, first, inverse, counts = xp.unique(x, return_index=True, return_inverse=True, return_counts=True)
        missing = max(0, a["size"] - values.shape[0])
        values = xp.pad(values, (0, missing), mode="edge")[: a["size"]]
        if not has_all:
            return values
        first = xp.pad(first, (0, missing), mode="edge")[: a["size"]]
        return values, first, inverse.reshape(x.shape), xp.pad(counts, (0, missing))[: a["size"]]

    return run


def _nonzero(xp: Any, a: Mapping[str, Any], *, in_rows: bool) -> Function:
    def run(x: Any) -> Any:
        if xp.__name__ != "numpy":
            return (xp.argwhere if in_rows else xp.nonzero)(x, size=a["size"])
        found = [np.pad(one[: a["size"]], (0, max(0, a["size"] - len(one)))) for one in xp.nonzero(x)]
        return np.stack(found, 1) if in_rows else tuple(found)

    return run


def _sliced(xp: Any, a: Mapping[str, Any]) -> Function:
    cut = tuple(slice(start, start + size) for start, size in zip(a["starts"], a["sizes"], strict=True))
    return lambda x: x[cut]


def _split(name: str) -> Spelling:
    return lambda xp, a: lambda x: tuple(xp.array_split(x, a[name], a["axis"]))


def _segments(name: str, start: float) -> Spelling:
    def spell(xp: Any, a: Mapping[str, Any]) -> Function:
        def run(data: Any, ids: Any) -> Any:
            made = xp.full((a["num_segments"], *data.shape[1:]), start, data.dtype)
            if xp.__name__ != "numpy":
                return getattr(made.at[ids], {"add": "add", "multiply": "mul"}.get(name, name[:3]))(data)
            getattr(np, name).at(made, ids, data)
            return made

        return run

    return spell


def _narrow(xp: Any, a: Mapping[str, Any]) -> Function:
    cut = (*[slice(None)] * a["axis"], slice(a["start"], a["start"] + a["length"]))
    return lambda x: x[cut]


def _trapezoid(xp: Any, a: Mapping[str, Any]) -> Function:
    return lambda y: xp.trapezoid(y, dx=a["dx"], axis=a["axis"])


def _searchsorted(xp: Any, a: Mapping[str, Any]) -> Function:
    return lambda row, values: xp.searchsorted(row, values, side=a["side"])


def _isin(xp: Any, a: Mapping[str, Any]) -> Function:
    return lambda x, values: xp.isin(x, values, invert=a["invert"])


def _pad_with(xp: Any, a: Mapping[str, Any]) -> Function:
    return lambda x: xp.pad(x, a["widths"], mode=a["mode"])


def _histogram(xp: Any, a: Mapping[str, Any]) -> Function:
    return lambda x: xp.histogram(x, a["bins"], a["range"])


def _placed(xp: Any, a: Mapping[str, Any]) -> Function:
    """Each of equal indices of a row has one update, so that the order does not matter."""

    def run(x: Any, indices: Any, values: Any) -> Any:
        if xp.__name__ != "numpy":
            return xp.put_along_axis(x, indices, values, a["axis"], inplace=False)
        made = x.copy()
        np.put_along_axis(made, indices, values, a["axis"])
        return made

    return run


SPELLINGS: dict[str, Spelling] = {
    **{name: _named(name) for name in _NAMED},
    **{name: _reduction(name) for name in _REDUCTIONS},
    **{name: _reduction(name, "q") for name in ("quantile", "percentile", "nanquantile", "nanpercentile")},
    **{name: _deviation(name) for name in ("nanvar", "nanstd")},
    **{name: _listed(name) for name in ("hstack", "vstack", "dstack", "column_stack", "concatenate")},
    **{name: _scan(name) for name in ("nancumsum", "nancumprod")},
    "nanargmax": _filled_argument("argmax", -np.inf),
    "nanargmin": _filled_argument("argmin", np.inf),
    "cummin": lambda xp, a: lambda x: xp.minimum.accumulate(x, axis=a["axis"]),
    "logcumsumexp": lambda xp, a: lambda x: xp.logaddexp.accumulate(x, axis=a["axis"]),
    "nan_to_num": lambda xp, a: lambda x: xp.nan_to_num(x, nan=a["nan"], posinf=a["posinf"], neginf=a["neginf"]),
    "hard_tanh": lambda xp, a: lambda x: xp.clip(x, x.dtype.type(a["low"]), x.dtype.type(a["high"])),
    "relu6": lambda xp, a: lambda x: xp.clip(x, x.dtype.type(0), x.dtype.type(6)),
    "bitwise_count": lambda xp, a: xp.bitwise_count,
    "astype": lambda xp, a: lambda x: x.astype(numpy_dtype(BY_NAME[a["dtype"]])),
    "diff": lambda xp, a: lambda x: xp.diff(x, a["n"], axis=a["axis"]),
    "trapezoid": _trapezoid,
    "cov": lambda xp, a: lambda x: xp.cov(x),
    "corrcoef": lambda xp, a: lambda x: xp.corrcoef(x),
    "mode": _mode,
    **{name: _created(name) for name in ("zeros", "ones")},
    "full_like": lambda xp, a: lambda x: xp.full_like(x, a["value"]),
    "arange": lambda xp, a: lambda: xp.arange(a["start"], a["stop"], a["step"], numpy_dtype(BY_NAME[a["dtype"]])),
    "tril_indices": lambda xp, a: lambda: xp.stack(xp.tril_indices(a["rows"], a["offset"], a["columns"])),
    "triu_indices": lambda xp, a: lambda: xp.stack(xp.triu_indices(a["rows"], a["offset"], a["columns"])),
    "array_split": _split("parts"),
    "flatten": lambda xp, a: lambda x: x.reshape(-1),
    "diag": lambda xp, a: lambda x: xp.diag(x, a["offset"]),
    "rot90": lambda xp, a: lambda x: xp.rot90(x, a["k"]),
    "vander": lambda xp, a: lambda x: xp.vander(x, a["n"]),
    "ravel_multi_index": lambda xp, a: lambda *indices: xp.ravel_multi_index(indices, a["shape"]),
    "unravel_index": lambda xp, a: lambda x: xp.unravel_index(x, a["shape"]),
    "expand": lambda xp, a: lambda x: xp.broadcast_to(x, a["shape"]),
    "permute": lambda xp, a: lambda x: xp.transpose(x, a["axes"]),
    "moveaxis": lambda xp, a: lambda x: xp.moveaxis(x, a["source"], a["destination"]),
    "swapaxes": lambda xp, a: lambda x: xp.swapaxes(x, a["first"], a["second"]),
    "unsqueeze": lambda xp, a: lambda x: xp.expand_dims(x, a["axis"]),
    "unstack": lambda xp, a: lambda x: tuple(xp.moveaxis(x, a["axis"], 0)),
    "narrow": _narrow,
    "getitem": lambda xp, a: lambda x: x[a["index"]],
    "dynamic_slice": _sliced,
    "trace": lambda xp, a: lambda x: xp.trace(x, a["offset"], dtype=x.dtype),
    "masked_fill": lambda xp, a: lambda x, mask: xp.where(mask, x.dtype.type(a["value"]), x),
    "nonzero": lambda xp, a: _nonzero(xp, a, in_rows=False),
    "argwhere": lambda xp, a: _nonzero(xp, a, in_rows=True),
    "unique": lambda xp, a: _unique(xp, a, has_all=False),
    "unique_all": lambda xp, a: _unique(xp, a, has_all=True),
    "searchsorted": _searchsorted,
    "isin": _isin,
    "bincount": lambda xp, a: lambda x: xp.bincount(x, minlength=a["length"]),
    "histogram": _histogram,
    "put_along_axis": _placed,
    "segment_sum": _segments("add", 0),
    "segment_prod": _segments("multiply", 1),
    "segment_max": _segments("maximum", -np.inf),
    "segment_min": _segments("minimum", np.inf),
    "cross": lambda xp, a: lambda x, y: xp.cross(x, y, axis=a["axis"]),
    "tensordot": lambda xp, a: lambda x, y: xp.tensordot(x, y, a["axes"]),
    "vecdot": lambda xp, a: lambda x, y: xp.vecdot(x, y),
    "pad_with": _pad_with,
}
