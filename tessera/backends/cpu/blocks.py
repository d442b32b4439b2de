"""Blocks of vectors while they are written: lanes of the last axis in registers, made when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.ir.target.llvm.convert import compute_type, storage_type
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.types import vector
from tessera.types.dtype import DType


def register_type(dtype: DType) -> str:
    """The LLVM type of one element of a block: narrow floats stay as stored until they are converted."""
    return storage_type(dtype) if dtype.is_float and dtype.compute is not dtype else compute_type(dtype)


class Layout:
    """How a block lies in registers: `rows` (all axes but the last), each of `chunks` vectors of `lanes`."""

    def __init__(self, sizes: Sequence[int], register: int) -> None:
        self.sizes = tuple(sizes)
        last = self.sizes[-1] if self.sizes else 1
        self.lanes = min(register, last)
        if last % self.lanes:
            self.lanes = 1
        self.chunks = last // self.lanes
        self.rows = 1
        for size in self.sizes[:-1]:
            self.rows *= size

    @property
    def count(self) -> int:
        return self.rows * self.chunks

    def place(self, number: int) -> tuple[tuple[int, ...], int]:
        """The indices along the outer axes, and the first element along the last, of a vector."""
        row, chunk = divmod(number, self.chunks)
        outer: list[int] = []
        for size in reversed(self.sizes[:-1]):
            row, index = divmod(row, size)
            outer.append(index)
        return tuple(reversed(outer)), chunk * self.lanes

    def number(self, outer: Sequence[int], chunk: int) -> int:
        row = 0
        for size, index in zip(self.sizes[:-1], outer, strict=True):
            row = row * size + index
        return row * self.chunks + chunk


class Vectors:
    """The vectors of a block, each written at its first use, so that one chain of work after another is emitted."""

    def __init__(self, layout: Layout, dtype: DType, make: Callable[[int], Value]) -> None:
        self.layout, self.dtype = layout, dtype
        self._make = make
        self._made: dict[int, Value] = {}

    @staticmethod
    def of(layout: Layout, dtype: DType, values: Sequence[Value]) -> Vectors:
        return Vectors(layout, dtype, list(values).__getitem__)

    def __getitem__(self, number: int) -> Value:
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def all(self) -> list[Value]:
        return [self[number] for number in range(self.layout.count)]

    @property
    def type(self) -> str:
        return vector(register_type(self.dtype), self.layout.lanes)
