"""The meaning of collectives to one rank: the arrays of all are gathered, and the reference says what each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, static
from tessera.ir.base.spec import OpSpec
from tessera.runtime.ranks import world


def ranks_of(spec: OpSpec, attributes: Mapping[str, Any]) -> int:
    """How many ranks an op needs to be computed; 1 for what a rank does by itself."""
    size = attributes.get("size")
    if not isinstance(size, tuple) or not isinstance(attributes.get("axis"), str):
        return 1
    speaks = "collective" in spec.effects or not spec.operands
    return static(size[0]) if speaks and len(size) == 1 else 1  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def over_ranks(spec: OpSpec, operands: Sequence[Array], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """What this rank gets of an op that needs others, who must be at the same op."""
    axis, ranks = attributes["axis"], ranks_of(spec, attributes)
    place = world.axis_position(axis, ranks)
    if not spec.operands:
        return (np.array(place, np.int64),)
    own = np.ascontiguousarray(operands[0])
    every = np.empty((ranks, *np.shape(operands[0])), own.dtype)
    memory = (own.ctypes.data, every.ctypes.data, own.nbytes)
    facts = ", ".join(f"{name} {value}" for name, value in attributes.items() if value and name not in ("axis", "size"))
    what = f"{own.dtype} {list(own.shape)} for `{spec.short_name}`" + (f" ({facts})" if facts else "")
    world.wait(world.start("all_gather", axis, ranks, memory, what))
    assert spec.reference is not None
    return (np.asarray(spec.reference(*every, **attributes)[place]),)
