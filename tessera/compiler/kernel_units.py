"""On which units of a GPU a kernel adds up its products, before anything is compiled: each has bits of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tessera.backends.nvptx.matrix_units import fitted
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.matrix.chosen import dots_in
from tessera.ir.tile.matrix.units import PLAIN, UNITS
from tessera.ir.tile.records import KernelProgram
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import Machine

Key = TypeVar("Key")


def units_of_sums(program: KernelProgram, machine: Machine) -> str:
    """The units that add up products of floats; none where there are none, as those of integers are exact."""
    kernel = write_kernel(program)
    types = [dot.results[0].type for dot in dots_in(kernel)]
    if not any(isinstance(type, TileAttr) and type.dtype.is_float for type in types):
        return ""
    units = fitted(kernel, machine)[1].units
    return PLAIN if units is None else units.name


def with_other_bits(found: Mapping[Key, str]) -> dict[Key, str]:
    """Of what runs on units by name, all that is not on the best of them, with the reason to leave it out."""
    best = next((name for name in (*UNITS, PLAIN) if name in found.values()), "")
    return {
        key: f"its sums are those of {name}, and have other bits than those of {best}"
        for key, name in found.items()
        if name != best
    }
