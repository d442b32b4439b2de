"""The host program of a product with free sizes, run here with a driver that only writes down what it is asked for."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.host import STATE
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.runtime.loader import link

_CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
MATRIX, PLAIN = 0xA0, 0xB0
"""Handles of the two kernels."""


@ts.jit
def product(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


@cache
def executable() -> Any:
    arrays = [np.zeros((4, 8), ml_dtypes.bfloat16)] * 2
    return compile_tape(product.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))


def numbers(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def run(m: int, n: int, k: int) -> dict[str, list[Any]]:
    """What the entry asks of the driver for a product of this size."""
    made = executable()
    asked: dict[str, list[Any]] = {"launch": [], "encode": [], "pitch": []}

    def launch(*args: int) -> int:
        asked["launch"].append((args[0], args[1] & 0xFFFFFFFF))
        return 0

    def encode(*args: int) -> int:
        asked["encode"].append((args[3], numbers(args[4], 2), numbers(args[5], 1)[0]))
        return 0

    def pitch(*args: int) -> int:
        words = numbers(args[0], 16)
        asked["pitch"].append((words[4], words[6], words[11], words[13], words[14], words[15]))
        return 0

    own = {"launch": _CALL(launch), "encode": _CALL(encode), "pitch": _CALL(pitch)}
    words = [ctypes.cast(own[name], ctypes.c_void_p).value if name in own else 0 for name in STATE]
    handles = [MATRIX if name.endswith("__matrix") else PLAIN for name in made.metadata["called"]]
    state = (ctypes.c_void_p * (len(words) + len(handles)))(*words, *handles)
    sizes = {"M": m, "N": n, "K": k}
    values = (ctypes.c_int64 * 3)(*[sizes[name] for name in made.symbols])
    code = link([made.objects[0]], {})
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)(code.address("tessera_entry"))
    pointers, results = (ctypes.c_void_p * 2)(0x10000, 0x20000), (ctypes.c_void_p * 1)(0x30000)
    assert entry(pointers, results, values, 0x40000, state) == 0
    return asked


def test_rows_of_whole_16_bytes_are_read_where_they_lie() -> None:
    asked = run(300, 520, 200)
    assert asked["pitch"] == []
    assert asked["encode"] == [(0x10000, [200, 300], 400), (0x20000, [200, 520], 400), (0x30000, [520, 300], 1040)]
    assert asked["launch"] == [(MATRIX, 9)]


@pytest.mark.parametrize(("m", "n", "k"), [(77, 100, 33), (129, 257, 75)])
def test_other_rows_are_copied_first_and_side_by_side(m: int, n: int, k: int) -> None:
    """Both sides go to rows of the next 16 bytes; the result has no map, and is stored element by element."""
    asked = run(m, n, k)
    width, wide = 2 * k, -(-2 * k // 16) * 16
    second = 0x40000 + -(-m * wide // 256) * 256
    assert asked["pitch"] == [(0x10000, width, 0x40000, wide, width, m), (0x20000, width, second, wide, width, n)]
    assert asked["encode"] == [(0x40000, [k, m], wide), (second, [k, n], wide)]
    assert [handle for handle, _ in asked["launch"]] == [MATRIX]


def test_nothing_to_sum_is_no_work_for_matrix_units() -> None:
    asked = run(5, 7, 0)
    assert asked["encode"] == asked["pitch"] == []
    assert [handle for handle, _ in asked["launch"]] == [PLAIN]


def test_an_empty_result_is_no_launch() -> None:
    assert run(0, 7, 8)["launch"] == []
