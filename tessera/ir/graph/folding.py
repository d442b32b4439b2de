"""What folds ask of values: the scalar a value holds everywhere, and whether dropping an operand keeps the type."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.ir.base.spec import Folder, Producer
from tessera.types.shape import Shape

_SPREADING = (
    "broadcast_to",
    "reshape",
    "expand_dims",
    "squeeze",
    "transpose",
    "slice",
    "flip",
    "tile",
    "repeat",
    "roll",
)
"""Ops that only move elements: what is the same everywhere before is the same everywhere after."""


def uniform(folder: Folder, value: Any) -> float | int | bool | None:
    """The one number a value holds in all its elements, where its producers say so."""
    producer = folder.producer(value)
    if producer is None:
        return None
    if producer.name in _SPREADING:
        return uniform(folder, producer.operands[0])
    if producer.name == "full":
        return producer.attributes["value"]
    if producer.name == "constant":
        return uniform_array(producer.attributes["value"])
    return None


def uniform_array(array: Any) -> float | int | bool | None:
    """The one number all elements of an array are, bit for bit; None for an empty or a varied array."""
    flat = np.asarray(array).reshape(-1)
    if not flat.size or any(flat[:1].tobytes() != flat[at : at + 1].tobytes() for at in range(1, flat.size)):
        return None
    return flat[0].item()


def is_negative_zero(number: float) -> bool:
    """Whether a float is -0.0, the number that adds nothing to any float."""
    return number == 0 and bool(np.signbit(number))


def made_by(folder: Folder, value: Any, name: str) -> Producer | None:
    """The producer of a value, if it is the op of that name."""
    producer = folder.producer(value)
    return producer if producer is not None and producer.name == name else None


def stretches_nothing(kept: Shape, dropped: Shape) -> bool:
    """Whether broadcasting `kept` with `dropped` gives the shape of `kept`."""
    if len(dropped) > len(kept):
        return False
    tail = kept[len(kept) - len(dropped) :]
    return all(theirs.value == 1 or theirs == ours for ours, theirs in zip(tail, dropped, strict=True))
