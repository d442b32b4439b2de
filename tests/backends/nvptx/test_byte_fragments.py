"""Functions of four bytes in a word at once, for every byte there is and every number: compiled for this CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.backends.nvptx.hopper.byte_fragments import ByteRegisters
from tessera.backends.nvptx.hopper.fragments import FRAGMENT, Layout
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types.dtype import DType, f8e4m3, i8, u8
from tests.backends.cpu.jit import Compiled, build, targets

LAYOUT = Layout(FRAGMENT, 1, 8)
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "sub": np.subtract,
    "shr": np.right_shift,
}
NUMBERS = (0, 1, 3, 4, 7, 8, 15, 85, 127, -1, -8, -128)
BYTES = np.stack([np.roll(np.arange(256, dtype=np.uint8), 67 * at) for at in range(4)], 1)
"""Words in which every byte stands at every place, beside others."""


@cache
def compiled(dtype: DType) -> Compiled:
    wide = targets()[0]
    module = ModuleText(TargetText(1, wide.cpu, wide.features))
    for fn in FUNCTIONS:
        for given in NUMBERS:
            f = module.function(f"{fn}{given % 256}", [("ptr", "out"), ("ptr", "x"), ("i64", "n")])
            out, source, count = f.arguments

            def body(at: Value, f: FunctionText = f, out: Value = out, source: Value = source, one: Any = 0) -> None:
                held = ByteRegisters(LAYOUT, dtype, words=[f.load(f.gep(source, at, "i32"), "i32")])
                made = held.with_number(f, *one)
                assert made is not None
                f.store(made.words[0], f.gep(out, at, "i32"))

            if fn != "shr" or 0 <= given < 8:
                f.loop(0, count, 1, lambda at, one=(fn, given), body=body: body(at, one=one))
            f.ret()
    return build(module)


@pytest.mark.parametrize("dtype", [i8, u8], ids=str)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_four_bytes_are_what_each_would_be(fn: str, dtype: DType) -> None:
    kind = np.dtype(dtype.name.replace("i8", "int8").replace("u8", "uint8"))
    for given in NUMBERS:
        if fn == "shr" and not 0 <= given < 8:
            continue
        found = np.zeros_like(BYTES)
        compiled(dtype)(f"{fn}{given % 256}", found, BYTES.copy(), 256)
        with np.errstate(over="ignore"):
            wanted = FUNCTIONS[fn](BYTES.view(kind), np.array(given % 256, np.uint8).view(kind))
        assert found.tobytes() == wanted.astype(kind).tobytes(), given


def test_what_has_no_words_is_left_to_others() -> None:
    f = ModuleText(TargetText(1, targets()[0].cpu, targets()[0].features)).function("f", [("i32", "x")])
    words = [f.arguments[0]]
    assert ByteRegisters(LAYOUT, i8, words=words).with_number(f, "mul", 3) is None
    assert ByteRegisters(LAYOUT, i8, words=words).with_number(f, "shr", 9) is None
    assert ByteRegisters(LAYOUT, f8e4m3, words=words).with_number(f, "and", 3) is None


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_elements_are_found_in_their_order(order: tuple[int, int, int, int]) -> None:
    wide = targets()[0]
    module = ModuleText(TargetText(1, wide.cpu, wide.features))
    f = module.function("apart", [("ptr", "out"), ("ptr", "x")])
    out, source = f.arguments
    held = ByteRegisters(LAYOUT, i8, words=[f.load(f.gep(source, 0, "i32"), "i32")], order=order)
    for at, value in enumerate(held.floats(f)):
        f.store(value, f.gep(out, at, "i8"))
    f.ret()
    found = np.zeros(4, np.int8)
    build(module)("apart", found, np.array([10, -20, 30, -40], np.int8))
    assert found.tolist() == [[10, -20, 30, -40][byte] for byte in order]
