"""All ranks of a mesh in one process: a program of one rank runs op by op on the arrays of every rank, in lockstep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime.ranks.world import Mesh, mesh_of
from tessera.types.sharding import Sharding


def as_list(found: Any) -> list[Array]:
    """One result, or several."""
    return list(found) if isinstance(found, tuple) else [found]  # pyright: ignore[reportUnknownArgumentType]


def run_whole(tape: Tape, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a tape of one rank."""
    return [found[0] for found in run_ranks(tape, mesh_of(()), [[array] for array in arrays])]


def run_ranks(tape: Tape, mesh: Mesh, arrays: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """For each output what each rank has; `arrays` are, for each input, those of all ranks."""
    values = dict(zip(tape.inputs, map(list, arrays), strict=True))
    for record in tape.records:
        made = _step(record, mesh, [values[value] for value in record.operands])
        for value, every in zip(record.results, made, strict=True):
            for array in every:
                assert list(array.shape) == [dim.value for dim in tape.types[value].shape], record.op
            values[value] = every
    return [values[output] for output in tape.outputs]


def _step(record: Record, mesh: Mesh, operands: Sequence[Sequence[Array]]) -> list[list[Array]]:
    spec, attributes = REGISTRY[record.op], _attributes(record)
    assert spec.reference is not None, record.op
    if spec.short_name == "axis_index":
        return [[np.array(mesh.position(attributes["axis"], rank), np.int64) for rank in range(mesh.size)]]
    every: list[list[Array]] = []
    with np.errstate(all="ignore"):
        for rank in range(mesh.size):
            if "collective" in spec.effects:
                group = mesh.group(attributes["axis"], rank)
                found: Any = spec.reference(*(operands[0][other] for other in group), **attributes)
                every.append([np.asarray(found[group.index(rank)])])
            else:
                every.append(as_list(spec.reference(*(own[rank] for own in operands), **attributes)))
    return [[own[at] for own in every] for at in range(len(record.results))]


def _attributes(record: Record) -> dict[str, Any]:
    """Attributes with functions of arrays in place of tapes."""

    def body(tape: Tape) -> Any:
        def run(*arrays: Array) -> tuple[Array, ...]:
            return tuple(run_whole(tape, arrays))

        return run

    return {name: body(value) if isinstance(value, Tape) else value for name, value in record.attributes.items()}


def cut(array: Array, sharding: Sharding, mesh: Mesh) -> list[Array]:
    """The part of each rank; terms of a sum where it is partial, the first rank along it having all."""
    parts: list[Array] = []
    for rank in range(mesh.size):
        part = array
        for axis, own in enumerate(sharding.dims):
            if own:
                at = 0
                for name in own:
                    at = at * mesh.sizes[name] + mesh.position(name, rank)
                part = np.split(part, prod(mesh.sizes[name] for name in own), axis)[at]
        if any(mesh.position(name, rank) for name in sharding.partial):
            part = np.zeros_like(part)
        parts.append(np.array(part, order="C"))  # `ascontiguousarray` would give a scalar a dim
    return parts


def join(parts: Sequence[Array], sharding: Sharding, mesh: Mesh, shape: Sequence[int]) -> Array:
    """The whole that ranks have parts of; raises where ranks that should have the same do not."""
    out = np.zeros(tuple(shape), parts[0].dtype)
    local = sharding.local_shape(shape, mesh.sizes)
    seen: dict[tuple[int, ...], Array] = {}
    for rank, part in enumerate(parts):
        start: list[int] = []
        for own, size in zip(sharding.dims, local, strict=True):
            at = 0
            for name in own:
                at = at * mesh.sizes[name] + mesh.position(name, rank)
            start.append(at * size)
        if tuple(start) in seen:
            np.testing.assert_array_equal(part, seen[tuple(start)])
        seen[tuple(start)] = part
        out[tuple(slice(first, first + size) for first, size in zip(start, local, strict=True))] = part
    return out


def shape_of(tape: Tape, value: int) -> tuple[int, ...]:
    return tuple(dim.value or 0 for dim in tape.types[value].shape)


def simulate(
    local: Tape,
    mesh: Mapping[str, int],
    arrays: Sequence[Array],
    inputs: Sequence[Sharding],
    outputs: Sequence[Sharding],
    shapes: Sequence[Sequence[int]],
) -> list[Array]:
    """The whole results of one rank's program on whole arrays."""
    ranks = mesh_of(tuple(mesh.items()))
    given = [cut(array, one, ranks) for array, one in zip(arrays, inputs, strict=True)]
    found = run_ranks(local, ranks, given)
    return [join(parts, one, ranks, shape) for parts, one, shape in zip(found, outputs, shapes, strict=True)]
