"""Tile registers of AMX in NumPy: kernels that use them run here on any CPU with AVX-512, instruction by instruction.

The text of a kernel calls LLVM's intrinsics; here it calls these functions instead, which hold the tiles of the one
thread that runs, and refuse what a CPU would fault on: tiles without a configuration, tiles beyond it, and tiles that
are left configured at the end.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.op import SpecOp
from tessera.ir.target.architectures import architectures, host_features, machine_of
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.loader import link
from tests.backends.cpu.native import Native

Array = np.ndarray[Any, Any]
X86 = architectures()["x86_64"]
AMX = next(level for level in X86.levels if level.name == "x86-64-v4-amx").machine
"""A machine with tiles."""
PLAIN_LEVEL = next(level for level in X86.levels if level.name == "x86-64-v4")
CAN_EMULATE = set(PLAIN_LEVEL.features) <= host_features()
"""Whether all but the tiles runs here."""
HAS_TILES = set(AMX.features) <= host_features()
_NEVER_STOPPED = "define i1 @tessera_is_stopped() {\n  ret i1 false\n}\n"


def _flush(words: Array) -> Array:
    """Floats whose denormals are zeros, as the instructions take and give them."""
    return np.where(np.abs(words) < np.float32(2.0**-126), np.float32(0) * words, words)


def add_tile(acc: Array, a: Array, b: Array) -> Array:
    """TDPBF16PS (Intel SDM vol. 2): even and odd k are summed apart, from zero; both, then the accumulator, are added.

    Every step is an FMA of f32, rounded to nearest even, whose denormal operands and results are zeros.
    """
    sums = [np.zeros(acc.shape, np.float32) for _ in range(2)]
    for k in range(a.shape[1]):
        exact = a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64) + sums[k % 2]
        sums[k % 2] = _flush(exact.astype(np.float32))
    return _flush(acc + _flush(sums[0] + sums[1]))


def tile_sums(a: Array, b: Array) -> Array:
    """A matmul of bf16, given as f32, on tiles: 32 along K at a time, the last padded with zeros."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for at in range(0, a.shape[1], 32):
        acc = add_tile(acc, _flush(a[:, at : at + 32]), _flush(b[at : at + 32]))
    return acc


class Tiles:
    """Eight tiles, and what intrinsics do to them."""

    def __init__(self) -> None:
        self.config: tuple[list[int], list[int]] | None = None
        self.data = np.zeros((8, 16, 64), np.uint8)
        self.counts: dict[str, int] = {}
        self.errors: list[str] = []

    def _size(self, tile: int) -> tuple[int, int]:
        assert self.config is not None, "tiles are not configured"
        rows, widths = self.config[0][tile], self.config[1][tile]
        assert rows * widths, f"tile {tile} is not configured"
        return rows, widths

    def ldtilecfg(self, address: int) -> None:
        raw = ctypes.string_at(address, 64)
        assert raw[:16] == bytes([1, *[0] * 15]), "palette 1, from its first row"
        widths = np.frombuffer(raw[16:48], np.uint16)
        assert max(widths[:8]) <= 64
        assert max(raw[48:56]) <= 16
        assert not any([*widths[8:], *raw[56:]]), "there are eight tiles"
        self.config = (list(raw[48:56]), [int(width) for width in widths[:8]])
        self.data[:] = 0

    def tilerelease(self) -> None:
        self.config = None

    def tilezero(self, tile: int) -> None:
        self._size(tile)
        self.data[tile] = 0

    def tileloadd64(self, tile: int, address: int, stride: int) -> None:
        rows, width = self._size(tile)
        for row in range(rows):
            self.data[tile, row, :width] = np.frombuffer(ctypes.string_at(address + row * stride, width), np.uint8)

    def tilestored64(self, tile: int, address: int, stride: int) -> None:
        rows, width = self._size(tile)
        for row in range(rows):
            ctypes.memmove(address + row * stride, self.data[tile, row].tobytes(), width)

    def multiply(self, lhs: type, rhs: type) -> Callable[[int, int, int], None]:
        def run(out: int, left: int, right: int) -> None:
            assert all(self._size(tile) == (16, 64) for tile in (out, left, right))
            a = self.data[left].view(lhs).astype(np.int32)
            b = self.data[right].view(rhs).reshape(16, 16, 4).transpose(0, 2, 1).reshape(64, 16).astype(np.int32)
            acc = self.data[out].view(np.int32)
            acc += a @ b

        return run

    def tdpbf16ps(self, out: int, left: int, right: int) -> None:
        """Products of bf16, by `add_tile`."""

        def floats(tile: int) -> Array:
            pairs = self.data[tile].view(np.uint16).reshape(16, 16, 2)
            return _flush((pairs.astype(np.uint32) << 16).view(np.float32))

        a, b = floats(left), floats(right)
        acc = self.data[out].view(np.float32)
        acc[:] = add_tile(acc, a.reshape(16, 32), b.transpose(0, 2, 1).reshape(32, 16))

    def table(self) -> dict[str, Any]:
        """Functions for ctypes, by the name of the intrinsic."""
        number, address = ctypes.c_int8, ctypes.c_int64
        three = (number, number, number)
        signs = {"s": np.int8, "u": np.uint8}
        functions: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "ldtilecfg": (self.ldtilecfg, (address,)),
            "tilerelease": (self.tilerelease, ()),
            "tilezero": (self.tilezero, (number,)),
            "tileloadd64": (self.tileloadd64, (number, address, address)),
            "tilestored64": (self.tilestored64, (number, address, address)),
            "tdpbf16ps": (self.tdpbf16ps, three),
            **{f"tdpb{a}{b}d": (self.multiply(signs[a], signs[b]), three) for a in signs for b in signs},
        }
        return {
            name: ctypes.CFUNCTYPE(None, *types)(self._counted(name, run)) for name, (run, types) in functions.items()
        }

    def _counted(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        def call(*args: int) -> None:
            self.counts[name] = self.counts.get(name, 0) + 1
            try:
                run(*args)
            except Exception as error:  # nothing passes through native code
                self.errors.append(f"{name}{args}: {error}")

        return call


def without_tiles(text: str) -> str:
    """The text of a kernel with calls instead of instructions, for a machine without tiles."""
    text = re.sub(r"@llvm\.x86\.(t|ld)(\w+)", r"@emulated_\1\2", text)
    return re.sub(r",?\+amx-\w+", "", text)


def build_emulated(kernel: SpecOp, unit: str = "automatic") -> tuple[Native, Tiles, Any]:
    """A kernel lowered for AMX, its code for this CPU, the tiles it works on, and what must stay alive meanwhile."""
    backend = CpuBackend(AMX, unit=unit)
    target = backend.lower(kernel)
    (text,), shared = backend.parts([target])
    plain = CpuBackend(machine_of(frozenset(PLAIN_LEVEL.features), X86))
    texts = [without_tiles(one) for one in (text, *shared.values())]
    tiles = Tiles()
    functions = tiles.table()
    addresses = {f"emulated_{name}": ctypes.cast(run, ctypes.c_void_p).value or 0 for name, run in functions.items()}
    code = link(compile_texts([*texts, _NEVER_STOPPED], plain.code_target), addresses)
    return Native(kernel, target, code), tiles, functions
