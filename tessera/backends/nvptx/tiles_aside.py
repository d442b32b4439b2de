"""Tiles that lie aside in local memory while a dot multiplies what it has nothing to do with.

A streamed dot reads one element of its A operand for every few multiply-adds, and waits for shared memory unless it
reads ahead, which takes registers. Where the accumulators of another dot are live beside its own, and an A operand that
waits for the next iteration, none are left, and the assembler reads each element right before it is used. Local memory
holds such tiles for as long as the dot takes: a store and a load of each for thousands of multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Tile
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.typed_ops import DotOp, LoopOp
from tessera.types.dtype import f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

LEAST = 16
"""Registers of a tile from which on it is worth setting aside."""
_TOGETHER, _WORD = 4, 4
"""Elements that one access moves, and bytes of each."""


def set_inputs_aside(emitter: Emitter, loop: LoopOp) -> None:
    """Tiles that iterations of a loop only multiply, as A operands of streamed dots: each reads them anew."""
    for value, tile in emitter.tiles.items():
        inside = [use.operation for use in value.uses if loop.is_ancestor(use.operation)]
        is_read = all(isinstance(op, DotOp) and op in emitter.streamed and op.lhs is value for op in inside)
        if inside and is_read and _is_large(tile):
            tile.aside = store_aside(emitter, emitter.registers(tile))


def set_others_aside(emitter: Emitter, dot: DotOp) -> Callable[[], None]:
    """Tiles that ops behind a dot read and that were made before it; what is given reads them again."""
    behind: set[Operation] = set()
    at = dot.next_op
    while at is not None:
        behind.add(at)
        at = at.next_op
    moved: list[tuple[Tile, Value]] = []
    for value, tile in emitter.tiles.items():
        is_used = value not in dot.operands and any(use.operation in behind for use in value.uses)
        if is_used and _is_large(tile):
            moved.append((tile, store_aside(emitter, tile.registers)))

    def read_again() -> None:
        for tile, area in moved:
            tile.registers = load_aside(emitter, area, len(tile.registers))

    return read_again


def _is_large(tile: Tile) -> bool:
    """Whether a tile has many registers, in whole words, and nothing else stands for it."""
    is_plain = tile.aside is None and tile.transposed is None and tile.narrow is None and not tile.packed
    return is_plain and tile.dtype is f32 and len(tile.registers) >= LEAST and len(tile.registers) % _TOGETHER == 0


def store_aside(emitter: Emitter, registers: Sequence[Value]) -> Value:
    """Put what a thread holds into local memory; where it is."""
    f = emitter.f
    area = f.alloca("float", len(registers), align=_WORD * _TOGETHER)
    for at in range(0, len(registers), _TOGETHER):
        whole = values.pack(f, list(registers[at : at + _TOGETHER]))
        place = f.gep(area, _WORD * at, "i8")
        # Volatile: LLVM would keep in registers what it sees stored and loaded.
        f.line(f"store volatile {whole}, ptr {place.text}, align {_WORD * _TOGETHER}")
    return area


def load_aside(emitter: Emitter, area: Value, count: int) -> list[Value]:
    """So many elements that were put aside."""
    f, type_ = emitter.f, f"<{_TOGETHER} x float>"
    found: list[Value] = []
    for at in range(0, count, _TOGETHER):
        place = f.gep(area, _WORD * at, "i8")
        whole = f.raw(type_, f"load volatile {type_}, ptr {place.text}, align {_WORD * _TOGETHER}")
        found += [f.extract(whole, lane) for lane in range(_TOGETHER)]
    return found
