"""A kernel as plain records, without xDSL: what the language writes, what is hashed, and what becomes `ttile`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.diagnostics.error import Span
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

INDEX = "index"
"""The type of an index."""


@frozen
class Memory:
    """The type of a buffer, as a value of a kernel."""

    type: TensorType


@dataclass(slots=True)
class Body:
    """Ops in order; `arguments` and `results` are the values a loop's body takes and carries on."""

    ops: list[TileOp] = field(default_factory=list["TileOp"])
    arguments: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


@dataclass(slots=True)
class TileOp:
    """One op of `ttile`: operands and results are numbers of values."""

    name: str
    operands: tuple[int, ...]
    values: Mapping[str, Any]
    results: tuple[int, ...]
    span: Span | None = None
    body: Body | None = None


@dataclass(slots=True)
class KernelProgram:
    """A whole kernel: arguments (inputs, then results), grid, ops, and what is known of it for schedules."""

    name: str
    arguments: tuple[TensorType, ...]
    inputs: int
    buffers: tuple[int, ...]
    grid: tuple[Dim, ...]
    body: Body
    types: list[Any]
    schedule: tuple[tuple[str, Any], ...] = ()
    numeric: tuple[str, ...] = ()
    """Extents that change bits, not only speed: the block of an online softmax."""
    fixed: tuple[str, ...] = ()
    """Extents that change results, since the author computes on single blocks; a schedule must give them."""
    equalities: tuple[tuple[Dim, Dim, str], ...] = ()
    """Dims that must be equal, where that is not known yet."""
    zeroed: tuple[int, ...] = ()
    """Results that begin as zeros: those that programs add to."""
    blocks: Mapping[int, Dim] = field(default_factory=dict[int, Dim])
    """The indices at which blocks start, of the grid and of loops: the extent of what they are blocks of."""

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.arguments[self.inputs :]

    @property
    def symbols(self) -> list[str]:
        """The sizes that the kernel is given."""
        return sorted(set[str]().union(*(type.symbols for type in self.arguments)))

    def text(self) -> str:
        """The kernel as text that is the same in every process; spans are left out."""
        head = f"{self.name} {list(map(str, self.arguments))} {self.inputs} {list(map(str, self.grid))} {self.schedule}"
        return "\n".join([head, *_lines(self.body, "")])

    def work(self) -> str:
        """The text of what is done, whatever schedule it came from; hints, which change no result, are left out."""
        lines = _lines(self.body, "", without=("hints", "prefetch", "buffers"))
        return "\n".join([str(list(map(str, self.grid))), *lines])

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()


def without_unused(body: Body) -> None:
    """Take out of a body what nothing reads: tiles that were loaded in one order and then again in another."""
    wanted = set(body.results)
    kept: list[TileOp] = []
    for op in reversed(body.ops):
        if _has_effect(op) or wanted.intersection(op.results):
            if op.body is not None:
                without_unused(op.body)
                wanted |= _read(op.body)
            wanted.update(op.operands)
            kept.append(op)
    body.ops[:] = reversed(kept)


EFFECTS = ("store", "barrier")
"""Ops that do something besides giving a value."""


def _has_effect(op: TileOp) -> bool:
    """Whether an op, or a loop with one in it, does something besides giving values."""
    return op.name in EFFECTS or (op.body is not None and any(map(_has_effect, op.body.ops)))


def _read(body: Body) -> set[int]:
    found = set(body.results)
    for op in body.ops:
        found.update(op.operands)
        if op.body is not None:
            found |= _read(op.body)
    return found


def _lines(body: Body, indent: str, without: tuple[str, ...] = ()) -> list[str]:
    found: list[str] = []
    for op in body.ops:
        values = ", ".join(f"{name}={_text(value)}" for name, value in sorted(op.values.items()) if name not in without)
        found.append(f"{indent}{op.results} = {op.name}{op.operands} {{{values}}}")
        if op.body is not None:
            found.append(f"{indent}  takes {op.body.arguments}")
            found += _lines(op.body, indent + "  ", without)
            found.append(f"{indent}  gives {op.body.results}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Dim | DType):
        return str(value)
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return f"({', '.join(map(_text, items))})"
    return repr(value)
