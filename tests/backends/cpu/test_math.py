"""Scalar functions on vectors: error bounds, corners, and the same bits at every width."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, resolve
from tessera.ir.target.llvm.instructions import TargetText, Value, vector
from tessera.ir.target.llvm.math import emit
from tessera.ir.target.llvm.text import ModuleText
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tests.backends.cpu import normal
from tests.backends.cpu.jit import Compiled, build, targets
from tests.scalar_table import ULP_BOUNDS

Array = np.ndarray[Any, Any]
LONG = np.longdouble
NUMPY = {dt.f32: np.float32, dt.f64: np.float64}
BINARY = tuple(name for name in ULP_BOUNDS if SCALAR_FUNCTIONS[name].arity == 2)
each_target = pytest.mark.parametrize("target", targets(), ids=lambda target: f"lanes{target.lanes}")
each_float = pytest.mark.parametrize("dtype", [dt.f32, dt.f64], ids=str)


@cache
def kernel(target: TargetText, name: str, dtype: DType, lanes: int, arity: int, to_bool: bool) -> Compiled:
    """A loop over arrays, `lanes` elements at a time."""
    module = ModuleText(target)
    element = {dt.f32: "float", dt.f64: "double"}.get(dtype, f"i{dtype.bits}")
    f = module.function("run", [("ptr", "out"), *[("ptr", f"x{i}") for i in range(arity)], ("i64", "n")])
    out, *inputs, n = f.arguments

    def body(i: Value) -> None:
        args = [f.load(f.gep(pointer, i, element), vector(element, lanes)) for pointer in inputs]
        if dtype.is_bool:
            args = [f.icmp("ne", value, f.const_like(value, 0)) for value in args]
        value = emit(f, name, args, dtype)
        if to_bool:
            value = f.cast("zext", value, "i8")
        f.store(value, f.gep(out, i, value.element))

    f.loop(0, n, lanes, body)
    f.ret()
    return build(module)


def run(target: TargetText, name: str, dtype: DType, *arrays: Array, lanes: int = 0, to_bool: bool = False) -> Array:
    width = lanes or target.lanes * 4 // dtype.bytes
    count = len(arrays[0])
    padded = [np.resize(array, -(-count // width) * width) for array in arrays]
    out = np.zeros(len(padded[0]), np.bool_ if to_bool else padded[0].dtype)
    kernel(target, name, dtype, width, len(arrays), to_bool)("run", out, *padded, len(out))
    return out[:count]


def ulps(actual: Array, exact: Array) -> Array:
    """Errors in units of the last place of the exact result; infinite where only one is NaN or infinite."""
    largest = np.finfo(actual.dtype).max
    with np.errstate(all="ignore"):
        near = exact.astype(actual.dtype)
        unit = np.spacing(np.minimum(np.abs(near), largest)).astype(LONG)
        error = np.abs(actual.astype(LONG) - exact) / unit
    agree = (actual == near) | (np.isnan(actual) & np.isnan(near))
    return np.where(agree, 0.0, np.where(np.isnan(error), np.inf, error)).astype(np.float64)


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, LONG(1), small) / (1 + small)


def gelu_tanh(x: Array) -> Array:
    scale = LONG("1.59576912160573071175978423973752747")
    return np.where(np.isneginf(x), LONG(-0.0), x * sigmoid(scale * (x + LONG("0.044715") * x**3)))


def silu(x: Array) -> Array:
    return np.where(np.isneginf(x), LONG(-0.0), x * sigmoid(x))


EXACT: dict[str, Callable[..., Array]] = {
    **{name: resolve(SCALAR_FUNCTIONS[name].reference) for name in ULP_BOUNDS if name != "floordiv"},
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "erf": normal.erf,
    "erfc": normal.erfc,
    "gelu_erf": normal.gelu,
}
"""The table's references in long double, but for those that NumPy has in double only or that lose a limit."""


