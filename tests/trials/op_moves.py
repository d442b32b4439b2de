"""How random calls are drawn of ops that move elements, make tensors, and read or write by index."""

# Calls are lambdas here, and NumPy's results have no types to give.
# pyright: basic, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera import ops
from tests.trials.op_calls import FLOATS, INTEGERS, NUMPY, Array, Call, Draw, result_slack, wide
from tests.trials.op_families import Family
from tests.trials.op_models import FAMILIES

ANY = (*FLOATS, *INTEGERS, "bool")


def _moved(draw: Draw, low: int = 0, **more: Any) -> tuple[Array, str]:
    dtype = draw.dtype(*ANY)
    return draw.array(draw.shape(low, **more), dtype), dtype


def _move(
    low: int, make: Callable[[Draw, Array], tuple[Any, Any, str]], *, dynamic: bool = True, empty: bool = True
) -> Family:
    """A call that moves the elements of one tensor: `make` gives the function, what it gives, and its arguments."""

    def family(draw: Draw) -> Call:
        x, dtype = _moved(draw, low, empty=empty)
        function, exact, text = make(draw, x)
        made = list(exact) if isinstance(exact, (list, tuple)) else [exact]
        return Call(
            function, [x], [wide(np.asarray(one)) for one in made], [dtype] * len(made), text=text, dynamic=dynamic
        )

    return family


def _factors(draw: Draw, size: int) -> list[int]:
    found: list[int] = []
    while size > 1 and len(found) < 3:
        factor = draw.pick([n for n in range(1, size + 1) if size % n == 0])
        found.append(factor)
        size //= factor
    return [*found, size]


def _reshape(draw: Draw, x: Array) -> Any:
    shape = _factors(draw, x.size) if x.size else list(x.shape)[::-1]
    asked = list(shape)
    if x.size and asked and draw.chance(0.5):
        asked[draw.number(0, len(asked) - 1)] = -1
    return lambda a: ops.reshape(a, asked), x.reshape(shape), f"{asked} "


def _transpose(name: str) -> Any:
    def make(draw: Draw, x: Array) -> Any:
        if draw.chance(0.3):
            return lambda a: getattr(ops, name)(a), x.T, ""
        order = [int(axis) - (x.ndim if draw.chance(0.3) else 0) for axis in draw.rng.permutation(x.ndim)]
        return lambda a: getattr(ops, name)(a, order), x.transpose(order), f"{order} "

    return make


def _two_axes(name: str) -> Any:
    def make(draw: Draw, x: Array) -> Any:
        a, b = draw.axis(x.ndim), draw.axis(x.ndim)
        return lambda t: getattr(ops, name)(t, a, b), getattr(np, name)(x, a, b), f"{a} {b} "

    return make


def _broadcast(name: str) -> Family:
    def family(draw: Draw) -> Call:
        target = draw.shape()
        own = [1 if draw.chance(0.3) else size for size in target][
            draw.number(0, len(target)) if draw.chance(0.3) else 0 :
        ]
        dtype = draw.dtype(*ANY)
        x = draw.array(own, dtype)
        added = len(target) - len(own)
        asked = list(target)
        for at in range(added, len(target)):
            if target[at] == own[at - added] and draw.chance(0.3):
                asked[at] = -1
        return Call(
            lambda a: getattr(ops, name)(a, asked), [x], [wide(np.broadcast_to(x, target))], [dtype], text=f"{asked} ",
            dynamic=tuple(own) == target[added:],
        )  # fmt: skip

    return family


def _expand_dims(name: str) -> Any:
    def make(draw: Draw, x: Array) -> Any:
        axis = draw.number(-x.ndim - 1, x.ndim)
        return lambda a: getattr(ops, name)(a, axis), np.expand_dims(x, axis), f"{axis} "

    return make


def _squeeze(draw: Draw, x: Array) -> Any:
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and draw.chance(0.6):
        axis = draw.pick(ones) - (x.ndim if draw.chance(0.5) else 0)
        return lambda a: ops.squeeze(a, axis), np.squeeze(x, axis), f"{axis} "
    return lambda a: ops.squeeze(a), np.squeeze(x), ""


