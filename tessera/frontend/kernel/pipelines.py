"""Pipelines of buffers: slots that are filled ahead of their use, in one step of a loop for the next.

What a kernel reads it does not write, so a block that was loaded one step ago is the block that would be loaded now.
Therefore a loop carries no tiles for slots: it loads at the start of each step what the step before has asked for, and
the copy, how far ahead it goes, and the wait for it are the compiler's to place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.memory import load
from tessera.frontend.kernel.places import Origin, Spot
from tessera.frontend.kernel.tiles import Axis, Loop, Tile
from tessera.types.dim import Dim, maximum


class Slot:
    """One of the buffers of a pipeline, and the tile that lies in it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.tile: Tile | None = None
        self.is_ahead = False
        """Whether it is filled for a later step, which may not come any more."""

    def next(self) -> Slot:
        """Go on to the next buffer; what was loaded before stays readable for `slot_count - 1` steps."""
        return self.pipeline.advance()

    def load(self, x: Any, *positions: Any, **named: Any) -> None:
        """Begin to copy a tile into this slot: of this step, or with `k.next` of the one after."""
        if self.tile is not None and self in self.pipeline.held:
            raise current().fail(
                "this slot was filled and not read since", "call `slot.next()` before the next copy, or read it first"
            )
        self.is_ahead = any(isinstance(place, Loop) and place.is_ahead for place in (*positions, *named.values()))
        named.setdefault("stages", self.pipeline.slot_count)
        self.tile = load(x, *positions, **named)
        self.pipeline.held.append(self)

    def read(self) -> Tile:
        """The tile, when its copy is done."""
        if self.tile is None:
            raise current().fail("this slot is read before anything was copied into it", "call `slot.load(...)` first")
        if self in self.pipeline.held:
            self.pipeline.held.remove(self)
        return self.tile


class Pipeline:
    """Buffers that are filled ahead of their use: `with tile.pipeline(slot_count=2) as slot:`."""

    def __init__(self, slot_count: int) -> None:
        if not isinstance(slot_count, int) or slot_count not in (2, 3):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise current().fail(f"`slot_count` is 2 or 3, got {slot_count}")
        self.slot_count = slot_count
        self.slots = [Slot(self) for _ in range(slot_count)]
        self.held: list[Slot] = []
        self.at = 0
        self._is_open = False

    def __enter__(self) -> Slot:
        self._is_open = True
        return self.slots[0]

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_open = False
        unread = [slot for slot in self.held if not slot.is_ahead]
        if kind is None and unread:
            raise current().fail(f"{_slots(unread)} filled and never read", "read every slot that is loaded")

    def advance(self) -> Slot:
        """The next slot, free for a copy or filled ahead."""
        if not self._is_open:
            raise current().fail("a slot is used after its pipeline has ended")
        self.at = (self.at + 1) % self.slot_count
        slot = self.slots[self.at]
        if slot not in self.held:
            slot.tile = None
        return slot

    def distance(self, slot: Slot) -> int:
        """How many buffers after the current one a slot is."""
        return (self.slots.index(slot) - self.at) % self.slot_count

    def slot(self, distance: int) -> Slot:
        return self.slots[(self.at + distance) % self.slot_count]


def pipeline(slot_count: int = 2) -> Pipeline:
    """A pipeline of 2 or 3 buffers; copies, and the waits for them, are placed by the compiler."""
    return Pipeline(slot_count)


def _slots(slots: Sequence[Slot]) -> str:
    return "a slot was" if len(slots) == 1 else f"{len(slots)} slots were"


class Ahead:
    """A block that a loop begins with, loaded before it at `steps.first`, and in each step for the next."""

    def __init__(self, tile: Tile, what: str) -> None:
        self.tile, self.what = tile, what

    def inside(self, b: KernelBuilder, over: Any, coordinate: str) -> Tile:
        """The block of this step, at the start of the step."""
        return self._origin(b, over, coordinate, 0).load(b)

    def check(self, b: KernelBuilder, over: Any, coordinate: str, end: Any) -> None:
        """Raises where a step ends with another block than the one after its own."""
        wanted = self._origin(b, over, coordinate, over.size)
        found: Origin | None = end.origin if isinstance(end, Tile) else None
        if found is None or found.tensor is not wanted.tensor or found.spots != wanted.spots:
            raise b.fail(
                f"{self.what} begins this loop with the first block, and does not end a step with the one after",
                "load it at `k.next`, where `k` is the index of this loop",
            )

    def after(self, b: KernelBuilder, over: Any) -> Tile:
        """The block after the last step."""
        steps = maximum(0, over.extent.ceildiv(over.size))
        return self._origin(b, over, b.at_value("_after", steps * over.size), 0).load(b)

    def _origin(self, b: KernelBuilder, over: Any, coordinate: str, by: int) -> Origin:
        """The load at the blocks of a coordinate, and `by` elements on, in the place of the first ones."""
        names = {
            name: b.later(coordinate, on + by)
            for name, (start, on) in {**b.ahead, **{one: (one, 0) for one in over.starts}}.items()
            if start in over.starts
        }
        origin: Origin = self.tile.origin
        return Origin(origin.tensor, tuple(_moved(spot, names) for spot in origin.spots), origin.values, origin.dtype)


