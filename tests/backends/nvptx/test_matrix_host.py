"""The host program of a dot with dynamic dims, run here with a driver that only writes down what it is asked for."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.host import STATE
from tessera.backends.nvptx.host_descriptors import MAP_DTYPES
from tessera.backends.nvptx.row_copies import BLOCK, NAME
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda.metrics import MOST_ELEMENTS, TOO_FAR, TensorMaps, too_far
from tessera.runtime.loader import link
from tessera.types.dtype import BY_NAME

_CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
MATRIX, PLAIN, COPY = 0xA0, 0xB0, 0xC0
"""Handles of kernels on tensor cores, of those on plain threads, and of the one that copies rows."""


@ts.jit
def dot(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def dot_of_known_sizes(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


@cache
def executable(m: int = 0, n: int = 0, k: int = 0) -> Any:
    """The program of symbolic sizes, of one block for all of them; of known ones where they are given."""
    is_known = m > 0
    arrays = [np.zeros((rows, k or 8), ml_dtypes.bfloat16) for rows in (m or 4, n or 4)]
    function = ts.jit(dot_of_known_sizes) if is_known else dot
    options = {} if is_known else {"overrides": {"contraction.block": (128, 256, 64)}}
    return compile_tape(function.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",), **options))


def numbers(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


class Asked:
    """The entry with a driver that writes down what it is asked for; a map's bytes begin with the buffer's address."""

    def __init__(self, watched: bool = False, known: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.made = executable(*known)
        self.launch: list[Any] = []
        self.encode: list[Any] = []
        self.copied: list[Any] = []
        self.given: list[int] = []
        self.ranges: list[str] = []
        self.maps = TensorMaps(self.made.metadata["maps"])
        self._own = {
            name: _CALL(getattr(self, f"_{name}")) for name in ("launch", "encode", *["push", "pop"] * watched)
        }
        words = [ctypes.cast(self._own[name], ctypes.c_void_p).value if name in self._own else 0 for name in STATE]
        words[STATE.index("maps")] = self.maps.address
        others = {NAME: COPY}
        handles = [
            MATRIX if name.endswith("__matrix") else others.get(name, PLAIN) for name in self.made.metadata["called"]
        ]
        self._state = (ctypes.c_void_p * (len(words) + len(handles)))(*words, *handles)
        self._code = link([self.made.objects[0]], {})

    def _launch(self, *args: int) -> int:
        if args[0] == COPY:
            words = [numbers(pointer, 1)[0] for pointer in numbers(args[9], 6)]
            assert args[1] & 0xFFFFFFFF == -(-words[3] * words[4] // BLOCK)
            self.copied.append(tuple(words[:5]))
            return 0
        self.launch.append((args[0], args[1] & 0xFFFFFFFF))
        if args[0] == MATRIX:
            first = numbers(args[9], 1)[0]
            self.given.append(numbers(first, 1)[0])
        self.ranges.append("launch")
        return 0

    def _encode(self, *args: int) -> int:
        self.encode.append((args[3], numbers(args[4], 2), numbers(args[5], 1)[0]))
        (ctypes.c_uint64 * 16).from_address(args[0])[:] = [args[3]] * 16
        return 0

    def _push(self, *args: int) -> int:
        self.ranges.append((ctypes.c_char_p(args[0]).value or b"").decode())
        return 0

    def _pop(self, *_: int) -> int:
        self.ranges.append("end")
        return 0

    def run(self, m: int, n: int, k: int, x: int = 0x10000, code: int = 0) -> Asked:
        """A dot of this size, whose A operand is at `x`; `code` is what the entry gives."""
        sizes = {"M": m, "N": n, "K": k}
        values = (ctypes.c_int64 * len(self.made.symbols))(*[sizes[name] for name in self.made.symbols])
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)(self._code.address("tessera_entry"))
        pointers, results = (ctypes.c_void_p * 2)(x, 0x20000), (ctypes.c_void_p * 1)(0x30000)
        assert entry(pointers, results, values, 0x40000, self._state) == code
        return self


def run(m: int, n: int, k: int) -> Asked:
    """What the entry asks of the driver for a dot of this size."""
    return Asked().run(m, n, k)


def test_rows_of_whole_16_bytes_are_read_where_they_lie() -> None:
    asked = run(300, 520, 200)
    assert asked.copied == []
    assert asked.encode == [(0x10000, [200, 300], 400), (0x20000, [200, 520], 400), (0x30000, [520, 300], 1040)]
    assert asked.launch == [(MATRIX, 9)]


def test_descriptors_of_known_sizes_are_those_of_symbolic_ones() -> None:
    """Sizes that are known are constants of the program, in tables; the others are put into memory by each call."""
    m, n, k = 300, 520, 200
    asked, symbolic = Asked(known=(m, n, k)), run(m, n, k)
    asked.run(m, n, k).run(m, n, k).run(m, n, k, x=0x50000)
    assert asked.encode[:3] == symbolic.encode
    assert [address for address, *_ in asked.encode[3:]] == [0x50000]
    assert (asked.maps.created, asked.maps.reused) == (4, 5)
    assert asked.given == [0x10000, 0x10000, 0x50000]


@pytest.mark.parametrize(("m", "n", "k"), [(77, 100, 33), (129, 257, 75), (33, 41, 301)])
def test_other_rows_are_copied_first_in_parallel(m: int, n: int, k: int) -> None:
    """Both operands go to rows of the next 32 bytes, long ones of the next 128, for which there is memory either way.

    The result has no map, and is stored by threads. They are behind what the program itself has of the workspace: sums
    in f32 of the one segment that K is.
    """
    asked = run(m, n, k)
    width, unit = 2 * k, 128 if 2 * k >= 256 else 32
    wide, most = (-(-width // each) * each for each in (unit, 128))
    first = 0x40000 + -(-4 * m * n // 256) * 256
    second = first + -(-m * most // 256) * 256
    assert asked.copied == [(0x10000, first, width, wide, m), (0x20000, second, width, wide, n)]
    assert asked.encode == [(first, [k, m], wide), (second, [k, n], wide)]
    assert [handle for handle, _ in asked.launch] == [MATRIX]


def test_nothing_to_sum_is_no_work_for_matrix_units() -> None:
    asked = run(5, 7, 0)
    assert asked.encode == asked.copied == []
    assert [handle for handle, _ in asked.launch] == [PLAIN]


def test_an_empty_result_is_no_launch() -> None:
    assert run(0, 7, 8).launch == []


def test_a_tensor_map_is_made_once_for_what_it_is_made_of() -> None:
    asked = Asked()
    for _ in range(3):
        asked.run(300, 520, 200)
    assert len(asked.encode) == asked.maps.created == 3
    assert asked.maps.reused == 6
    asked.run(300, 520, 200, x=0x50000).run(300, 520, 208).run(300, 520, 200)
    # Another A operand; then another row of both operands, and of none of them twice.
    assert asked.maps.created == len(asked.encode) == 3 + 1 + 2
    assert asked.given == [0x10000] * 3 + [0x50000] + [0x10000] * 2


def test_as_many_descriptors_are_kept_as_fit() -> None:
    asked, places = Asked(), [0x10000 * number for number in range(1, 41)]
    for x in places + places[-10:]:
        asked.run(300, 520, 200, x=x)
    assert asked.maps.created == 40 + 2
    assert asked.given == places + places[-10:]


def test_threads_share_maps_and_never_see_half_of_one() -> None:
    asked = Asked()

    def runs(number: int) -> None:
        for turn in range(60):
            asked.run(300, 520, 200, x=0x10000 * (1 + (turn * 7 + number) % 24))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(runs, range(4)))
    wanted = sorted(0x10000 * (1 + (turn * 7 + number) % 24) for turn in range(60) for number in range(4))
    assert sorted(asked.given) == wanted
    assert asked.maps.created + asked.maps.reused == 3 * 240


def test_launches_are_ranges_of_a_profiler_that_looks_on() -> None:
    asked = Asked(watched=True).run(300, 520, 200)
    name = next(name for name in asked.made.metadata["called"] if name.endswith("__matrix"))
    assert asked.ranges == [name, "launch", "end"]
    assert run(300, 520, 200).ranges == ["launch"]


def test_a_dtype_that_tensor_maps_do_not_have_is_not_taken_for_bytes() -> None:
    assert {dtype.name for dtype in BY_NAME.values()} <= set(MAP_DTYPES)
    assert MAP_DTYPES["bf16"] != MAP_DTYPES["u8"]


@pytest.mark.parametrize("place", range(3))
def test_a_dim_beyond_the_places_of_the_copy_engine_is_no_launch(place: int) -> None:
    """Of a product of all of K, and of one of its segments, which another kernel joins."""
    sizes = [8, 8, 8]
    sizes[place] = MOST_ELEMENTS
    asked, wanted = Asked(), [MATRIX, PLAIN] if place == 2 else [MATRIX]
    whole, segments = (at for at, name in enumerate(asked.made.metadata["called"]) if name.endswith("__matrix"))
    at = segments if place == 2 else whole
    assert [handle for handle, _ in asked.run(*sizes).launch] == wanted
    sizes[place] += 1
    assert [handle for handle, _ in asked.run(*sizes, code=TOO_FAR | (at + 1) << 32).launch] == wanted
    with pytest.raises(DeviceError, match="has a dim of more than 2147483647 elements"):
        raise too_far("dot")
