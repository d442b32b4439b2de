"""The tape: a traced program as plain records with spans, and the text whose hash keys the disk cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tessera.diagnostics.error import Span
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

POLICY = "tessera.numerics.policy"
"""The attribute that says which policy a function, an op or a kernel keeps: `{storage = bf16, accumulate = f32}`."""


DONATED = "tessera.donated"
"""The attribute that lists the arguments a caller donates, by their numbers."""


CONSTANT = "tessera.constant"
"""The attribute that lists the arguments that are constants, by their numbers: tensors in memory that nobody writes."""

GIVEN = "tessera.given"
"""The attribute that lists the arguments that a program takes with their dims in another order than its caller has."""


RECOGNIZED = "tessera.recognized"
"""The attribute that lists what was recognized in a function, and what became of it."""


PLANNED = "tessera.planned"
"""The attribute that lists what a plan chose for a program: a knob with its group, then its value, and so on."""


REGION = "tessera.region"
"""The attribute that says in which mesh axes a scope of the program puts an op, outermost first: `data=4/model=2`."""


MESH = "tessera.mesh"
"""The attribute with the mesh that the regions of a program are of: axes with their sizes."""


@frozen
class Record:
    """One op: operands and results are value numbers of the tape; `policy` is its own, unlike its function's.

    `device` is where a scope of the program says it runs, `region` the mesh axes of the scopes around it; empty where
    none does.
    """

    op: str
    operands: tuple[int, ...]
    attributes: Mapping[str, Any]
    results: tuple[int, ...]
    span: Span | None = None
    policy: Policy = SILENT
    device: str = ""
    region: str = ""

    @property
    def bodies(self) -> list[Tape]:
        """The tapes among its attributes, in order."""
        found: list[Tape] = []
        for value in self.attributes.values():
            several = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            found += [one for one in several if isinstance(one, Tape)]
        return found


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


# A tape as text: the same in every process and on every run, so that its hash can key the disk cache.

VERSION = 1
"""Raised when the text of a tape changes its meaning."""


def tape_text(tape: Tape, indent: str = "") -> str:
    """The tape, one op a line, values numbered; spans and names are left out, as they do not change the code.

    >>> print(tape_text(Tape(inputs=[0], names=["x"], outputs=[0], types=[TensorType.of(["B"], f32)])))
    tape 1 (%0: [B] f32)
    return %0
    """
    inputs = ", ".join(f"%{value}: {_type(tape.types[value])}" for value in tape.inputs)
    lines = [f"{indent}tape {VERSION} ({inputs})"]
    for record in tape.records:
        results = ", ".join(f"%{value}: {_type(tape.types[value])}" for value in record.results)
        operands = ", ".join(f"%{value}" for value in record.operands)
        attributes = ", ".join(
            f"{name}={attribute_text(value, indent)}" for name, value in sorted(record.attributes.items())
        )
        under = f" under {record.policy}" if record.policy else ""
        under += f" in {record.region}" if record.region else ""
        lines.append(f"{indent}{results} = {record.op}({operands}) {{{attributes}}}{under}")
    lines += [f"{indent}guard {guard.left} == {guard.right}" for guard in tape.guards]
    if POLICY in tape.promises:
        # It changes no code, and is written in the code's report.
        lines.append(f"{indent}policy {sorted(tape.promises[POLICY].items())}")
    if DONATED in tape.promises:
        lines.append(f"{indent}donated {list(tape.promises[DONATED])}")
    if CONSTANT in tape.promises:
        lines.append(f"{indent}constant {list(tape.promises[CONSTANT])}")
    lines.append(f"{indent}return {', '.join(f'%{value}' for value in tape.outputs)}")
    return "\n".join(lines)


def tape_hash(tape: Tape) -> str:
    """A SHA-256 that two tapes share exactly when they compile to the same code."""
    return hashlib.sha256(tape_text(tape).encode()).hexdigest()


def tape_key(tape: Tape) -> Any:
    """What two tapes share exactly when they compute the same, as `tape_text` is, but made in a fraction of the time.

    It is good for one process; None for a tape with values that cannot be keys, such as arrays.
    """
    records = [
        (
            record.op,
            record.operands,
            record.results,
            tuple([(name, _exact(value)) for name, value in record.attributes.items()]),
            record.policy,
            record.device,
            record.region,
        )
        for record in tape.records
    ]
    guards = [(guard.left, guard.right, guard.what) for guard in tape.guards]
    found = (*records, *guards, tuple(tape.inputs), tuple(tape.outputs), tuple(tape.types))
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _exact(value: Any) -> Any:
    """A value with its type, as 1, 1.0 and True are equal, and so are both zeros."""
    if value.__class__ is float:
        return float, value.hex()
    if value.__class__ is tuple:
        return tuple([_exact(item) for item in value])
    return value.__class__, value


def _type(type: TensorType) -> str:
    return f"[{', '.join(map(str, type.shape))}] {type.dtype}"


def attribute_text(value: Any, indent: str = "") -> str:
    """One attribute; types are told apart (1, 1.0 and True), floats are exact."""
    if isinstance(value, Tape):
        return "{\n" + tape_text(value, indent + "  ") + f"\n{indent}}}"
    if isinstance(value, tuple | list):
        items: Any = value  # pyright: ignore[reportUnknownVariableType]
        return "(" + ", ".join(attribute_text(item, indent) for item in items) + ")"
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Dim | DType):
        return str(value)
    if hasattr(value, "tobytes"):
        return f"array({value.dtype}, {value.shape}, {hashlib.sha256(value.tobytes()).hexdigest()})"
    return repr(value)