def _moved(spot: Spot, names: Mapping[str, str]) -> Spot:
    expr = spot.expr.substitute({old: Dim.symbol(new) for old, new in names.items()})
    if spot.axis is None:
        return Spot(expr, extent=spot.extent)
    axis = Axis(names.get(spot.axis.name, spot.axis.name), spot.axis.bound, spot.axis.dim)
    return Spot(expr, axis, spot.size, extent=spot.extent)


def begins_ahead(b: KernelBuilder, tile: Tile, over: Any) -> bool:
    """Whether a tile lies at the first blocks of a loop, and so means another block in each of its steps."""
    names = {axis.name for axis in tile.axes if axis is not None}
    return any(b.ahead.get(name, (name, 0))[0] in over.starts for name in names)


class CarriedSlots:
    """The slots that are filled when a loop begins: what one step leaves in them, the next finds."""

    def __init__(self, env: Mapping[str, Any]) -> None:
        self.names = {name: value for name, value in env.items() if isinstance(value, Slot)}
        self.pipelines = list(dict.fromkeys(slot.pipeline for slot in self.names.values()))
        self.places = {name: slot.pipeline.distance(slot) for name, slot in self.names.items()}
        self.held = {pipeline: {pipeline.distance(slot) for slot in pipeline.held} for pipeline in self.pipelines}
        self.filled: list[tuple[Pipeline, int, Ahead]] = []
        for pipeline in self.pipelines:
            for slot in pipeline.held:
                assert slot.tile is not None
                self.filled.append((pipeline, pipeline.distance(slot), Ahead(slot.tile, "a filled slot")))

    def begin(self, b: KernelBuilder, over: Any, coordinate: str) -> None:
        """Fill them at the start of the body."""
        for pipeline in self.pipelines:
            for slot in pipeline.slots:
                slot.tile = None if slot not in pipeline.held else slot.tile
        # What is no block of this loop stays where it is until it is read after the loop.
        self.filled = [entry for entry in self.filled if begins_ahead(b, entry[2].tile, over)]
        for pipeline, distance, ahead in self.filled:
            pipeline.slot(distance).tile = ahead.inside(b, over, coordinate)

    def end(self, b: KernelBuilder, over: Any, coordinate: str, env: Mapping[str, Any]) -> None:
        """Raises where a step does not end as it began, one block further on."""
        for pipeline, before in self.held.items():
            now = {pipeline.distance(slot) for slot in pipeline.held}
            if before != now:
                raise b.fail(
                    f"a step of this loop begins with {len(before)} of its slots filled, and ends with {len(now)}",
                    "fill before the loop what each step fills for the next: `steps = tile.range_k(...)`, and load at "
                    "`steps.first`",
                )
        for pipeline, distance, ahead in self.filled:
            ahead.check(b, over, coordinate, pipeline.slot(distance).tile)
        for name, place in self.places.items():
            slot = env.get(name)
            if not isinstance(slot, Slot) or slot.pipeline.distance(slot) != place:
                raise b.fail(
                    f"`{name}` is another slot of its pipeline after a step than before it",
                    f"write `{name} = {name}.next()` once for each copy of a step",
                )

    def after(self, b: KernelBuilder, over: Any, env: dict[str, Any]) -> None:
        """What lies in them when the loop is done."""
        for pipeline, distance, ahead in self.filled:
            pipeline.slot(distance).tile = ahead.after(b, over)
        for name, place in self.places.items():
            env[name] = self.names[name].pipeline.slot(place)


__all__ = ["Ahead", "CarriedSlots", "Pipeline", "Slot", "begins_ahead", "pipeline"]
