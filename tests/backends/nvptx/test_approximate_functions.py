"""Short formulas for functions of one bf16: every argument there is, with powers and reciprocals as far off as may be.

What a GPU computes by its own tables stands here as the right number moved by some units of the last place.
`tests/device/test_rows.py` asks a GPU itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.approximate_functions import SHORT, TAIL
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.llvm import math_exp
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.ir.target.machine_code import compile_texts
from tests.backends.cpu.jit import Compiled, build, targets

BF16 = ml_dtypes.bfloat16
ALL = np.arange(1 << 16, dtype=np.uint16).view(BF16)
POWER, RECIPROCAL = "llvm.nvvm.ex2.approx.ftz.f", "llvm.nvvm.rcp.approx.ftz.f"


def gelu_tanh(x: Any) -> Any:
    return ts.ops.gelu(x, approximate="tanh")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sigmoid": ts.ops.sigmoid,
    "silu": ts.ops.silu,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": ts.ops.gelu,
}
UNDECIDED = {
    "sigmoid": {0.0078125, 0.2275390625, -0.00390625, -0.01171875},
    "silu": {0.0078125, 5.9375, -0.00390625},
    "gelu_tanh": set[float](),
    "gelu_erf": set[float](),
}
"""Arguments whose results are as close to the middle of two bf16 as that: a GPU decides them by its own tables."""


class _Stands(ModuleText):
    """A module in which functions of this CPU stand for those of a GPU."""

    def text(self) -> str:
        whole = super().text()
        for name, other in ((POWER, "power"), (RECIPROCAL, "reciprocal")):
            whole = whole.replace(f"declare float @{name}(float)\n", "").replace(f"@{name}(", f"@{other}(")
        return whole


def _flushed(f: FunctionText, x: Value) -> Value:
    is_small = f.fcmp("olt", f.intrinsic("fabs", x), f.const("float", 2.0**-126))
    return f.select(is_small, f.intrinsic("copysign", f.const("float", 0.0), x), x)


def _moved(f: FunctionText, found: Value, units: int, is_exact: Value) -> Value:
    """A number so many units away, unless it is 0 or no number, or must be right."""
    found = _flushed(f, found)
    size = f.intrinsic("fabs", found)
    is_number = f.op("and", f.fcmp("ogt", size, f.const("float", 0.0)), f.fcmp("olt", size, f.const("float", np.inf)))
    bits = f.bitcast(found, "i32")
    other = f.bitcast(f.op("add", bits, f.const("i32", units)), "float")
    return _flushed(f, f.select(is_exact, found, f.select(is_number, other, found)))


def _write_power(f: FunctionText, units: int) -> None:
    x = _flushed(f, f.arguments[0])
    right = f.cast("fptrunc", math_exp.exp2(f, f.cast("fpext", x, "double")), "float")
    # Of what is too little for the result to be anything but 1, it is 1.
    is_one = f.fcmp("olt", f.intrinsic("fabs", x), f.const("float", 2.0**-25))
    f.ret(_moved(f, right, units, is_one))


def _write_reciprocal(f: FunctionText, units: int) -> None:
    x = _flushed(f, f.arguments[0])
    mantissa = f.op("and", f.bitcast(x, "i32"), f.const("i32", (1 << 23) - 1))
    # A power of two has one that needs no table.
    f.ret(_moved(f, f.op("fdiv", f.const("float", 1.0), x), units, f.icmp("eq", mantissa, f.const("i32", 0))))


@cache
def compiled(power: int, reciprocal: int) -> Compiled:
    wide = targets()[0]
    module = _Stands(TargetText(1, wide.cpu, wide.features))
    _write_power(module.function("power", [("float", "x")], ret="float", internal=True), power)
    _write_reciprocal(module.function("reciprocal", [("float", "x")], ret="float", internal=True), reciprocal)
    for name, write in SHORT.items():
        f = module.function(name, [("ptr", "out"), ("ptr", "x"), ("i64", "n")])
        out, source, count = f.arguments

        def body(at: Value, f: FunctionText = f, out: Value = out, source: Value = source, write: Any = write) -> None:
            f.store(write(f, f.load(f.gep(source, at, "float"), "float")), f.gep(out, at, "float"))

        f.loop(0, count, 1, body)
        f.ret()
    return build(module)


@cache
def expected(name: str) -> np.ndarray[Any, Any]:
    return np.asarray(ts.jit(FUNCTIONS[name])(ALL))


def differing(name: str, power: int, reciprocal: int) -> set[float]:
    """The arguments at which a short formula does not round to the same bf16."""
    x = np.maximum(ALL.astype(np.float32), np.float32(-3.3895314e38))
    found = np.full(len(x), np.nan, np.float32)
    compiled(power, reciprocal)(name, found, x, len(x))
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = found.astype(BF16)
    same = rounded.view(np.uint16) == expected(name).view(np.uint16)
    same |= np.isnan(found) & np.isnan(expected(name).astype(np.float32))
    return set(ALL[~same].astype(np.float64).tolist())


@pytest.mark.parametrize("name", SHORT)
def test_of_every_bf16(name: str) -> None:
    assert not differing(name, 0, 0)


@pytest.mark.parametrize("name", SHORT)
def test_of_tables_that_are_off(name: str) -> None:
    found = [differing(name, power, reciprocal) for power in (-2, -1, 1, 2) for reciprocal in (-1, 0, 1)]
    assert set[float]().union(*found) <= UNDECIDED[name]


def test_the_tail_begins_with_a_half() -> None:
    total = np.float32(0.0)
    for one in TAIL:
        total = np.float32(total + np.float32(one))
    assert total == 0.5


def ptx_of(function: Any, dtype: Any, machine: str = "sm_90a") -> str:
    jitted: Any = ts.jit(function)
    tape = jitted.trace(np.zeros((64, 4096), dtype)).tape
    lowering = lower(tape, Options.of(backend="cuda", features=(machine,)))
    return "\n".join(ptx.decode() for ptx in compile_texts(lowering.texts, NvptxBackend(GPUS[machine]).code_target))


def plus_one(x: Any) -> Any:
    return ts.ops.silu(x + 1.0)


@pytest.mark.parametrize("function", [*FUNCTIONS.values(), plus_one])
def test_kernels_of_bf16_have_them(function: Any) -> None:
    assert "ex2.approx.ftz.f32" in ptx_of(function, BF16)


@pytest.mark.parametrize(("dtype", "machine"), [(np.float32, "sm_90a"), (np.float16, "sm_90a"), (BF16, "sm_80")])
def test_others_do_not(dtype: Any, machine: str) -> None:
    assert "ex2.approx" not in ptx_of(ts.ops.silu, dtype, machine)


def wide(x: Any) -> Any:
    return ts.ops.silu(x.cast(ts.f32))


def test_nor_where_more_of_the_result_is_seen() -> None:
    assert "ex2.approx" not in ptx_of(wide, BF16)
