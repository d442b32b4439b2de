"""Operands read through windows, such as the patches of a convolution: where their elements lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.text import FunctionText, Value
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


class Windows(Protocol):
    """Where elements are: `base[place[0]]`, zero unless `0 <= place[j] < extents[j - 1]` for all j.

    A place is `start + row + column`, all numbers i64. One object stands for one operand: functions written for it are
    shared by its identity.
    """

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value: ...

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]: ...

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]: ...

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]: ...

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]: ...


@frozen
class Turned:
    """The same with rows for columns."""

    of: Windows

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value:
        return self.of.base(f, frame)

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return self.of.start(f, frame)

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]:
        return self.of.column(f, row, frame)

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]:
        return self.of.row(f, column, frame)

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return self.of.extents(f, frame)


@frozen
class WindowElement:
    """One element of windows, for packers that go element by element."""

    windows: Windows
    dtype: DType

    def __call__(self, f: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
        of_row, of_column = self.windows.row(f, row, frame), self.windows.column(f, column, frame)
        parts = zip(self.windows.start(f, frame), of_row, of_column, strict=True)
        offset, *places = [f.add(f.add(start, a), b) for start, a, b in parts]
        inside = f.const("i1", True)
        for place, extent in zip(places, self.windows.extents(f, frame), strict=True):
            inside = f.op("and", inside, f.icmp("ult", place, extent))

        def read() -> Value:
            pointer = f.gep(self.windows.base(f, frame), offset, convert.storage_type(self.dtype))
            return convert.load(f, pointer, self.dtype, 1)

        (value,) = f.if_(inside, read, lambda: f.const(convert.compute_type(self.dtype), 0))
        return value