def _flip(draw: Draw, x: Array) -> Any:
    axes = draw.axes(x.ndim) if x.ndim else None
    return lambda a: ops.flip(a, axes), np.flip(x, axes), f"{axes} "


def _roll(draw: Draw, x: Array) -> Any:
    by, axis = draw.number(-9, 9), draw.axis(x.ndim) if draw.chance(0.6) else None
    return lambda a: ops.roll(a, by, axis), np.roll(x, by, axis), f"{by} {axis} "


def _tile(draw: Draw, x: Array) -> Any:
    reps = [draw.number(0, 3) for _ in range(draw.number(1, 3))]
    return lambda a: ops.tile(a, reps), np.tile(x, reps), f"{reps} "


def _repeat(draw: Draw, x: Array) -> Any:
    by, axis = draw.number(0, 3), draw.axis(x.ndim) if draw.chance(0.6) else None
    return lambda a: ops.repeat(a, by, axis), np.repeat(x, by, axis), f"{by} {axis} "


def _pad(draw: Draw, x: Array) -> Any:
    widths = [(draw.number(0, 2), draw.number(0, 3)) for _ in range(x.ndim)]
    return lambda a: ops.pad(a, widths), np.pad(x, widths or 0) if x.ndim else x, f"{widths} "


def _triangle(name: str) -> Any:
    def make(draw: Draw, x: Array) -> Any:
        by = draw.number(-3, 3)
        return lambda a: getattr(ops, name)(a, by), getattr(np, name)(x, by), f"{by} "

    return make


def _diagonal(draw: Draw, x: Array) -> Any:
    axes = [int(axis) for axis in draw.rng.permutation(x.ndim)[:2]]
    by = draw.number(-3, 3)
    return lambda a: ops.diagonal(a, *axes, offset=by), np.diagonal(x, by, *axes), f"{axes} {by} "


def _split(draw: Draw, x: Array) -> Any:
    axis = draw.axis(x.ndim)
    sizes: list[int] = []
    left = x.shape[axis]
    while left:
        sizes.append(draw.number(0, left))
        left -= sizes[-1]
    sizes = sizes or [0]
    return lambda a: ops.split(a, sizes, axis), np.split(x, np.cumsum(sizes)[:-1], axis), f"{sizes} {axis} "


def _unstack(draw: Draw, x: Array) -> Any:
    axis = draw.axis(x.ndim)
    return lambda a: ops.unstack(a, axis), [np.take(x, at, axis) for at in range(x.shape[axis])], f"{axis} "


FAMILIES.update(
    {
        "reshape": _move(0, _reshape, dynamic=False),
        "flatten": _move(0, lambda draw, x: (ops.flatten, x.reshape(-1), "")),
        **{name: _move(0, _transpose(name)) for name in ("transpose", "permute")},
        **{name: _move(1, _two_axes(name)) for name in ("swapaxes", "moveaxis")},
        **{name: _broadcast(name) for name in ("broadcast_to", "expand")},
        **{name: _move(0, _expand_dims(name)) for name in ("expand_dims", "unsqueeze")},
        "squeeze": _move(0, _squeeze, dynamic=False),
        "flip": _move(0, _flip),
        "roll": _move(1, _roll),
        "tile": _move(0, _tile),
        "repeat": _move(1, _repeat),
        "pad": _move(0, _pad),
        **{name: _move(2, _triangle(name)) for name in ("tril", "triu")},
        "diagonal": _move(2, _diagonal),
        "split": _move(1, _split, dynamic=False),
        "unstack": _move(1, _unstack, dynamic=False, empty=False),
    }
)


def _trace(draw: Draw) -> Call:
    dtype, by = draw.dtype("i32", "i64", "f64"), draw.number(-2, 2)
    x = draw.array(draw.shape(2, 3), dtype)
    result = "i64" if dtype == "i32" else dtype
    exact = np.trace(wide(x), by)
    return Call(lambda a: ops.trace(a, offset=by), [x], [exact], [result], [result_slack(result, exact, 1, 64 * 40)])


