"""A thread's share of tiles: the closed set of register layouts, where elements lie in them, and packed pairs.

Of a fragment with `N` columns a thread of a warpgroup has `N / 2` elements for every 64 rows: element `i` is in row
`16 * warp + lane / 4 + 8 * (i / 2 % 2)` and column `8 * (i / 4) + 2 * (lane % 4) + i % 2` (PTX ISA, `wgmma` D layout).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.backends.nvptx.hopper.assembly import pure
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

FRAGMENT, ROWS, COLUMNS = "fragment", "rows", "columns"


@frozen
class Layout:
    """How a tile lies over a warpgroup: `blocks` of 64 rows, and columns; vectors have those of their fragment.

    A warp has 16 rows of a block, and those of the next block `step` rows further on.
    """

    kind: str
    blocks: int
    columns: int
    step: int = 64

    def with_columns(self, columns: int) -> Layout:
        """The same rows, and other columns."""
        return Layout(self.kind, self.blocks, columns, self.step)

    @property
    def count(self) -> int:
        """Elements of a thread."""
        if self.kind == FRAGMENT:
            return self.blocks * self.columns // 2
        return 2 * self.blocks if self.kind == ROWS else self.columns // 4

    def row(self, place: int) -> int:
        """The number of an element's row among those of the thread."""
        per_block = self.columns // 2
        return place if self.kind == ROWS else 2 * (place // per_block) + place % per_block // 2 % 2

    def column(self, place: int) -> int:
        """The number of an element's column among those of the thread."""
        inside = place % (self.columns // 2)
        return place if self.kind == COLUMNS else 2 * (inside // 4) + inside % 2


def first_row(number: int, step: int = 64) -> int:
    """The static part of a row of the thread, by its number; lanes and warps add theirs."""
    return step * (number // 2) + 8 * (number % 2)


def first_column(number: int) -> int:
    """The static part of a column of the thread, by its number; lanes add theirs."""
    return 8 * (number // 2) + number % 2


_PAIRS = {dt.bf16: "bf16x2", dt.f16: "f16x2"}


@dataclass
class Registers:
    """A tile's elements of one thread, in their compute type; those of 2-byte floats may be packed in pairs only."""

    layout: Layout
    dtype: DType
    values: list[Value] | None = None
    pairs: list[Value] | None = field(default=None)

    def floats(self, f: FunctionText) -> list[Value]:
        """One value for each element."""
        if self.values is not None:
            return self.values
        # Not kept: what is made inside a branch or a loop is not there after it.
        assert self.pairs is not None
        return [half for pair in self.pairs for half in _unpacked(f, pair, self.dtype)]

    def packed(self, f: FunctionText) -> list[Value]:
        """An i32 for every two neighbours of a row, of a 2-byte float."""
        if self.pairs is not None:
            return self.pairs
        assert self.values is not None
        return packed(f, self.values, self.dtype)

    def flat(self) -> list[Value]:
        """What a loop carries."""
        found = self.values if self.pairs is None else self.pairs
        assert found is not None
        return found

    def like(self, flat: Sequence[Value]) -> Registers:
        """The same tile of other values, as `flat` gave them."""
        if self.pairs is None:
            return Registers(self.layout, self.dtype, list(flat))
        return Registers(self.layout, self.dtype, None, list(flat))


def is_paired(dtype: DType) -> bool:
    """Whether elements are packed two to a register."""
    return dtype in _PAIRS


def packed(f: FunctionText, values: Sequence[Value], dtype: DType) -> list[Value]:
    """f32 values rounded to a 2-byte float, two to a register."""
    name = _PAIRS[dtype]
    return [
        pure(f, f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f", [values[at + 1], values[at]], "i32")
        for at in range(0, len(values), 2)
    ]


def _unpacked(f: FunctionText, pair: Value, dtype: DType) -> list[Value]:
    if dtype is dt.bf16:
        low = f.raw("i32", f"shl {pair}, 16")
        high = f.raw("i32", f"and {pair}, -65536")
        return [f.bitcast(half, "float") for half in (low, high)]
    low = f.raw("i16", f"trunc {pair} to i16")
    upper = f.raw("i32", f"lshr {pair}, 16")
    high = f.raw("i16", f"trunc {upper} to i16")
    return [convert.widen(f, f.bitcast(half, "half"), dtype) for half in (low, high)]
