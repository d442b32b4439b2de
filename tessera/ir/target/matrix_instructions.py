"""Instructions of matrix units: how many rows, columns and elements of k one of them takes."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.types.frozen import frozen

_DEPTHS = (8, 16, 32)
"""Elements of k in the 32 bytes that every instruction takes."""


@frozen
class Instruction:
    """One instruction: its rows, and the columns it may have."""

    rows: int
    columns: range

    def problem(self, name: str, given: Sequence[int], sizes: Sequence[int]) -> str:
        """What is wrong with rows, columns and depth as given for a product of M x N x K; empty where nothing is."""
        if len(given) != 3:
            return f"`instruction` is rows, columns and depth, got {list(given)}"
        rows, columns, depth = given
        if rows != self.rows or columns not in self.columns or depth not in _DEPTHS:
            last = self.columns[-1]
            wide = f"{last}" if len(self.columns) == 1 else f"{self.columns[0]} to {last} in {self.columns.step}s"
            taken = f"{self.rows} rows, {wide} columns and {', '.join(map(str, _DEPTHS))} of k"
            return f"one `{name}` takes {taken}, got {rows} x {columns} x {depth}"
        if any(size % part for size, part in zip(sizes, given, strict=True)):
            return f"{' x '.join(map(str, sizes))} is not made of instructions of {rows} x {columns} x {depth}"
        return ""


INSTRUCTIONS = {
    "wgmma": Instruction(64, range(8, 257, 8)),
    "mma.sync": Instruction(16, range(8, 9)),
    "tcgen05": Instruction(128, range(16, 257, 16)),
}
"""By name (PTX ISA 8.7: shapes of `wgmma.mma_async`, `mma.sync` and `tcgen05.mma`)."""
PLAIN = "multiply-adds"
"""What runs products where no matrix units take them."""