def spaced_numbers(name: str, dtype: DType) -> Array:
    """Where a function does anything: around zero, around one, across its range, and the corners."""
    rng = np.random.default_rng(5)
    kind = np.finfo(NUMPY[dtype])
    count = 600 if name in ("erf", "erfc", "gelu_erf") else 30000
    reach = 110.0 if dtype is dt.f32 else 760.0
    edges = [
        0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 0.5, kind.max, -kind.max, kind.tiny, -kind.tiny,
        kind.smallest_subnormal, -kind.smallest_subnormal, kind.eps, -kind.eps, np.pi / 2, 1e22, -1e15, 131073.0,
        0.8155141,  # the largest error of erfc in f32
    ]  # fmt: skip
    parts = [
        np.array(edges),
        rng.normal(size=count) * 3,
        rng.uniform(-reach, reach, count),
        1 + rng.normal(size=count) * 0.1,
        np.exp(rng.uniform(np.log(kind.tiny), np.log(kind.max), count)) * rng.choice([-1, 1], count),
        np.linspace(-reach, reach, count),
    ]
    return np.concatenate(parts).astype(NUMPY[dtype])


@each_target
@each_float
@pytest.mark.parametrize("name", [name for name in EXACT if name not in BINARY])
def test_errors_stay_within_their_bounds(target: TargetText, dtype: DType, name: str) -> None:
    x = spaced_numbers(name, dtype)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(LONG))
    actual = run(target, name, dtype, x)
    errors = ulps(actual, exact)
    worst = int(errors.argmax())
    bound = ULP_BOUNDS[name][0 if dtype is dt.f32 else 1]
    assert errors[worst] <= bound, (
        f"{name}({x[worst]!r}) = {actual[worst]!r}, not {exact[worst]!r}: the largest error in {dtype} is "
        f"{errors[worst]:.3f} ulp, its entry declares `ulp` {bound}"
    )


@each_target
@each_float
@pytest.mark.parametrize("name", BINARY)
def test_errors_of_two_operands(target: TargetText, dtype: DType, name: str) -> None:
    rng = np.random.default_rng(6)
    x, y = spaced_numbers(name, dtype), rng.permutation(spaced_numbers(name, dtype))
    if name == "pow":
        whole = np.concatenate([rng.integers(-9, 9, 3000), rng.normal(size=3000) * 50]).astype(x.dtype)
        x, y = np.concatenate([x, rng.normal(size=6000).astype(x.dtype)]), np.concatenate([y, whole])
    corners = [(a, b) for a in x[:22] for b in y[:0].tolist() + x[:22].tolist()]
    x = np.concatenate([x, np.array([a for a, _ in corners], x.dtype)])
    y = np.concatenate([y, np.array([b for _, b in corners], x.dtype)])
    with np.errstate(all="ignore"):
        if name == "floordiv":
            wide = x.astype(np.float64)
            quotient = wide / y
            is_beyond = np.isinf(quotient) & np.isfinite(wide)  # a quotient of numbers that no float64 holds
            exact = np.where(is_beyond, quotient, np.floor_divide(wide, y)).astype(LONG)
        else:
            exact = EXACT[name](x.astype(LONG), y.astype(LONG))
    actual = run(target, name, dtype, x, y)
    errors = ulps(actual, exact)
    worst = int(errors.argmax())
    bound = ULP_BOUNDS[name][0 if dtype is dt.f32 else 1]
    assert errors[worst] <= bound, f"{name}({x[worst]!r}, {y[worst]!r}) = {actual[worst]!r}, not {exact[worst]!r}"


