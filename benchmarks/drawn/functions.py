"""Every function of `tessera.ops` that is written with ops: how a call of it is drawn, or why none is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.drawn.drawing import (
    Draw,
    Drawing,
    along,
    between,
    gaps_near_one,
    halved,
    images,
    in_order,
    indices,
    pointwise,
    reducing,
    repeated,
    with_gaps,
    with_specials,
)
from benchmarks.drawn.program import Builder, Program
from benchmarks.drawn.sizes import Limits, Rng, draw_choice
from tessera.types.dtype import BY_NAME
from tests.numerics.forms import numbers, positive

FLOATS = {"f32": 8, "bf16": 4, "f16": 2, "f64": 1}
NUMBERS = {**FLOATS, "i64": 1, "i32": 2}
ANY = {**NUMBERS, "i8": 1, "bool": 1}
INTEGERS = {"i32": 2, "i64": 2}
WIDE = {"f32": 4, "f64": 1}
"""Dtypes, and how often each is drawn."""


@dataclass(frozen=True)
class Function:
    """How a call is drawn, in which dtypes, and whether its operands are one list."""

    draw: Draw
    dtypes: Mapping[str, float]
    takes_list: bool = False


def _joined(drawing: Drawing) -> Mapping[str, Any]:
    shape = drawing.shape(drawing.rank(2), 4.0)
    for _ in range(drawing.choose(2, 3)):
        drawing.operand(shape)
    return {}


def _vectors(count: int) -> Draw:
    """Rows of which every element meets every other row's."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        names = "ABC"[:count]
        sizes = drawing.sizes(lambda one: count * math.prod(one.values()), **dict.fromkeys(names, 1))
        for size in sizes.values():
            drawing.operand((size,))
        return {}

    return draw


def _square(drawing: Drawing) -> Mapping[str, Any]:
    """One row that becomes a matrix."""
    size = drawing.sizes(lambda one: float(one["N"] ** 2), N=1)["N"]
    drawing.operand((size,))
    return {"offset": drawing.choose(0, 1)}


def _matrix(**arguments: Any) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        drawing.operand(drawing.shape(2))
        return arguments

    return draw


