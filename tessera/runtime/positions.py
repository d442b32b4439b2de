"""Positions that kernels read from memory, in debug builds: the records of what is no place, and the error of them."""

from __future__ import annotations

import array
import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import PositionError
from tessera.diagnostics.error import HERE
from tessera.diagnostics.span import Span
from tessera.runtime.tensor import Tensor

_CELLS = 4
"""Numbers of a record: the least below 0, how far the least beyond the end is from `_MOST`, the extent and 1."""
_MOST = (1 << 63) - 1


def check_positions(text: str, records: Tensor, *sources: Tensor) -> None:
    """Raise PositionError (T0710) where a kernel would have gone to no place of a tensor: by its first program."""
    data = ctypes.string_at(records.address, records.nbytes)
    if data.count(0) == len(data):
        return
    numbers: array.array[int] = array.array("q", data)
    sites: list[dict[str, Any]] = json.loads(text)
    at = next(at for at in range(2, len(numbers), _CELLS) if numbers[at])
    number, site = divmod(at // _CELLS, len(sites))
    program = _place(number, records.shape[:-1])
    below, beyond, extent = numbers[at - 2], numbers[at - 1], numbers[at] - 1
    said = sites[site]
    found = below if below < 0 else _MOST - beyond
    where = f"kernel `{said['kernel']}`, program {program} of {list(records.shape[:-1])}"
    number = -1 if said["source"] is None else int(said["source"])
    source: Tensor | None = sources[number] if number >= 0 else None
    raise outside(said, found, extent, source, where)


def outside(
    said: Mapping[str, Any], found: int, extent: int, source: Tensor | None = None, where: str = ""
) -> PositionError:
    """The error of a position; one `said` to count from both ends has had the extent added where it was below 0."""
    ends = said.get("ends", False)
    index = found - extent if ends and found < 0 else found
    who = f"`{said['op']}`" + (f" of `{said['into']}`" if said.get("into") else "")
    stands = _standing((found, index), source)
    stands = f"{stands} that {who} uses" if stands else f"{who} uses it"
    if ends:
        rule = f"rule: an index is in -{extent}..{extent - 1}; a debug build checks, others clamp"
        fix = f"use indices of the axis, or clamp them where that is meant: `ops.clamp(i, 0, {extent - 1})`"
    elif said.get("masked") is None:
        rule = f"rule: a position is in 0..{extent - 1}; a debug build checks, in others it reads as 0"
        fix = "say what is read where there is no such place: `pad=0`, or `mask=` where there is one"
    else:
        rule = f"rule: a position is in 0..{extent - 1}; a debug build checks, others write nothing"
        fix = "leave such elements out with `mask=`"
    return PositionError(
        f"index {index} is outside of an axis of {extent} elements",
        span=Span(*said["place"]) if said.get("place") else HERE,
        notes=(*([where] if where else []), stands, rule),
        fix=fix,
    )


def _standing(found: Sequence[int], source: Tensor | None) -> str:
    """Where one of some numbers stands first among those that positions are read from, if it does."""
    values = [] if source is None or not source.shape else list(_numbers(source.tolist()))
    at = next((at for at, value in enumerate(values) if value in found), None)
    if source is None or at is None:
        return ""
    return f"it stands at {_place(at, source.shape)} of the indices, {list(source.shape)} {source.dtype},"


def _place(number: int, shape: Sequence[int]) -> list[int]:
    place: list[int] = []
    for length in reversed(shape):
        number, own = divmod(number, length)
        place.insert(0, own)
    return place


def _numbers(values: Any) -> Iterator[int]:
    """The numbers of nested lists, in order."""
    if not isinstance(values, list):
        yield values
        return
    for item in cast("list[Any]", values):
        yield from _numbers(item)
