"""Square transposes of vectors in registers."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm.text import FunctionText, Value
from tessera.ir.target.llvm.types import bytes_of


def transpose(f: FunctionText, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as each has lanes (a power of two), transposed.

    First within 128-bit lanes, by interleaving; then the 128-bit blocks themselves. Every step is one shuffle.
    """
    lanes = rows[0].lanes
    assert len(rows) == lanes
    per = min(lanes, 16 // bytes_of(rows[0].element))
    groups = lanes // per
    inner = [_within_blocks(f, rows[g * per : (g + 1) * per], per) for g in range(groups)]
    columns: list[Value | None] = [None] * lanes
    for j in range(per):
        for block, value in enumerate(_across_blocks(f, [inner[g][j] for g in range(groups)], per)):
            columns[block * per + j] = value
    return [column for column in columns if column is not None]


def can_transpose(lanes: int, size: int) -> bool:
    """Whether vectors of so many lanes, elements of so many bytes, can be transposed."""
    return lanes > 1 and lanes & (lanes - 1) == 0 and lanes * size <= 64


def _within_blocks(f: FunctionText, rows: Sequence[Value], per: int) -> list[Value]:
    """Transpose each `per` by `per` block of `per` rows: result `j` holds column `j` of every block.

    Halves of the rows are interleaved among themselves, then with each other, in runs that grow.
    """
    count = len(rows)
    if count == 1:
        return list(rows)
    first, second = (_within_blocks(f, half, per) for half in (rows[: count // 2], rows[count // 2 :]))
    pairs = zip(first, second, strict=True)
    return [_interleave(f, a, b, per, high, count // 2) for a, b in pairs for high in (0, 1)]


def _interleave(f: FunctionText, a: Value, b: Value, per: int, high: int, run: int) -> Value:
    """The low or high half of each block of `a` and `b`, taking turns in runs of elements."""
    lanes, mask = a.lanes, list[int]()
    for block in range(0, lanes, per):
        start = block + high * per // 2
        for position in range(0, per // 2, run):
            mask += [start + position + step for step in range(run)]
            mask += [lanes + start + position + step for step in range(run)]
    return f.shuffle(a, b, mask)


def _across_blocks(f: FunctionText, vectors: Sequence[Value], per: int) -> list[Value]:
    """Transpose the blocks of as many vectors as each has blocks: 1, 2 or 4."""
    if len(vectors) == 1:
        return list(vectors)
    if len(vectors) == 2:
        return [_blocks(f, vectors[0], vectors[1], per, (block, 2 + block)) for block in (0, 1)]
    assert len(vectors) == 4
    first = [[_blocks(f, vectors[a], vectors[a + 1], per, (s, s + 2, s + 4, s + 6)) for s in (0, 1)] for a in (0, 2)]
    return [
        _blocks(f, first[0][block % 2], first[1][block % 2], per, (s, s + 2, s + 4, s + 6))
        for block in range(4)
        for s in (block // 2,)
    ]


def _blocks(f: FunctionText, a: Value, b: Value, per: int, picks: Sequence[int]) -> Value:
    """Whole blocks picked from `a` then `b`."""
    return f.shuffle(a, b, [pick * per + step for pick in picks for step in range(per)])
