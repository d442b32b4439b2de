"""Numbers that are spread over a tile, read by every element instead: what matrix units keep has no place for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tessera.ir.tile.records import INDEX, Body, KernelProgram, TileOp
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType


def spread(program: KernelProgram) -> KernelProgram:
    """Write loads of tiles for loads of one number that nothing but broadcasts read; it is changed in place.

    Before: `%n = load %key {map = [0]}`, `%t = broadcast %n {axes = []}`. After: `%t = load %key, %zero, %zero
    {coords = [_s0, _s1], axes = [_s0, _s1], map = [0]}`: all elements of the tile are at one place of the buffer.
    """
    numbers = {op.results[0]: op for op in _ops(program.body) if _is_number(op)}
    uses = Counter(value for op in _ops(program.body) for value in _read(op))
    spreads = Counter(op.operands[0] for op in _ops(program.body) if _is_spread(op))
    taken = {value: op for value, op in numbers.items() if spreads[value] and uses[value] == spreads[value]}
    if taken:
        program.types.append(INDEX)
        zero = len(program.types) - 1
        _rewrite(program, program.body, taken, zero)
        program.body.ops.insert(0, TileOp("index", (), {"names": (), "expr": Dim.constant(0)}, (zero,)))
    return program


def _rewrite(program: KernelProgram, body: Body, taken: Mapping[int, TileOp], zero: int) -> None:
    found: list[TileOp] = []
    for op in body.ops:
        if op.body is not None:
            _rewrite(program, op.body, taken, zero)
        if _is_spread(op) and op.operands[0] in taken:
            found.append(_load(program, op, taken[op.operands[0]], zero))
        elif not any(result in taken for result in op.results):
            found.append(op)
    body.ops[:] = found


def _load(program: KernelProgram, op: TileOp, number: TileOp, zero: int) -> TileOp:
    type = program.types[op.results[0]]
    assert isinstance(type, TensorType)
    names = tuple(f"_s{axis}" for axis in range(type.rank))
    values = {**number.values, "coords": names, "axes": names, "bounds": (Dim.constant(-1),) * type.rank}
    return TileOp("load", (*number.operands, *(zero for _ in names)), values, op.results, op.span)


def _ops(body: Body) -> Iterator[TileOp]:
    for op in body.ops:
        yield op
        if op.body is not None:
            yield from _ops(op.body)


def _read(op: TileOp) -> tuple[int, ...]:
    return (*op.operands, *(op.body.results if op.body is not None else ()))


def _is_number(op: TileOp) -> bool:
    """Whether an op reads one number of a buffer, at a place that is written down."""
    return op.name == "load" and not op.values["coords"] and len(op.operands) == 1


def _is_spread(op: TileOp) -> bool:
    return op.name == "broadcast" and not op.values["axes"]


__all__ = ["spread"]
