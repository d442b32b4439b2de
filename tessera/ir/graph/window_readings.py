"""How contractions read their operands, behind views: for each dim, how far it goes with each coordinate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.ir.base.build import tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.typed_ops import FlipOp, SliceOp, TransposeOp
from tessera.ir.tile.facets import Contraction
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO, Shape


@frozen
class Reading:
    """How an operand is read: for each of its dims, how far it goes with each coordinate, and from where.

    `is_padded` says that some are outside, where zeros are. Coordinates of one element go nowhere.
    """

    shape: Shape
    steps: tuple[Mapping[str, int], ...]
    starts: Shape
    is_padded: bool

    @property
    def names(self) -> list[str]:
        """The coordinates that it depends on, in the order of memory."""
        return [name for row in self.steps for name in row]

    @property
    def is_plain(self) -> bool:
        """Whether each dim goes with one coordinate, or has one element, from its first element to its last."""
        is_single = all(len(row) == 1 or size.value == 1 for row, size in zip(self.steps, self.shape, strict=True))
        return is_single and not self.is_padded and all(step == 1 for row in self.steps for step in row.values())

    def at(self, fixed: Mapping[str, int]) -> Reading:
        """The reading at one element of some coordinates."""
        steps = tuple({name: step for name, step in row.items() if name not in fixed} for row in self.steps)
        moved = [sum(step * fixed.get(name, 0) for name, step in row.items()) for row in self.steps]
        starts = tuple(start + more for start, more in zip(self.starts, moved, strict=True))
        return Reading(self.shape, steps, starts, self.is_padded)


@frozen
class WindowedContraction:
    """A contraction that reads an operand through windows: its coordinates with their sizes, and both readings.

    `operands` are what its operands are views of where those are transposed or flipped: they need not be written in
    another order first.
    """

    operands: tuple[Any, Any]
    sizes: Mapping[str, Dim]
    readings: tuple[Reading, Reading]

    def names(self, letters: str) -> list[str]:
        """The coordinates of some groups, in order."""
        return [name for letter in letters for name in self.sizes if name[0] == letter]

    def shape(self, names: Sequence[str]) -> Shape:
        return tuple(self.sizes[name] for name in names)


def find_windows(op: SpecOp) -> WindowedContraction | None:
    """What a contraction reads, where one of its operands is read through windows."""
    lower, types = op.spec.lower, [tensor_value(value) for value in op.operands]
    assert isinstance(lower, Contraction)
    values = op.values()
    if values.get("partial"):
        return None
    maps = lower.maps(types, {**values, "segment": None})
    groups = {"b": maps.batch, "m": maps.m, "n": maps.n, "k": maps.k}
    sizes = {f"{letter}{at}": dim for letter, dims in groups.items() for at, dim in enumerate(dims)}
    several = [sum(name in sizes for name in expr.symbols) > 1 for expr in (*maps.lhs, *maps.rhs)]
    if maps.cut is not None or not any(several):
        return None
    found: list[tuple[Any, Reading]] = []
    for number, map in enumerate((maps.lhs, maps.rhs)):
        padded = [expr for operand, expr, _ in maps.windows if operand == number]
        reading = _reading(types[number].shape, map, sizes, bool(padded))
        if reading is None:
            return None
        found.append(_behind_views(op.operands[number], reading))
    values, readings = zip(*found, strict=True)
    return WindowedContraction((values[0], values[1]), sizes, (readings[0], readings[1]))


def _reading(shape: Shape, map: Sequence[Dim], sizes: Mapping[str, Dim], is_padded: bool) -> Reading | None:
    """The index map of an operand as steps; None where it is not a sum of them."""
    steps: list[Mapping[str, int]] = []
    starts: list[Dim] = []
    single: dict[str, Any] = {name: ZERO for name, size in sizes.items() if size.value == 1}
    for expr in map:
        rest, row = expr.substitute(single), dict[str, int]()
        for name in [name for name in sizes if name in rest.symbols]:
            parts = rest.coefficient(name)
            if parts is None or parts[0].value is None:
                return None
            row[name], rest = parts[0].value, parts[1]
        steps.append(row)
        starts.append(rest)
    names = [name for row in steps for name in row]
    return Reading(shape, tuple(steps), tuple(starts), is_padded) if len(set(names)) == len(names) else None


def _behind_views(value: Any, reading: Reading) -> tuple[Any, Reading]:
    """What a transposed or flipped operand is a view of, and how that is read."""
    while isinstance(value.owner, TransposeOp | FlipOp):
        view, axes = value.owner, range(len(reading.shape))
        order = [view.axes.index(axis) for axis in axes] if isinstance(view, TransposeOp) else axes
        shape, starts = ([part[axis] for axis in order] for part in (reading.shape, reading.starts))
        steps = [reading.steps[axis] for axis in order]
        for axis in view.axes if isinstance(view, FlipOp) else ():
            starts[axis] = shape[axis] - 1 - starts[axis]
            steps[axis] = {name: -step for name, step in steps[axis].items()}
        value, reading = view.operands[0], Reading(tuple(shape), tuple(steps), tuple(starts), reading.is_padded)
    return value, reading


def behind_slices(value: Any, reading: Reading) -> tuple[Any, Reading]:
    """What an operand of which nothing is outside is a part of, and how that is read; itself where it is no part."""
    while isinstance(view := value.owner, SliceOp) and not reading.is_padded:
        shape = tensor_value(view.operands[0]).shape
        parts = list(zip(reading.steps, reading.starts, view.start, view.step, strict=True))
        steps = tuple({name: step * by for name, step in row.items()} for row, _, _, by in parts)
        starts = tuple(start * by + first for _, start, first, by in parts)
        value, reading = _behind_views(view.operands[0], Reading(shape, steps, starts, False))
    return value, reading
