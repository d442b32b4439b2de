"""Cases with rows and elements: reductions, norms, scans, sorts, movement, elementwise functions, casts and draws."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import tessera as ts
from tests.replay.case import DTYPES, EVERYWHERE, MAIN, Case, case

ops = ts.ops
WIDTHS = ("1", "33", "64", "1000", "4096", "5000", "12288", "N")


def norm_cases() -> dict[str, Case]:
    """Softmax and norms at widths that are kept in registers, in shared memory, or read twice."""
    found: dict[str, Case] = {}
    for width in WIDTHS:
        for dtype in ("f32", "bf16"):
            row, line = f"9 {width} {dtype}", f"{width} {dtype}"
            machines = MAIN if width in ("1", "33", "64") or (dtype == "f32" and width != "N") else EVERYWHERE
            found[f"softmax {width} {dtype}"] = case(lambda x: ops.softmax(x), row, machines=machines)
            found[f"layernorm {width} {dtype}"] = case(
                lambda x, w, b: ops.layernorm(x, w, b), row, line, line, machines=machines
            )
            found[f"rmsnorm {width} {dtype}"] = case(lambda x, w: ops.rmsnorm(x, w), row, line, machines=machines)
    types = "M N f32"
    found["softmax f16"] = case(lambda x: ops.softmax(x), "M 1000 f16", machines=MAIN)
    found["softmax f64"] = case(lambda x: ops.softmax(x), "M 1000 f64", machines=MAIN)
    found["softmax columns"] = case(lambda x: ops.softmax(x, axis=0), types)
    found["softmax middle"] = case(lambda x: ops.softmax(x, axis=1), "B S 20 f32", machines=MAIN)
    found["softmax by hand"] = case(_by_hand, types)
    found["log_softmax"] = case(lambda x: ops.log_softmax(x), types, machines=MAIN)
    found["logsumexp"] = case(lambda x: ops.logsumexp(x, axis=-1), types, machines=MAIN)
    found["cross_entropy"] = case(lambda x, y: ops.cross_entropy(x, y), "M 1000 f32", "M i64")
    found["layernorm plain"] = case(lambda x: ops.layernorm(x), types, machines=MAIN)
    found["layernorm residual"] = case(lambda x, y, w, b: ops.layernorm(x + y, w, b), types, types, "N f32", "N f32")
    return found


def _by_hand(x: Any) -> Any:
    powers = ops.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


AXES: dict[str, Any] = {"rows": -1, "columns": 0, "middle": 1, "ends": (0, 2), "last two": (1, 2), "all": None}


def reduction_cases() -> dict[str, Case]:
    """Every axis for sums and maxima; every reduction over rows."""
    found: dict[str, Case] = {}
    for name, axis in AXES.items():
        for function in ("sum", "max"):
            for dtype in ("f32", "bf16"):
                found[f"{function} {name} {dtype}"] = case(
                    lambda x, function=function, axis=axis: getattr(ops, function)(x, axis=axis), f"B S 70 {dtype}"
                )
    for name in ("mean", "var", "std", "min", "prod", "norm", "argmax", "argmin"):
        found[name] = case(lambda x, name=name: getattr(ops, name)(x, axis=-1), "M N f32")
        found[f"{name} columns"] = case(lambda x, name=name: getattr(ops, name)(x, axis=0), "300 40 f32", machines=MAIN)
    for dtype in ("i32", "i64", "u8", "f64", "f16", "i8"):
        found[f"sum {dtype}"] = case(lambda x: (x.sum(axis=-1), x.max(axis=-1)), f"M N {dtype}", machines=MAIN)
    for name in ("any", "all"):
        found[name] = case(lambda x, name=name: getattr(ops, name)(x, axis=-1), "M N bool", machines=MAIN)
    found["sum long"] = case(lambda x: x.sum(), "1000000 f32")
    found["mean of squares"] = case(lambda x: (x * x).mean(axis=(0, 1)), "B S 20 f32", machines=MAIN)
    return found


def order_cases() -> dict[str, Case]:
    """Scans, sorts, pooling and windows."""
    found: dict[str, Case] = {}
    for name in ("cumsum", "cumprod", "cummax"):
        found[name] = case(lambda x, name=name: getattr(ops, name)(x, axis=-1), "M N f32")
        found[f"{name} columns"] = case(lambda x, name=name: getattr(ops, name)(x, axis=0), "M N f32", machines=MAIN)
    found["cumsum long"] = case(lambda x: ops.cumsum(x), "4 20000 f32", machines=MAIN)
    found["cumsum i32"] = case(lambda x: ops.cumsum(x), "M N i32", machines=MAIN)
    for dtype in ("f32", "bf16", "i64"):
        found[f"sort {dtype}"] = case(lambda x: ops.sort(x), f"M N {dtype}", machines=MAIN)
        found[f"argsort {dtype}"] = case(lambda x: ops.argsort(x, descending=True), f"3 1000 {dtype}", machines=MAIN)
    found["sort columns"] = case(lambda x: ops.sort(x, axis=0), "M N f32", machines=MAIN)
    found["topk"] = case(lambda x: ops.topk(x, 5), "M 1000 f32")
    found["topk smallest"] = case(lambda x: ops.topk(x, 3, largest=False), "M N f32", machines=MAIN)
    for name in ("max_pool", "avg_pool"):
        found[name] = case(lambda x, name=name: getattr(ops, name)(x, (2, 2), padding=1), "B C L W f32", machines=MAIN)
        found[f"{name} line"] = case(
            lambda x, name=name: getattr(ops, name)(x, 3, stride=2), "B C L bf16", machines=MAIN
        )
    return found


def movement_cases() -> dict[str, Case]:
    """What only moves elements, by rules and by indices."""
    moved: dict[str, tuple[Any, tuple[str, ...]]] = {
        "transpose": (lambda x: x.T + 1.0, ("M N f32",)),
        "transpose bf16": (lambda x: x.transpose(0, 2, 1) * 2.0, ("B S 64 bf16",)),
        "reshape": (lambda x: (x * 2.0).reshape(x.shape[0], 8, 8), ("M 64 f32",)),
        "flip": (lambda x: ops.flip(x, 1) - x, ("M N f32",)),
        "roll": (lambda x: ops.roll(x, 3, 1), ("M N f32",)),
        "slice": (lambda x: x[2:, ::3] * 2.0, ("M N f32",)),
        "concat": (lambda x, y: ops.concat([x, y * 2.0], axis=1), ("M N f32", "M 4 f32")),
        "stack": (lambda x, y: ops.stack([x, y], axis=1), ("M N f32", "M N f32")),
        "split": (lambda x: ops.split(x, 4, axis=1), ("M 64 f32",)),
        "pad": (lambda x: ops.pad(x, ((1, 2), (0, 3)), 1.5), ("M N f32",)),
        "repeat": (lambda x: ops.repeat(x, 3, 1), ("M N f32",)),
        "tile": (lambda x: ops.tile(x, (2, 3)), ("M N f32",)),
        "broadcast": (lambda x, y: x[:, None] * y[None, :], ("M f32", "N f32")),
        "diagonal": (lambda x: ops.diagonal(x), ("M M f32",)),
        "triangles": (lambda x: ops.tril(x) - ops.triu(x), ("M N f32",)),
        "created": (lambda x: x + ops.eye(9) + ops.full((9, 9), 2.0) + ops.arange(9).cast(ts.f32), ("9 9 f32",)),
        "linspace": (lambda x: x + ops.linspace(0.0, 1.0, 9), ("9 f32",)),
        "embedding": (lambda x, i: ops.embedding(x, i), ("1000 64 bf16", "B S i64")),
        "take": (lambda x, i: ops.take(x, i, axis=1), ("M N f32", "K i32")),
        "take_along_axis": (lambda x, i: ops.take_along_axis(x, i, 1), ("M N f32", "M 5 i64")),
        "gather": (lambda x, i: ops.gather(x, i), ("M N f32", "K 2 i64")),
        "index": (lambda x, i: x[:, i], ("M N f32", "K i64")),
        "scatter": (lambda x, i, u: ops.scatter(x, i, u), ("M N f32", "K i64", "K N f32")),
        "scatter_add": (lambda x, i, u: ops.scatter_add(x, i, u), ("M N f32", "K i64", "K N f32")),
        "scatter_add bf16": (lambda x, i, u: ops.scatter_add(x, i, u), ("M 64 bf16", "K i64", "K 64 bf16")),
        "scatter_add unordered": (
            lambda x, i, u: ops.scatter_add(x, i, u, ordered=False),
            ("M 64 f32", "K i64", "K 64 f32"),
        ),
        "one_hot": (lambda i: ops.one_hot(i, 10), ("M i64",)),
        "where": (lambda c, x, y: ops.where(c, x, y), ("M N bool", "M N f32", "N f32")),
    }
    return {name: case(function, *types, machines=MAIN) for name, (function, types) in moved.items()}


UNARY = [
    "abs",
    "ceil",
    "cos",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "gelu",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
BINARY = [
    "add",
    "atan2",
    "div",
    "eq",
    "floordiv",
    "ge",
    "gt",
    "le",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "ne",
    "pow",
    "sub",
]
WHOLE = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "floordiv", "mod", "maximum"]


def _each(names: list[str]) -> Any:
    return lambda *tensors: tuple(getattr(ops, name)(*tensors) for name in names)


def elementwise_cases() -> dict[str, Case]:
    """Each scalar function in each float, a few to a program; chains of them; casts from every dtype to all others."""
    found: dict[str, Case] = {}
    for dtype in ("f32", "f64", "bf16", "f16"):
        for start in range(0, len(UNARY), 6):
            names = UNARY[start : start + 6]
            machines = EVERYWHERE if dtype == "f32" else MAIN
            found[f"{' '.join(names)} {dtype}"] = case(_each(names), f"M 40 {dtype}", machines=machines)
        found[f"binary {dtype}"] = case(_each(BINARY), f"M 40 {dtype}", f"M 40 {dtype}", machines=MAIN)
    for dtype in ("i8", "u8", "i32", "u32", "i64"):
        found[f"whole {dtype}"] = case(_each(WHOLE), f"M 40 {dtype}", f"M 40 {dtype}", machines=MAIN)
    found["logical"] = case(_each(["logical_and", "logical_or", "logical_xor"]), "N bool", "N bool", machines=MAIN)
    found["chain"] = case(lambda x, y: ops.tanh(x * y) + ops.exp(-ops.abs(x)), "M N f32", "M N f32")
    found["chain bf16"] = case(lambda x, y: ops.gelu(x + y) * ops.sigmoid(x), "M N bf16", "N bf16")
    found["clamp"] = case(lambda x: ops.clamp(x * 3.0, -1.0, 2.0), "M N f32", machines=MAIN)
    found["scalar"] = case(lambda x, s: x * s + 1.0, "M N f32", "f32")
    found["flat"] = case(lambda x, y: x * y, "M N 4 f32", "M N 4 f32")
    found["static"] = case(lambda x, y: x * y + x, "64 1024 f32", "1024 f32")
    found["fast sum of products"] = case(lambda x, y: x * y + x, "M N f32", "M N f32", fast_math=True)
    for source in DTYPES:
        targets = [name for name in (*DTYPES, "i4") if name != source]
        found[f"casts of {source}"] = case(
            lambda x, targets=targets: tuple(x.cast(ts.bool_ if to == "bool" else getattr(ts, to)) for to in targets),
            f"M 20 {source}",
            machines=MAIN,
        )
    found["bitcast"] = case(lambda x: ops.bitcast(x, ts.i32), "M N f32", machines=MAIN)
    return found


def random_cases() -> dict[str, Case]:
    """Draws, dropout and rounding at random, from a key that is an argument."""
    key = "2 u64"
    return {
        name: case(function, *types, machines=MAIN)
        for name, (function, types) in {
            "uniform": (lambda k, x: x + ts.random.uniform(k, x.shape), (key, "M N f32")),
            "normal": (lambda k, x: x + ts.random.normal(k, x.shape), (key, "M N f32")),
            "bits": (lambda k: ts.random.bits(k, (64,)), (key,)),
            "bernoulli": (lambda k: ts.random.bernoulli(k, 0.3, (64,)), (key,)),
            "dropout": (lambda k, x: ts.random.dropout(x, k, 0.1), (key, "M N bf16")),
            "dropout layernorm": (
                lambda k, x, y: ops.layernorm(ts.random.dropout(x, k, 0.1) + y),
                (key, "M 512 f32", "M 512 f32"),
            ),
            "split": (lambda k: ts.random.split(k, 3), (key,)),
            "residual dropout": (lambda k, x, y: ops.residual(x, y, dropout=0.1, key=k), (key, "M N f32", "M N f32")),
            "stochastic": (_stochastic, (key, "M N f32")),
            "round_to": (lambda x: ops.round_to(x, "f8e4m3", saturation="saturate"), ("M N f32",)),
        }.items()
    }


def _stochastic(key: Any, x: Any) -> Any:
    with ts.policy(rounding="stochastic", key=key):
        return x.cast(ts.bf16)