@each_float
@pytest.mark.parametrize("name", [name for name in ULP_BOUNDS if name not in BINARY])
def test_bits_do_not_depend_on_the_width(dtype: DType, name: str) -> None:
    x = spaced_numbers(name, dtype)[:2000]
    results = [run(target, name, dtype, x, lanes=lanes) for target in targets() for lanes in (0, 1, 4)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@each_target
@each_float
def test_exact_functions_match_numpy(target: TargetText, dtype: DType) -> None:
    x = spaced_numbers("exp", dtype)[:3000]
    y = np.random.default_rng(8).permutation(x)
    unary: dict[str, Callable[[Array], Array]] = {
        "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
        "round": np.rint, "relu": lambda v: np.maximum(v, 0),
    }  # fmt: skip
    binary: dict[str, Callable[[Array, Array], Array]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
        "copysign": np.copysign,
    }  # fmt: skip
    tests: dict[str, Callable[..., Array]] = {"isnan": np.isnan, "isinf": np.isinf}
    compare: dict[str, Callable[..., Array]] = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for name, function in unary.items():
            np.testing.assert_array_equal(run(target, name, dtype, x), function(x), name)
        for name, function in binary.items():
            np.testing.assert_array_equal(run(target, name, dtype, x, y), function(x, y), name)
        for name, function in tests.items():
            np.testing.assert_array_equal(run(target, name, dtype, x, to_bool=True), function(x), name)
        for name, function in compare.items():
            np.testing.assert_array_equal(run(target, name, dtype, x, y, to_bool=True), function(x, y), name)


INTEGERS = [dt.i8, dt.u8, dt.i16, dt.i32, dt.u32, dt.i64, dt.u64]


def python_result(name: str, a: int, b: int, dtype: DType) -> int:
    """What `docs/guide/numerics.md` says, in Python's unbounded integers."""
    inside = 0 <= b < dtype.bits
    results: dict[str, Callable[[], int]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "floordiv": lambda: a // b if b else 0,
        "mod": lambda: a % b if b else 0,
        "max": lambda: max(a, b),
        "min": lambda: min(a, b),
        "and": lambda: a & b,
        "gcd": lambda: math.gcd(a, b),
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "shl": lambda: a << b if inside else 0,
        "shr": lambda: a >> b if inside else -(a < 0),
        "neg": lambda: -a,
        "abs": lambda: abs(a),
        "sign": lambda: (a > 0) - (a < 0),
        "not": lambda: ~a,
        "popcount": lambda: (a & ((1 << dtype.bits) - 1)).bit_count(),
        "pow": lambda: pow(a, b % 64, 1 << dtype.bits) if b >= 0 else {1: 1, -1: -1 if b & 1 else 1}.get(a, 0),
    }
    value = results[name]() & ((1 << dtype.bits) - 1)
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


@each_target
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_and_never_trap(target: TargetText, dtype: DType) -> None:
    numpy = np.dtype(("u" if dtype.kind == "uint" else "i") + f"{dtype.bytes}")
    rng, info = np.random.default_rng(9), np.iinfo(numpy)
    corners = [info.min, info.max, 0, 1, 2, 3, 7, 8, 63, *([-1, -2, -7] if dtype.kind == "int" else [])]
    pairs = [(a, b) for a in corners for b in corners]
    random = rng.integers(info.min, info.max, (150, 2), dtype=numpy, endpoint=True)
    a = np.concatenate([np.array([p[0] for p in pairs], numpy), random[:, 0], random[:, 0]])
    b = np.concatenate([np.array([p[1] for p in pairs], numpy), random[:, 1], random[:, 1] % 11])
    for name in ("add", "sub", "mul", "floordiv", "mod", "max", "min", "and", "or", "xor", "shl", "shr", "pow", "gcd"):
        power = b % numpy.type(64) if name == "pow" and dtype.kind == "uint" else b
        power = np.where(power > 63, 63, power).astype(numpy) if name == "pow" else power
        expected = np.array([python_result(name, int(x), int(y), dtype) for x, y in zip(a, power, strict=True)], numpy)
        np.testing.assert_array_equal(run(target, name, dtype, a, power), expected, name)
    for name in ("neg", "abs", "sign", "not", "popcount"):
        expected = np.array([python_result(name, int(x), 0, dtype) for x in a], numpy)
        np.testing.assert_array_equal(run(target, name, dtype, a), expected, name)
    np.testing.assert_array_equal(run(target, "lt", dtype, a, b, to_bool=True), a < b)
    np.testing.assert_array_equal(run(target, "ge", dtype, a, b, to_bool=True), a >= b)


@each_target
def test_bools(target: TargetText) -> None:
    a, b = np.array([0, 0, 1, 1] * 4, np.uint8), np.array([0, 1, 0, 1] * 4, np.uint8)
    for name, expected in {"and": a & b, "or": a | b, "xor": a ^ b, "eq": a == b, "max": a | b, "lt": a < b}.items():
        result = run(target, name, dt.bool_, a, b, lanes=8, to_bool=True)
        np.testing.assert_array_equal(result, expected.astype(bool), name)
    np.testing.assert_array_equal(run(target, "not", dt.bool_, a, lanes=8, to_bool=True), a == 0)


def test_unknown_functions_are_refused() -> None:
    module = ModuleText(targets()[0])
    f = module.function("f", [])
    with pytest.raises(ValueError, match="no `exp` for i32"):
        emit(f, "exp", [f.const("i32", 1)], dt.i32)