def _join(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype, count = draw.dtype(*ANY), draw.number(1, 4)
        shape = draw.shape(1 if name != "stack" else 0)
        axis = draw.axis(len(shape)) if name != "stack" else draw.number(-len(shape) - 1, len(shape))
        parts: list[Array] = []
        for _ in range(count):
            own = list(shape)
            if name != "stack":
                own[axis] = draw.number(0, 4)
            parts.append(draw.array(own, dtype))
        exact = np.stack(parts, axis) if name == "stack" else np.concatenate(parts, axis)
        return Call(lambda *xs: getattr(ops, name)(list(xs), axis), parts, [wide(exact)], [dtype], text=f"{axis} ")

    return family


def _create(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype, x = draw.dtype("f32", "i32", "i64", "bf16"), draw.array((2,), "f32")
        shape = draw.shape()
        exact: Any = np.zeros(shape)
        if name in ("zeros", "ones"):
            exact, make = np.full(shape, name == "ones"), lambda: getattr(ops, name)(shape, dtype)
        elif name == "full":
            exact, make = np.full(shape, 3), lambda: ops.full(shape, 3, dtype)
        elif name == "iota":
            shape = draw.shape(1)
            axis = draw.number(0, len(shape) - 1)
            exact = np.broadcast_to(
                np.arange(shape[axis]).reshape([-1 if at == axis else 1 for at in range(len(shape))]), shape
            )
            make = lambda: ops.iota(shape, axis, dtype)  # noqa: E731
        elif name == "arange":
            start, stop, step = draw.number(-9, 9), draw.number(-9, 19), draw.pick((1, 2, 5, -1, -3))
            exact, make = np.arange(start, stop, step), lambda: ops.arange(start, stop, step, dtype)
        elif name == "eye":
            rows, columns, by = draw.number(0, 5), draw.number(0, 5), draw.number(-2, 2)
            exact, make = np.eye(rows, columns, by), lambda: ops.eye(rows, columns, dtype, offset=by)
        else:
            dtype, count, end = draw.dtype("f32", "f64"), draw.number(0, 9), draw.chance(0.5)
            exact, make = (
                np.linspace(-1, 2.5, count, endpoint=end),
                lambda: ops.linspace(-1.0, 2.5, count, dtype, endpoint=end),
            )
        return Call(lambda a: make(), [x], [exact], [dtype], [result_slack(dtype, exact, 4, 4)])

    return family


def _like(name: str) -> Family:
    def family(draw: Draw) -> Call:
        x, dtype = _moved(draw)
        value = {"zeros_like": 0, "ones_like": 1}.get(name, 3 if dtype != "bool" else 1)
        more = (value,) if name == "full_like" else ()
        return Call(
            lambda a: getattr(ops, name)(a, *more),
            [x],
            [np.full(x.shape, value).astype(np.float64 if dtype in FLOATS else x.dtype)],
            [dtype],
        )

    return family


FAMILIES.update({"trace": _trace} | {name: _join(name) for name in ("concat", "concatenate", "stack")})
FAMILIES.update({name: _create(name) for name in ("zeros", "ones", "full", "iota", "arange", "eye", "linspace")})
FAMILIES.update({name: _like(name) for name in ("zeros_like", "ones_like", "full_like")})


def _bitcast(draw: Draw) -> Call:
    pair = draw.pick((("f32", "i32"), ("i64", "f64"), ("u16", "i16"), ("u8", "i8")))
    x = draw.array(draw.shape(), pair[0])
    return Call(
        lambda a: ops.bitcast(a, pair[1]),
        [x],
        [np.ascontiguousarray(x).view(NUMPY[pair[1]]).reshape(x.shape)],
        [pair[1]],
    )


def _cast_like(draw: Draw) -> Call:
    x, y = draw.array(draw.shape(), "i32"), draw.array(draw.shape(), draw.dtype("f32", "f64", "i8"))
    dtype = {np.dtype("f4"): "f32", np.dtype("f8"): "f64"}.get(y.dtype, "i8")
    return Call(ops.cast_like, [x, y], [x.astype(y.dtype)], [dtype])


def _one_hot(draw: Draw) -> Call:
    x, depth = draw.rng.integers(-2, 9, draw.shape(0, 3)).astype(draw.pick((np.int32, np.int64))), draw.number(0, 7)
    exact = (np.asarray(x)[..., None] == np.arange(depth)).astype(np.float64)
    return Call(lambda a: ops.one_hot(a, depth), [np.asarray(x)], [exact], ["f32"])


# By index.


def _places(indices: Array, size: int, mode: str) -> Array:
    """Where indices lead; the size of the axis for nowhere."""
    at = np.where(indices < 0, indices + size, indices)
    known = (at >= 0) & (at < size)
    return np.clip(at, 0, size - 1) if mode == "clip" else np.where(known, at, size)


def _indices(draw: Draw, shape: Any, size: int) -> Array:
    kind = draw.pick((np.int64, np.int32, np.int8))
    return np.asarray(draw.rng.integers(-size - 3, size + 3, tuple(shape))).astype(kind)


def _read(x: Array, at: Array, axis: int) -> Array:
    """Slices of an axis, zeros from beyond it."""
    more = np.concatenate([x, np.zeros_like(np.take(x, [0], axis))], axis)
    return np.take(more, at, axis)


def _take(name: str) -> Family:
    def family(draw: Draw) -> Call:
        mode = draw.pick(("clip", "drop", None))
        dtype = draw.dtype(*ANY)
        x = draw.array(
            draw.shape(1, 3, empty=False) if name != "embedding" else (draw.number(1, 6), draw.number(1, 9)), dtype
        )
        axis = draw.axis(x.ndim) if name == "take" else 0
        index = _indices(draw, draw.shape(0, 2), x.shape[axis])
        at = _places(index, x.shape[axis], mode or "clip")
        exact = _read(x, at, axis) if index.size else np.take(x, at.astype(np.int64), axis)
        if name == "take":
            function: Any = lambda a, i: ops.take(a, i, axis, mode=mode)  # noqa: E731
        elif name == "embedding":
            function = lambda a, i: ops.embedding(a, i, mode=mode)  # noqa: E731
        else:
            index = index[..., None]
            function = lambda a, i: ops.gather(a, i, mode=mode)  # noqa: E731
        return Call(function, [x, index], [wide(exact)], [dtype], text=f"{axis} {mode} ", dynamic=name != "gather")

    return family


def _take_along(draw: Draw) -> Call:
    mode, dtype = draw.pick(("clip", "drop", None)), draw.dtype(*ANY)
    x = draw.array(draw.shape(1, 3, empty=False), dtype)
    axis = draw.axis(x.ndim)
    shape = list(x.shape)
    shape[axis] = draw.number(0, 5)
    index = _indices(draw, shape, x.shape[axis])
    at = _places(index.astype(np.int64), x.shape[axis], mode or "clip")
    more = np.concatenate([x, np.zeros_like(np.take(x, [0], axis))], axis)
    exact = np.take_along_axis(more, at, axis)
    return Call(
        lambda a, i: ops.take_along_axis(a, i, axis, mode=mode),
        [x, index],
        [wide(exact)],
        [dtype],
        text=f"{axis} {mode} ",
    )


def _index_of(draw: Draw, shape: tuple[int, ...]) -> Any:
    """An index of any form that is in bounds."""
    items: list[Any] = []
    lines = draw.number(1, 4)
    for size in shape[: draw.number(0, len(shape))]:
        kind = draw.pick(("int", "slice", "slice", "indices", "mask", "all"))
        if kind == "int" and size:
            items.append(draw.number(-size, size - 1))
        elif kind == "indices" and size:
            items.append(draw.rng.integers(-size, size, (lines,)))
        elif kind == "mask" and not any(isinstance(item, np.ndarray) for item in items):
            mask = draw.rng.random(size) < 0.5
            lines = int(mask.sum())
            items.append(mask)
        elif kind == "slice":
            ends = [None if draw.chance(0.3) else draw.number(-size - 1, size + 1) for _ in range(2)]
            items.append(slice(*ends, draw.pick((None, 1, 2, 3, -1, -2))))
        else:
            items.append(slice(None))
        if draw.chance(0.1):
            items.append(None)
    if draw.chance(0.2):
        items.append(...)
    return tuple(items)


def _shown(index: Any) -> str:
    return str(index).replace("\n", "")[:150] + " "


def _getitem(draw: Draw) -> Call:
    x, dtype = _moved(draw)
    index = _index_of(draw, x.shape)
    return Call(lambda a: a[index], [x], [wide(np.asarray(x[index]))], [dtype], text=_shown(index))


UPDATES: dict[str, Any] = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _at(draw: Draw) -> Call:
    dtype, name = draw.dtype("f32", "f64", *INTEGERS), draw.pick(list(UPDATES))
    x = draw.array(draw.shape(), dtype)
    index = _index_of(draw, x.shape)
    values = draw.array(x[index].shape, dtype)
    exact = x.copy()
    if UPDATES[name] is None:
        exact[index] = values
    else:
        UPDATES[name].at(exact, index, values)  # in the dtype of `x`, in the order of the indices, as Tessera does
    function = lambda a, v: getattr(a.at[index], name)(v)  # noqa: E731
    return Call(function, [x, values], [wide(exact)], [dtype], [np.zeros(x.shape)], text=f"{name} {_shown(index)}")


def _scatter(name: str) -> Family:
    def family(draw: Draw) -> Call:
        mode, dtype = draw.pick(("clip", "drop", None)), draw.dtype("f32", "i32", "i64", "f64")
        x = draw.array(draw.shape(1, 3, empty=False), dtype)
        axis = draw.axis(x.ndim)
        index = _indices(draw, draw.shape(0, 2), x.shape[axis])
        own = axis % x.ndim
        updates = draw.array((*x.shape[:own], *index.shape, *x.shape[own + 1 :]), dtype)
        out = np.moveaxis(x, own, 0).copy()
        rows = updates.reshape((*x.shape[:own], index.size, *x.shape[own + 1 :]))
        for number, at in enumerate(_places(index.astype(np.int64), x.shape[own], mode or "drop").reshape(-1)):
            if at < x.shape[own]:
                row = np.take(rows, number, own)
                out[at] = row if name == "scatter" else out[at] + row
        function = lambda a, i, u: getattr(ops, name)(a, i, u, axis, mode=mode)  # noqa: E731
        exact = wide(np.moveaxis(out, 0, own))
        return Call(function, [x, index, updates], [exact], [dtype], [np.zeros(x.shape)], text=f"{axis} {mode} ")

    return family


def _dynamic(name: str) -> Family:
    def family(draw: Draw) -> Call:
        x, dtype = _moved(draw, 1, empty=False)
        sizes = [draw.number(1, size) for size in x.shape]
        starts = [draw.number(-size - 2, size + 2) for size in x.shape]
        begins = [
            min(max(s + n if s < 0 else s, 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)
        ]
        where = tuple(slice(b, b + size) for b, size in zip(begins, sizes, strict=True))
        index = np.array(starts)
        if name == "dynamic_slice":
            return Call(
                lambda a, i: ops.dynamic_slice(a, i, sizes), [x, index], [wide(x[where])], [dtype], text=f"{sizes} "
            )
        update = draw.array(sizes, dtype)
        exact = x.copy()
        exact[where] = update
        return Call(ops.dynamic_update_slice, [x, update, index], [wide(exact)], [dtype], text=f"{starts} ")

    return family


FAMILIES.update({"bitcast": _bitcast, "cast_like": _cast_like, "one_hot": _one_hot, "take_along_axis": _take_along})
FAMILIES.update({name: _take(name) for name in ("take", "embedding", "gather")})
FAMILIES.update({name: _scatter(name) for name in ("scatter", "scatter_add")})
FAMILIES.update({name: _dynamic(name) for name in ("dynamic_slice", "dynamic_update_slice")})
FAMILIES.update({"getitem": _getitem, "x.at": _at})

ELSEWHERE = {
    **dict.fromkeys(
        ("atleast_1d", "atleast_2d", "atleast_3d", "tril_indices"),
        "called by name in tests/functions/test_arrangement.py",
    ),
    "population_count": "bits of integers alone, as `bitwise_count` of tests/functions",
    **dict.fromkeys(
        ("angle", "complex", "conj", "imag", "real"), "about complex numbers; tests/frontend/test_complex_tensor.py"
    ),
    "round_blocks": "formats of blocks, compared with their own reference in tests/graph",
    "round_stochastic": "takes random bits; compared with its own reference in tests/graph",
    "split_qkv": "three views of one tensor; tests/graph/test_attention.py",
    "unique": "the first result of `unique_all`, which tests/functions has",
}
"""Ops that are not drawn here, and why."""
