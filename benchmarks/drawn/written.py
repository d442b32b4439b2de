"""How far the roundings of a function's own ops move its results: its tape in float64, with each op off by some."""

# Tensors of a library that is loaded by name have no types to give.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.drawn.peers import TORCH
from benchmarks.drawn.program import Call, plain
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dtype import BY_NAME

EXACT = frozenset(
    {"neg", "abs", "sign", "floor", "ceil", "round", "trunc", "where", "max", "min", "maximum", "minimum", "clamp"}
    | {"concat", "stack", "pad", "full", "iota", "tril", "triu", "reshape", "transpose", "broadcast_to", "squeeze"}
    | {"expand_dims", "slice", "flip", "roll", "tile", "repeat", "split", "take", "gather", "index_get", "sort", "eye"}
    | {"take_along_axis", "scatter", "index_put", "relu", "cummax", "diagonal", "topk", "copysign", "dynamic_slice"}
)
"""Ops whose results are some of their operands' numbers: they round nothing."""


def spread_of(torch: Any, call: Call, operands: Sequence[Any], units: Mapping[str, float], draws: int) -> list[Any]:
    """How far results move as each op of a call is off by up to a rounding, at random; none where nobody knows.

    What gives a result of the call rounds that alone, and is left where it is.
    """
    if not any(_is_moved(call.tape, record) for record in call.tape.records):
        return []
    try:
        whole = _run(torch, call.tape, operands, units, 0)
        found = [torch.zeros_like(part) for part in whole]
        for seed in range(1, draws + 1):
            moved = _run(torch, call.tape, operands, units, seed)
            for spread, part, other in zip(found, whole, moved, strict=True):
                torch.maximum(spread, abs(other - part).nan_to_num_(0.0, 0.0, 0.0), out=spread)
    except (KeyError, NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return []
    return found


def count_rounded(tape: Tape) -> int:
    """How many ops of a tape, or of loops in it, round."""
    inner = sum(count_rounded(body) for record in tape.records for body in record.bodies)
    return inner + sum(_rounds(tape, record) for record in tape.records)


def _rounds(tape: Tape, record: Record) -> bool:
    spec = REGISTRY.find(record.op)
    return spec is not None and spec.short_name not in EXACT and tape.types[record.results[0]].dtype.is_float


def _is_moved(tape: Tape, record: Record) -> bool:
    return _rounds(tape, record) and not set(record.results) & set(tape.outputs)


def _run(torch: Any, tape: Tape, operands: Sequence[Any], units: Mapping[str, float], seed: int) -> list[Any]:
    values = dict(zip(tape.inputs, operands, strict=True))
    random = torch.Generator(operands[0].device).manual_seed(seed) if operands else None
    for record in tape.records:
        spec = REGISTRY.find(record.op)
        if spec is None or record.bodies:
            raise NotImplementedError(record.op)
        filled = {name: plain(value) for name, value in spec.with_defaults(record.attributes).items()}
        asked = BY_NAME.get(str(filled.get("dtype")))
        if asked is not None and asked.is_float:
            filled["dtype"] = "f64"
        made = as_tuple(TORCH[spec.short_name](torch, filled)(*(values[one] for one in record.operands)))
        unit = units.get(tape.types[record.results[0]].dtype.name, 0.0)
        is_moved = seed and _is_moved(tape, record)
        for name, part in zip(record.results, made, strict=True):
            values[name] = _move(torch, part, unit, random) if is_moved else part
    return [values[one].double() for one in tape.outputs]


def _move(torch: Any, part: Any, unit: float, random: Any) -> Any:
    """Between a third of a rounding and the whole of it: two that cancel in one draw do not in the next."""
    if part.dtype != torch.float64:
        return part
    size = torch.rand(part.shape, generator=random, device=part.device, dtype=part.dtype) * 4 - 2
    return part * (1 + unit * torch.sign(size) * (abs(size) + 1) / 3)
