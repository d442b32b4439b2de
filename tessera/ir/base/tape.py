"""The tape: a traced program as plain records with spans; its hash keys the disk cache, and it needs no xDSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.diagnostics.span import Span
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.tensor_type import TensorType

POLICY = "tessera.numerics.policy"
"""The attribute that says which policy a function, an op or a kernel keeps: `{storage = bf16, accumulate = f32}`."""


DONATED = "tessera.donated"
"""The attribute that lists the arguments a caller donates, by their numbers."""


@frozen
class Record:
    """One op: operands and results are value numbers of the tape; `policy` is its own, unlike its function's."""

    op: str
    operands: tuple[int, ...]
    attributes: Mapping[str, Any]
    results: tuple[int, ...]
    span: Span | None = None
    policy: Policy = SILENT


@frozen
class Guard:
    """A fact the trace relied on and could not prove: `left == right`, checked at every call."""

    left: Dim
    right: Dim
    what: str
    span: Span | None = None


@dataclass(slots=True)
class Tape:
    """Inputs, records in execution order, outputs; `types[v]` is the type of value `v`.

    `names[i]` is the path of input `i` in the call (`x`, `params['w']`), for errors and for `repr`. `promises` are the
    `tessera.*` attributes of its function: what is said of the program beside what it computes. `functions` are the
    Python functions that it calls, by slot; they are no part of its text.
    """

    inputs: list[int] = field(default_factory=list[int])
    names: list[str] = field(default_factory=list[str])
    records: list[Record] = field(default_factory=list[Record])
    outputs: list[int] = field(default_factory=list[int])
    types: list[TensorType] = field(default_factory=list[TensorType])
    guards: list[Guard] = field(default_factory=list[Guard])
    promises: dict[str, Any] = field(default_factory=dict[str, Any])
    functions: list[Any] = field(default_factory=list[Any])

    def new_value(self, type: TensorType) -> int:
        self.types.append(type)
        return len(self.types) - 1
