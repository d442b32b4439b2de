"""Functions as a thread of a GPU computes them, run here: the bits of a CPU, with fewer instructions.

The one thing a CPU lacks is the GPU's guess at a reciprocal; one that is off by up to a unit stands in for it.
Of a number just below a power of two it has to be right, as the GPU's own division takes for granted; on a GPU
`tests/device/test_rows.py` divides by the numbers from 1 to 2.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx.emit_values import ORDINARY, compute_ordinary, divide_by_common
from tessera.ir.target.llvm import math, math_exp
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types.dtype import DType, f32, i8, i16, u8, u16
from tests.backends.cpu.jit import Compiled, build, targets

Array = np.ndarray[Any, Any]
NAMES = (
    "exp of what falls",
    "exp2 of what falls",
    "exp of what falls a little",
    "silu",
    "sigmoid",
    "gelu_tanh",
    "gelu_erf",
    "tanh",
    "erf",
)
_USUAL = (1e-45, 1e-38, 3.4e38, 9.0, 16.6, 17.3, 31.9, 32.0, 33.0, 87.3, 87.4, 88.7, 103.9, 104.0, 104.1, 106.0, 114.0)
_EDGES = (2.0**17, 131072.01, 1e6, 2.0**100, 1.3e30, 1.0, 0.99999994, 1.0000001, 1.17549435e-38, 1.1e-38)
CORNERS = np.array(
    [
        *_EDGES,
        *(-number for number in _EDGES),
        *_USUAL,
        *(-number for number in _USUAL),
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)
_GUESS = "llvm.nvvm.rcp.approx.ftz.f"
_STAND_IN = """
define internal float @guess(float %x) #0 {
  %near = fdiv float 1.0, %x
  %bits = bitcast float %near to i32
  %given = bitcast float %x to i32
  %mixed = mul i32 %given, -1640531535
  %number = urem i32 %mixed, 3
  %some = sub i32 %number, 1
  %mantissa = and i32 %given, 8388607
  %is_last = icmp eq i32 %mantissa, 8388607
  %off = select i1 %is_last, i32 0, i32 %some
  %moved = add i32 %bits, %off
  %found = bitcast i32 %moved to float
  ret float %found
}
"""


class _Here(ModuleText):
    """A module for a thread that runs on this CPU."""

    def text(self) -> str:
        whole = super().text().replace(f"declare float @{_GUESS}(float)\n", "")
        return whole.replace(f"@{_GUESS}(", "@guess(") + (_STAND_IN if f"@{_GUESS}(" in whole else "")


ELEMENTS = 4
"""Elements that a thread has of a tile."""


def _write(f: FunctionText, name: str, x: Value) -> Value:
    if name in ORDINARY and f.target.lanes == 1:
        parts = compute_ordinary(f, name, [f.extract(x, lane) for lane in range(ELEMENTS)], f32)
        whole = Value(x.type, "poison")
        for lane, part in enumerate(parts):
            whole = f.insert(whole, part, lane)
        return whole
    if name == "exp of what falls":
        return math_exp.exp(f, x, negative=True)
    if name == "exp2 of what falls":
        # The vectors that it is held against have no such promise.
        return math_exp.exp2(f, x, negative=f.target.lanes == 1)
    if name == "exp of what falls a little":
        # The vectors that it is held against have no such promise.
        return math_exp.exp_normal(f, x) if f.target.lanes == 1 else math_exp.exp(f, x)
    return math.emit(f, name, [x], f32)


@cache
def compiled(name: str, lanes: int) -> Compiled:
    wide = targets()[0]
    target = TargetText(lanes, wide.cpu, wide.features)
    module = _Here(target)
    f = module.function("run", [("ptr", "out"), ("ptr", "x"), ("i64", "n")])
    out, source, count = f.arguments
    count_at_a_time = ELEMENTS if lanes == 1 and name in ORDINARY else lanes
    type_ = "float" if count_at_a_time == 1 else f"<{count_at_a_time} x float>"

    def body(at: Value) -> None:
        found = _write(f, name, f.load(f.gep(source, at, "float"), type_, align=4))
        f.store(found, f.gep(out, at, "float"), align=4)

    f.loop(0, count, count_at_a_time, body)
    f.ret()
    return build(module)


def run(name: str, x: Array, lanes: int) -> Array:
    given, out = np.ascontiguousarray(x), np.full(len(x), np.nan, np.float32)
    compiled(name, lanes)("run", out, given, len(given))
    return out


def check(name: str, x: Array) -> None:
    if name in ("exp of what falls", "exp2 of what falls"):
        x = -abs(x)
    if name == "exp of what falls a little":
        x = np.maximum(-abs(x[~np.isnan(x)]), np.float32(math_exp.ORDINARY))
        x = np.concatenate([x, np.array([0.0, -0.0, math_exp.ORDINARY, -86.99, -1e-45], np.float32)])
    x = np.resize(x, -(-len(x) // 8) * 8).astype(np.float32)
    here, there = (run(name, x, lanes) for lanes in (8, 1))
    same = (here.view(np.int32) == there.view(np.int32)) | (np.isnan(here) & np.isnan(there))
    assert same.all(), list(zip(x[~same], here[~same], there[~same], strict=True))[:5]


@pytest.mark.parametrize("name", [*NAMES, *ORDINARY, "softplus"])
def test_threads_have_the_bits_of_a_cpu(name: str) -> None:
    rng = np.random.default_rng(11)
    usual = rng.standard_normal(200_000) * rng.choice([0.01, 1.0, 10.0, 60.0], 200_000)
    anything = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    check(name, np.concatenate([CORNERS, usual.astype(np.float32), anything]))


@given(st.lists(st.floats(width=32), min_size=1, max_size=32), st.sampled_from([*NAMES, *ORDINARY]))
def test_of_any_numbers(values: list[float], name: str) -> None:
    check(name, np.array(values, np.float32))


@pytest.mark.parametrize("name", ORDINARY)
def test_one_that_is_not_ordinary_changes_no_other(name: str) -> None:
    """A thread that has one calls the function that takes any argument, for all of its elements."""
    rng = np.random.default_rng(5)
    usual = abs(rng.standard_normal((len(CORNERS), ELEMENTS))).astype(np.float32) * 3
    usual[np.arange(len(CORNERS)), rng.integers(0, ELEMENTS, len(CORNERS))] = CORNERS
    check(name, usual.reshape(-1))


@given(st.integers(0, (1 << 23) - 1), st.integers(0, (1 << 23) - 1))
def test_quotients_are_rounded_once(top: int, bottom: int) -> None:
    """Mantissas of any kind, which are what divisions go wrong over."""
    numbers = (np.array([[top], [bottom]], np.uint32) | 0x3F800000).view(np.float32)
    assert _quotient(numbers[0, 0], numbers[1, 0]) == numbers[0, 0] / numbers[1, 0]


def _quotient(top: np.float32, bottom: np.float32) -> np.float32:
    out, given = np.zeros(1, np.float32), np.array([top, bottom], np.float32)
    _division()("run", out, given)
    return out[0]


@cache
def _division() -> Compiled:
    wide = targets()[0]
    module = _Here(TargetText(1, wide.cpu, wide.features))
    f = module.function("run", [("ptr", "out"), ("ptr", "x")])
    out, source = f.arguments
    top, bottom = (f.load(f.gep(source, at, "float"), "float") for at in (0, 1))
    f.store(math_exp.over(f, top, bottom), out)
    f.ret()
    return build(module)


@given(st.lists(st.floats(width=32), min_size=4, max_size=4), st.floats(width=32))
def test_quotients_by_one_number_are_rounded_once(tops: list[float], bottom: float) -> None:
    _check_quotients(np.array(tops, np.float32), np.float32(bottom))


def test_quotients_by_one_number_of_all_sizes() -> None:
    rng = np.random.default_rng(3)
    for bottom in (*rng.uniform(1, 4096, 200), 2.0**-60, 2.0**60, 2.0**61, 1e-40, 0.0, np.inf, np.nan):
        tops = rng.uniform(0, 1, 4) * 2.0 ** rng.choice([0, -20, -59, -61, -120, -149, 60, 61])
        _check_quotients(tops.astype(np.float32), np.float32(bottom))


def _check_quotients(tops: Array, bottom: np.float32) -> None:
    out, given = np.zeros(4, np.float32), np.append(tops, bottom).astype(np.float32)
    _divisions()("run", out, given)
    with np.errstate(all="ignore"):
        expected = tops / bottom
    same = (out.view(np.int32) == expected.view(np.int32)) | (np.isnan(out) & np.isnan(expected))
    assert same.all(), (tops, bottom, out, expected)


@cache
def _divisions() -> Compiled:
    wide = targets()[0]
    module = _Here(TargetText(1, wide.cpu, wide.features))
    f = module.function("run", [("ptr", "out"), ("ptr", "x")])
    out, source = f.arguments
    *tops, bottom = (f.load(f.gep(source, at, "float"), "float") for at in range(5))
    for at, value in enumerate(divide_by_common(f, tops, [bottom] * len(tops))):
        f.store(value, f.gep(out, at, "float"))
    f.ret()
    return build(module)


@cache
def _short_division(name: str, dtype: DType) -> Compiled:
    wide = targets()[0]
    module = _Here(TargetText(1, wide.cpu, wide.features))
    f = module.function("run", [("ptr", "out"), ("ptr", "x"), ("ptr", "y"), ("i64", "n")])
    out, *sources, count = f.arguments
    type_ = f"i{dtype.bits}"

    def body(at: Value) -> None:
        parts = [f.load(f.gep(source, at, type_), type_) for source in sources]
        f.store(math.emit(f, name, parts, dtype), f.gep(out, at, type_))

    f.loop(0, count, 1, body)
    f.ret()
    return build(module)


@pytest.mark.parametrize("name", ["mod", "floordiv"])
@pytest.mark.parametrize("dtype", [i8, u8, i16, u16], ids=str)
def test_short_integers_are_divided_exactly(name: str, dtype: DType) -> None:
    """All pairs of bytes; of 16 bits the ends, divisors near to them and to 0, and many others."""
    kind = np.dtype(f"{'' if dtype.kind == 'int' else 'u'}int{dtype.bits}")
    info, rng = np.iinfo(kind), np.random.default_rng(7)
    if dtype.bits == 8:
        top, bottom = (part.ravel() for part in np.meshgrid(*[np.arange(info.min, info.max + 1)] * 2))
    else:
        ends = np.concatenate(
            [np.arange(info.min, info.min + 40), np.arange(-40, 41), np.arange(info.max - 39, info.max + 1)]
        )
        ends = np.unique(ends[(ends >= info.min) & (ends <= info.max)])
        top, bottom = (part.ravel() for part in np.meshgrid(rng.integers(info.min, info.max + 1, 3000), ends))
        more = rng.integers(info.min, info.max + 1, (2, 1_000_000))
        divisors = ends[rng.integers(0, len(ends), 300_000)]
        multiples = (rng.integers(info.min, info.max + 1, 300_000) // np.where(divisors == 0, 1, divisors)) * divisors
        inside = (multiples >= info.min) & (multiples <= info.max)
        top = np.concatenate([top, more[0], multiples[inside], multiples[inside][1:] - 1])
        bottom = np.concatenate([bottom, more[1], divisors[inside], divisors[inside][1:]])
        inside = (top >= info.min) & (top <= info.max)
        top, bottom = top[inside], bottom[inside]
    safe = np.where(bottom == 0, 1, bottom)
    quotient = np.where(bottom == 0, 0, top // safe)
    expected = (quotient if name == "floordiv" else np.where(bottom == 0, 0, top - quotient * bottom)).astype(kind)
    out = np.full(len(top), 99, kind)
    _short_division(name, dtype)("run", out, top.astype(kind), bottom.astype(kind), len(top))
    wrong = out != expected
    assert not wrong.any(), list(zip(top[wrong], bottom[wrong], out[wrong], expected[wrong], strict=True))[:5]