def _created(*names: str) -> Draw:
    """A result of a drawn shape, of no operand."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        return {names[0]: drawing.shape(drawing.rank(), 1.0), "dtype": drawing.dtype}

    return draw


def _arange(drawing: Drawing) -> Mapping[str, Any]:
    stop = drawing.shape(1, 1.0)[0]
    step = drawing.choose(1, 3)
    return {"start": 0, "stop": step * stop, "step": step, "dtype": drawing.dtype}


def _triangle(drawing: Drawing) -> Mapping[str, Any]:
    rows, columns = drawing.shape(2, 1.0)
    return {"rows": rows, "columns": columns, "offset": 0}


def _filled(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand(drawing.shape(drawing.rank()))
    return {"value": 3}


def _expanded(drawing: Drawing) -> Mapping[str, Any]:
    rank = drawing.rank(2)
    shape = drawing.shape(rank, 1.0)
    drawing.operand(tuple(1 if at == rank - 2 else size for at, size in enumerate(shape)))
    return {"shape": shape}


def _permuted(drawing: Drawing) -> Mapping[str, Any]:
    rank = drawing.rank(2)
    drawing.operand(drawing.shape(rank))
    return {"axes": tuple(range(rank))[::-1]}


def _moved(first: str, second: str) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        rank = drawing.rank(2)
        drawing.operand(drawing.shape(rank))
        return {first: 0, second: rank - 1}

    return draw


def _converted(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand(drawing.shape(drawing.rank()), positive)
    return {"dtype": BY_NAME[drawing.choose("f32", "bf16", "i32")]}


def _parts(name: str) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        rank = drawing.rank()
        drawing.operand(drawing.shape(rank))
        return {name: drawing.choose(2, 3, 4), "axis": drawing.axis(rank)}

    return draw


def _unstacked(drawing: Drawing) -> Mapping[str, Any]:
    count, rows, columns = (drawing.choose(2, 3, 5), *drawing.shape(2))
    drawing.operand((count, max(1, rows // count), columns))
    return {"axis": 0}


def _narrowed(drawing: Drawing) -> Mapping[str, Any]:
    rank = drawing.rank()
    shape, axis = drawing.shape(rank), drawing.axis(rank)
    drawing.operand(shape)
    start = shape[axis] // 4
    return {"axis": axis, "start": start, "length": max(1, shape[axis] // 2)}


def _sliced(drawing: Drawing) -> Mapping[str, Any]:
    shape = drawing.shape(drawing.rank())
    drawing.operand(shape)
    return {"starts": tuple(size // 4 for size in shape), "sizes": tuple(max(1, size // 2) for size in shape)}


def _slice_put(drawing: Drawing) -> Mapping[str, Any]:
    shape = drawing.shape(drawing.rank(), 2.5)
    drawing.operand(shape)
    drawing.operand([max(1, size // 2) for size in shape])
    return {"starts": tuple(size // 4 for size in shape)}


def _indexed(drawing: Drawing) -> Mapping[str, Any]:
    shape = drawing.shape(drawing.rank(2))
    drawing.operand(shape)
    return {"index": drawing.choose((Ellipsis, slice(None, None, 2)), (slice(1, None),), 0)}


def _masked(*values: Any, is_row: bool = False, **arguments: Any) -> Draw:
    """An operand, a mask of its shape, and more of that."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        shape = drawing.shape(1 if is_row else drawing.rank(), 3.0)
        drawing.operand(shape)
        drawing.operand(shape, numbers, "bool")
        for own in values:
            drawing.operand(shape, own)
        return {**arguments, **({"size": max(1, math.prod(shape) // 4)} if "size" in arguments else {})}

    return draw


def _found(drawing: Drawing) -> Mapping[str, Any]:
    """Where elements are not zero, as many as a quarter of them."""
    shape = drawing.shape(drawing.choose(1, 2), 2.0)
    drawing.operand(shape)
    return {"size": max(1, math.prod(shape) // 4)}


def _distinct(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand(drawing.shape(drawing.choose(1, 2)), repeated)
    return {"size": 30}


def _placed(side: int = 0) -> Draw:
    """A row in order, and values that are looked for in it."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        sizes = drawing.sizes(lambda one: one["N"] + 3.0 * one["M"], N=1, M=1)
        drawing.operand((min(sizes["N"], 1 << 19),), in_order)
        drawing.operand((sizes["M"],))
        return {"side": drawing.choose("left", "right")}

    return draw


def _isin(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: 2.0 * one["N"] + one["M"] ** 2, N=1, M=1)
    drawing.operand((sizes["N"],), repeated)
    drawing.operand((sizes["M"],), repeated)
    return {"invert": drawing.choose(False, True)}


def _counted(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: one["N"] + 1.0 * one["M"] ** 2, N=1, M=1)
    drawing.operand((sizes["N"],), indices(sizes["M"]))
    return {"length": sizes["M"]}


def _histogram(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand(drawing.shape(1, 1.0))
    # Ends of parts that every float has exactly.
    return {"bins": drawing.choose(16, 64, 256), "range": (-16.0, 16.0)}


def _put(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: 2.0 * math.prod(one.values()), A=1, B=1)
    drawing.operand((sizes["A"], sizes["B"]))
    drawing.operand((sizes["A"], 1), indices(sizes["B"]), "i64")
    drawing.operand((sizes["A"], 1))
    return {"axis": 1}


def _scattered(values: Any = numbers) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        sizes = drawing.sizes(lambda one: (2.0 * one["A"] + one["R"]) * one["B"], A=1, R=1, B=1)
        drawing.operand((sizes["A"], sizes["B"]), values)
        drawing.operand((sizes["R"],), indices(sizes["A"]), "i64")
        drawing.operand((sizes["R"], sizes["B"]), values)
        return {"axis": 0}

    return draw


def _segments(values: Any = numbers) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        sizes = drawing.sizes(lambda one: (one["R"] + one["S"]) * one["B"] * 1.0, R=1, S=1, B=1)
        drawing.operand((sizes["R"], sizes["B"]), values)
        drawing.operand((sizes["R"],), indices(sizes["S"]), "i64")
        return {"num_segments": sizes["S"]}

    return draw


def _pair(first: str, second: str, elements: str, **arguments: Any) -> Draw:
    """Two operands whose dims are letters; `elements` lists the shapes whose sizes count."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        letters = sorted({*first, *second})
        shapes = elements.split(",")
        sizes = drawing.sizes(
            lambda one: sum(math.prod(one[name] for name in shape) for shape in shapes), **dict.fromkeys(letters, 1)
        )
        drawing.operand([sizes[name] for name in first])
        drawing.operand([sizes[name] for name in second])
        return {name: drawing.choose(*one) if isinstance(one, list) else one for name, one in arguments.items()}

    return draw


def _cross(drawing: Drawing) -> Mapping[str, Any]:
    rows = drawing.shape(1, 9.0)[0]
    drawing.operand((rows, 3))
    drawing.operand((rows, 3))
    return {"axis": -1}


def _pdist(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: one["N"] * (one["N"] + one["D"]) * 1.0, N=2, D=1)
    drawing.operand((sizes["N"], min(sizes["D"], 512)))
    return {"p": drawing.choose(2.0, 1.0, 3.0)}


def _combined(drawing: Drawing) -> Mapping[str, Any]:
    size = drawing.sizes(lambda one: float(one["N"] ** 2), N=2)["N"]
    drawing.operand((size,))
    return {"r": 2}


def _vander(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand((drawing.shape(1, 6.0)[0],), between(-1, 1))
    return {"n": drawing.choose(4, 6)}


def _flat_index(drawing: Drawing) -> Mapping[str, Any]:
    count = drawing.shape(1, 3.0)[0]
    drawing.operand((count,), indices(35))
    return {"shape": (5, 7)}


def _multi_index(drawing: Drawing) -> Mapping[str, Any]:
    count = drawing.shape(1, 3.0)[0]
    drawing.operand((count,), indices(5))
    drawing.operand((count,), indices(7))
    return {"shape": (5, 7)}


def _normed(count: int, channels: int = 1, **arguments: Any) -> Draw:
    """Images, and so many rows of their channels."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        shape = images(2.0, channels=channels)(drawing)
        drawing.operand(shape)
        for number in range(count):
            drawing.operand(shape[1:2], positive if number == 1 else numbers)
        return arguments

    return draw


def _pictured(copies: float = 2.0, channels: int = 1, side: int = 1, **arguments: Any) -> Draw:
    def draw(drawing: Drawing) -> Mapping[str, Any]:
        drawing.operand(images(copies, channels=channels, side=side)(drawing))
        return {name: drawing.choose(*one) if isinstance(one, list) else one for name, one in arguments.items()}

    return draw


def _resized(drawing: Drawing) -> Mapping[str, Any]:
    shape = images(3.0, side=2)(drawing)
    drawing.operand(shape)
    factor = drawing.choose(2.0, 0.5, 1.5)
    size = tuple(max(1, int(one * factor)) for one in shape[2:])
    return {"size": size, "mode": drawing.choose("linear", "nearest", "cubic")}


def _folded(drawing: Drawing) -> Mapping[str, Any]:
    """Windows of images as `unfold` gives them, to be summed."""
    found = drawing.sizes(lambda one: 10.0 * math.prod(one.values()), N=1, C=1, H=3, W=3)
    drawing.operand((found["N"], found["C"] * 9, (found["H"] - 2) * (found["W"] - 2)))
    return {"size": (found["H"], found["W"]), "window": (3, 3)}


def _bagged(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: (one["V"] + one["B"] * 9.0) * one["D"], V=1, B=1, D=1)
    drawing.operand((sizes["V"], sizes["D"]))
    drawing.operand((sizes["B"], 8), indices(sizes["V"]), "i64")
    return {"mode": drawing.choose("mean", "sum", "max")}


def _padded(drawing: Drawing) -> Mapping[str, Any]:
    drawing.operand(images(2.0, side=4)(drawing))
    return {"widths": ((0, 0), (0, 0), (2, 1), (1, 3)), "mode": drawing.choose("reflect", "edge", "wrap")}


def _grid(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: one["H"] * one["W"] * one["N"] * (2.0 * one["C"] + 2), N=1, C=1, H=2, W=2)
    drawing.operand(tuple(sizes.values()))
    drawing.operand((sizes["N"], sizes["H"], sizes["W"], 2), between(-1, 1))
    return {"mode": drawing.choose("linear", "nearest")}


def _affine(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: 2.0 * math.prod(one.values()), N=1, H=2, W=2)
    drawing.operand((sizes["N"], 2, 3))
    return {"size": (sizes["H"], sizes["W"])}


def _bilinear(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: one["N"] * (one["A"] + one["B"]) + 8.0 * one["A"] * one["B"], N=1, A=1, B=1)
    drawing.operand((sizes["N"], sizes["A"]))
    drawing.operand((sizes["N"], sizes["B"]))
    drawing.operand((8, sizes["A"], sizes["B"]))
    return {}


def _over_rows(count: int) -> Draw:
    """Rows, and so many operands as long as one."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        shape = drawing.shape(drawing.rank(2))
        drawing.operand(shape)
        for _ in range(count):
            drawing.operand(shape[-1:])
        return {}

    return draw


def _attended(drawing: Drawing) -> Mapping[str, Any]:
    sizes = drawing.sizes(lambda one: 4.0 * 64 * one["B"] * one["S"], B=1, S=1)
    for _ in range(3):
        drawing.operand((sizes["B"], 2, min(sizes["S"], 4096), 64))
    return {"causal": drawing.choose(False, True)}


def _powers(drawing: Drawing) -> Mapping[str, Any]:
    shape = drawing.shape(drawing.rank(), 3.0)
    drawing.operand(shape)
    drawing.operand(shape, indices(5), "i32")
    return {}


_SHARES = [0.5, 0.1, (0.25, 0.75)]
_PERCENTS = [50.0, 10.0, (25.0, 75.0)]
_UNIT, _POSITIVE = between(0.01, 0.99), between(0.3, 9.0)

POLYNOMIALS = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
)
"""Families of orthogonal polynomials, by the names that PyTorch has for them too."""

FUNCTIONS: dict[str, Function] = {
    # Activations.
    **{
        name: Function(pointwise(), FLOATS)
        for name in ("hard_sigmoid", "hard_swish", "log_sigmoid", "mish", "relu6", "selu", "tanhshrink", "square")
    },
    "celu": Function(pointwise(alpha=2.0), FLOATS),
    "elu": Function(pointwise(alpha=0.7), FLOATS),
    "hard_tanh": Function(pointwise(low=-1.0, high=1.0), FLOATS),
    "hardshrink": Function(pointwise(threshold=0.5), FLOATS),
    "leaky_relu": Function(pointwise(negative_slope=0.2), FLOATS),
    "softshrink": Function(pointwise(threshold=0.5), FLOATS),
    "threshold": Function(pointwise(threshold=0.5, value=-3.0), FLOATS),
    "prelu": Function(_over_rows(1), FLOATS),
    **dict.fromkeys(("glu", "geglu", "swiglu"), Function(halved, FLOATS)),
    # Pointwise functions, and series.
    **dict.fromkeys(("deg2rad", "rad2deg", "sinc"), Function(pointwise(), FLOATS)),
    **dict.fromkeys(("isfinite", "isneginf", "isposinf", "signbit"), Function(pointwise(with_specials), FLOATS)),
    **{name: Function(pointwise(_POSITIVE), FLOATS) for name in ("lgamma", "digamma")},
    **dict.fromkeys(("logaddexp", "logaddexp2"), Function(pointwise(numbers, numbers), FLOATS)),
    **dict.fromkeys(("fmod", "heaviside"), Function(pointwise(numbers, _POSITIVE), FLOATS)),
    **dict.fromkeys(("isclose", "nextafter"), Function(pointwise(numbers, numbers), WIDE)),
    "allclose": Function(pointwise(numbers, numbers), WIDE),
    **dict.fromkeys(("ndtr", "erfcx"), Function(pointwise(between(-3, 6)), FLOATS)),
    "log_ndtr": Function(pointwise(between(-40, 4)), FLOATS),
    **dict.fromkeys(("logit", "ndtri", "erfinv"), Function(pointwise(_UNIT), FLOATS)),
    "entr": Function(pointwise(between(0.0, 3.0)), FLOATS),
    **dict.fromkeys(("i0", "i1"), Function(pointwise(between(-4, 4)), FLOATS)),
    **dict.fromkeys(("i0e", "i1e"), Function(pointwise(between(-60, 60)), FLOATS)),
    **dict.fromkeys(("xlogy", "xlog1py"), Function(pointwise(numbers, _POSITIVE), FLOATS)),
    "zeta": Function(pointwise(between(1.2, 9.0), _POSITIVE), WIDE),
    "polygamma": Function(pointwise(_POSITIVE, n=[1, 3]), WIDE),
    "multigammaln": Function(pointwise(between(1.5, 9.0), d=3), WIDE),
    **dict.fromkeys(POLYNOMIALS, Function(pointwise(_UNIT, n=[2, 5]), WIDE)),
    **dict.fromkeys(("fmax", "fmin"), Function(pointwise(with_gaps, with_gaps), WIDE)),
    "bitwise_count": Function(pointwise(), INTEGERS),
    "lcm": Function(pointwise(numbers, numbers), INTEGERS),
    "ldexp": Function(_powers, FLOATS),
    "lerp": Function(pointwise(numbers, numbers, weight=0.3), FLOATS),
    "nan_to_num": Function(pointwise(with_specials, nan=5.0, posinf=9.0, neginf=-9.0), FLOATS),
    "astype": Function(_converted, NUMBERS),
    # Statistics.
    "count_nonzero": Function(reducing(), ANY),
    "ptp": Function(reducing(), NUMBERS),
    **{name: Function(reducing(with_gaps), FLOATS) for name in ("nansum", "nanmean", "nanmax", "nanmin")},
    **{name: Function(reducing(with_gaps), WIDE) for name in ("nanargmax", "nanargmin", "nanmedian")},
    **{name: Function(reducing(with_gaps, correction=0), FLOATS) for name in ("nanvar", "nanstd")},
    "nanprod": Function(reducing(gaps_near_one), FLOATS),
    "median": Function(reducing(), FLOATS),
    "quantile": Function(reducing(q=_SHARES), FLOATS),
    "percentile": Function(reducing(q=_PERCENTS), FLOATS),
    "nanquantile": Function(reducing(with_gaps, q=_SHARES), FLOATS),
    "nanpercentile": Function(reducing(with_gaps, q=_PERCENTS), FLOATS),
    "nancumsum": Function(along(with_gaps), FLOATS),
    "nancumprod": Function(along(gaps_near_one), FLOATS),
    "cummin": Function(along(), NUMBERS),
    "logcumsumexp": Function(along(), FLOATS),
    "diff": Function(along(n=[1, 2]), NUMBERS),
    "trapezoid": Function(along(dx=0.5), FLOATS),
    "cumulative_trapezoid": Function(along(dx=0.5), FLOATS),
    "cov": Function(_matrix(rowvar=True, correction=1), WIDE),
    "corrcoef": Function(_matrix(rowvar=True), WIDE),
    "mode": Function(along(repeated), {"f32": 2, "i32": 1}),
    # Creation and movement.
    **dict.fromkeys(("zeros", "ones"), Function(_created("shape"), ANY)),
    **dict.fromkeys(("zeros_like", "ones_like"), Function(pointwise(), ANY)),
    "full_like": Function(_filled, NUMBERS),
    "arange": Function(_arange, INTEGERS),
    **dict.fromkeys(("tril_indices", "triu_indices"), Function(_triangle, {"i64": 1})),
    "array_split": Function(_parts("parts"), NUMBERS),
    "chunk": Function(_parts("chunks"), NUMBERS),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d", "flatten"), Function(pointwise(), NUMBERS)),
    "diag": Function(_square, NUMBERS),
    "diag_embed": Function(_square, NUMBERS),
    **{
        name: Function(_joined, NUMBERS, takes_list=True)
        for name in ("concatenate", "hstack", "vstack", "dstack", "column_stack")
    },
    "rot90": Function(_matrix(k=1), NUMBERS),
    "vander": Function(_vander, WIDE),
    "ravel_multi_index": Function(_multi_index, {"i64": 1}, takes_list=True),
    "unravel_index": Function(_flat_index, {"i64": 1}),
    "expand": Function(_expanded, NUMBERS),
    "permute": Function(_permuted, NUMBERS),
    "moveaxis": Function(_moved("source", "destination"), NUMBERS),
    "swapaxes": Function(_moved("first", "second"), NUMBERS),
    "unsqueeze": Function(along(), NUMBERS),
    "unstack": Function(_unstacked, NUMBERS),
    "narrow": Function(_narrowed, NUMBERS),
    "getitem": Function(_indexed, NUMBERS),
    "dynamic_slice": Function(_sliced, NUMBERS),
    "dynamic_update_slice": Function(_slice_put, NUMBERS),
    "trace": Function(_matrix(offset=0), NUMBERS),
    # Lookup and selection.
    "masked_fill": Function(_masked(value=-1), NUMBERS),
    "masked_scatter": Function(_masked(numbers, is_row=True), NUMBERS),
    "masked_select": Function(_masked(size=0), NUMBERS),
    "nonzero": Function(_found, {"bool": 2, "f32": 1, "i32": 1}),
    "argwhere": Function(_found, {"bool": 2, "f32": 1, "i32": 1}),
    **dict.fromkeys(("unique", "unique_all"), Function(_distinct, {"f32": 1, "i64": 1})),
    "searchsorted": Function(_placed(), {"f32": 2, "i64": 1}),
    "isin": Function(_isin, {"f32": 1, "i64": 1}),
    "bincount": Function(_counted, {"i64": 1}),
    "histogram": Function(_histogram, WIDE),
    "put_along_axis": Function(_put, NUMBERS),
    **dict.fromkeys(("scatter_max", "scatter_min"), Function(_scattered(), NUMBERS)),
    "scatter_mul": Function(_scattered(between(0.9, 1.1)), WIDE),
    **dict.fromkeys(("segment_sum", "segment_max", "segment_min", "segment_mean"), Function(_segments(), WIDE)),
    "segment_prod": Function(_segments(between(0.9, 1.1)), WIDE),
    "combinations": Function(_combined, NUMBERS),
    "cartesian_prod": Function(_vectors(2), NUMBERS),
    # Algebra.
    "block_diag": Function(_pair("AB", "CD", "AB,CD,AD,CB"), NUMBERS),
    "broadcast_arrays": Function(_pair("AB", "B", "AB,AB,AB"), NUMBERS),
    "cdist": Function(_pair("AD", "BD", "AD,BD,AB", p=[2.0, 1.0, 3.0]), WIDE),
    "cross": Function(_cross, FLOATS),
    "kron": Function(_pair("AB", "CD", "ABCD"), FLOATS),
    "meshgrid": Function(_vectors(2), NUMBERS),
    "outer": Function(_pair("A", "B", "AB"), FLOATS),
    "tensordot": Function(_pair("ABC", "BCD", "ABC,BCD,AD", axes=2), {"f32": 3, "bf16": 1}),
    "vecdot": Function(_pair("AB", "AB", "AB,AB", axis=-1), FLOATS),
    "pdist": Function(_pdist, WIDE),
    "normalize": Function(along(order=[2.0, 1.0]), FLOATS),
    "bilinear": Function(_bilinear, {"f32": 1}),
    # Images and norms.
    "adaptive_avg_pool": Function(_pictured(size=[(4, 3), (7, 7), (1, 1)]), FLOATS),
    "adaptive_max_pool": Function(_pictured(size=[(4, 3), (7, 7)]), FLOATS),
    "batch_norm": Function(_normed(4), {"f32": 3, "bf16": 1}),
    "group_norm": Function(_normed(2, channels=4, groups=4), {"f32": 3, "bf16": 1}),
    "instance_norm": Function(_normed(2), {"f32": 3, "bf16": 1}),
    "embedding_bag": Function(_bagged, {"f32": 3, "bf16": 1}),
    "interpolate": Function(_resized, {"f32": 3, "bf16": 1}),
    "pad_with": Function(_padded, FLOATS),
    "pixel_shuffle": Function(_pictured(channels=4, factor=2), FLOATS),
    "pixel_unshuffle": Function(_pictured(side=2, factor=2), FLOATS),
    "sum_windows": Function(_folded, WIDE),
    "unfold": Function(_pictured(10.0, side=4, window=(3, 3), padding=1), FLOATS),
    "affine_grid": Function(_affine, {"f32": 1}),
    "grid_sample": Function(_grid, {"f32": 1}),
    "channel_shuffle": Function(_pictured(channels=4, groups=2), FLOATS),
    "local_response_norm": Function(_pictured(channels=4, size=3, alpha=0.5, beta=0.7, k=2.0), FLOATS),
    "lp_pool": Function(_pictured(side=4, order=2.0, window=(2, 2)), FLOATS),
    "layernorm": Function(_over_rows(2), FLOATS),
    "rmsnorm": Function(_over_rows(1), FLOATS),
    "flash_attention": Function(_attended, {"f32": 2, "bf16": 2}),
}

NOT_DRAWN = {
    "broadcast_shapes": "takes and gives shapes, and runs nothing",
    **dict.fromkeys(
        ("angle", "complex", "conj", "imag", "real"), "about complex numbers, and no program is drawn in their dtypes"
    ),
    **dict.fromkeys(
        (
            *("hann_window", "hamming_window", "blackman_window", "nuttall_window", "general_cosine_window"),
            *("bartlett_window", "gaussian_window", "kaiser_window"),
        ),
        "computed in f64 for any dtype; peers compute in that dtype, and have few digits where a window is near zero",
    ),
    "frexp": "takes bits of floats apart, as no peer does for all their dtypes",
    "scale_of": "means something only with `round_blocks`, of which no peer has the formats",
}
"""Functions of which no program is drawn, and why."""


def draw_function(rng: Rng, name: str, limits: Limits) -> Program:
    """A call of a function on drawn operands."""
    dtype = BY_NAME[draw_choice(rng, FUNCTIONS[name].dtypes)]
    builder = Builder()
    return place_function(name, Drawing(rng, builder, dtype, limits))


def place_function(name: str, drawing: Drawing) -> Program:
    """A call of a function as a drawing has it."""
    function, builder = FUNCTIONS[name], drawing.builder
    arguments = function.draw(drawing)
    builder.call(name, *drawing.inputs, takes_list=function.takes_list, **arguments)
    shown = [f"{key}={_short(value)}" for key, value in arguments.items() if key not in ("dtype", "shape")]
    shown += ["transposed"] * any(step.op == "transpose" for step in builder.steps[:-1])
    return builder.program("function", f"{name}({', '.join(shown)})", drawing.dtype.name)


def _short(value: Any) -> str:
    return str(value).replace(" ", "").replace("'", "")


def written_functions() -> list[str]:
    """The functions of `tessera.ops` that a program is drawn of."""
    return sorted(FUNCTIONS)
