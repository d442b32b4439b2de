"""Random numbers on tiles: Philox4x32-10 by key and by the element's place, as whole-tensor ops draw them."""

from __future__ import annotations

from typing import Any

from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.places import TensorRef, axis_names, coordinate_tile
from tessera.frontend.kernel.tiles import Tile, binary, cast_to, constant
from tessera.ir.graph import philox
from tessera.types.dim import Dim
from tessera.types.dtype import u32, u64

KEY = "key"
"""The name of the operand that a kernel with random numbers takes last."""


def keep_mask(b: KernelBuilder, tile: Tile, share: float, key: Any) -> Tile:
    """True for a share of the elements, by the place of each in the whole of what the tile is a part of."""
    source = key if isinstance(key, TensorRef) else getattr(b, "key", None)
    if not isinstance(source, TensorRef):
        raise b.fail("this kernel has no random key", "give it a parameter `key`, made with `tessera.random.key(seed)`")
    bits = _draw(b, _counter(b, tile), _word(b, source, 0, tile.shape), _word(b, source, 1, tile.shape))
    # The upper 24 bits of the first word, as `bernoulli` of whole tensors reads it.
    upper = binary("shr", bits, constant(b, 8, tile.shape, u32))
    return binary("lt", upper, constant(b, round(share * 2.0**24), tile.shape, u32))


def _counter(b: KernelBuilder, tile: Tile) -> Tile:
    """The row-major number of each element: leading dims of the grid, then rows, then columns."""
    names, _ = axis_names(b, tile.axes)
    total = Dim.constant(0)
    for name in sorted(axis for axis in b.axes if axis.startswith("_b")):
        total = total * b.axes[name].extent + Dim.symbol(name)
    for name, axis, size in zip(names, tile.axes, tile.shape, strict=True):
        extent = (axis.dim or axis.bound) if axis is not None else None
        total = total * (extent if extent is not None else Dim.constant(size)) + Dim.symbol(name)
    return cast_to(b, coordinate_tile(b, total, tile.axes, tile.shape), u64)


def _word(b: KernelBuilder, key: TensorRef, place: int, shape: tuple[int, ...]) -> Tile:
    """A word of the key at every element."""
    values = {"coords": (), "axes": (), "map": (Dim.constant(place),), "bounds": (), "pad": 0}
    one = b.tile("load", [key.number], values, key.type.with_shape(()))
    type = key.type.with_shape(shape)
    return Tile(b.tile("broadcast", [one], {"axes": ()}, type), type, [None] * len(shape))


def _draw(b: KernelBuilder, counter: Tile, key: Tile, stream: Tile) -> Tile:
    """The first of four random words for each element."""
    shape = counter.shape

    def low(tile: Tile) -> Tile:
        return cast_to(b, tile, u32)

    def high(tile: Tile) -> Tile:
        return cast_to(b, binary("shr", tile, constant(b, 32, shape, u64)), u32)

    def product(word: Tile, multiplier: int) -> Tile:
        return binary("mul", cast_to(b, word, u64), constant(b, multiplier, shape, u64))

    c0, c1, c2, c3 = low(counter), high(counter), low(stream), high(stream)
    k0, k1 = low(key), high(key)
    for _ in range(philox.ROUNDS):
        first, second = product(c0, philox.MULTIPLIERS[0]), product(c2, philox.MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            binary("xor", binary("xor", high(second), c1), k0),
            low(second),
            binary("xor", binary("xor", high(first), c3), k1),
            low(first),
        )
        k0 = binary("add", k0, constant(b, philox.STEPS[0], shape, u32))
        k1 = binary("add", k1, constant(b, philox.STEPS[1], shape, u32))
    return c0
