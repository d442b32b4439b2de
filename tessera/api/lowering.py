"""What a jitted function becomes: its text at every level, and an account of what runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tessera.api.compilation import cache_key
from tessera.api.specialization import Specialization
from tessera.compiler.options import Options
from tessera.frontend.trace_function import TracedFunction
from tessera.ir.base.tape_text import tape_text


@dataclass(frozen=True, slots=True)
class Lowered:
    """One program as text, from the tape that was traced to the LLVM text that becomes machine code."""

    tape: str
    graph: str
    schedule: str
    tile: str
    target: str
    llvm: str

    def __str__(self) -> str:
        return "\n\n".join(f"// ---- {field.name} ----\n{getattr(self, field.name)}" for field in fields(self))


def lowered(traced: TracedFunction, options: Options) -> Lowered:
    """The program at every level; it is compiled anew, and the cache is not looked at."""
    from tessera.compiler.compile import lower_tape  # noqa: PLC0415 - loads the compiler

    texts = lower_tape(traced.tape, options)
    return Lowered(tape=tape_text(traced.tape), **{name: texts[name] for name in _LEVELS})


_LEVELS = ("graph", "schedule", "tile", "target", "llvm")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What runs for a call: printed, it is a page; `report` is what the compiler says, by name."""

    signature: str
    key: str
    source: str
    options: str
    guards: tuple[str, ...]
    report: dict[str, Any]

    def __str__(self) -> str:
        lines = [self.signature, f"  code: {self.source} (key {self.key[:16]})", f"  options: {self.options}"]
        lines += [f"  guard: {guard}" for guard in self.guards]
        for name, value in self.report.items():
            lines += _shown(name, value)
        return "\n".join(lines)


def _shown(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [f"  {name}: {value}"]
    items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return [f"  {name}:", *(f"    {item}" for item in items)]


def explained(traced: TracedFunction, options: Options, made: Specialization | None) -> Explanation:
    """The account of one signature; `made` is its specialization if it has been called."""
    tape = traced.tape
    inputs = ", ".join(f"{name}: {tape.types[value]}" for name, value in zip(tape.names, tape.inputs, strict=True))
    outputs = ", ".join(str(tape.types[value]) for value in tape.outputs)
    guards = [f"{item.left} == {item.right} ({item.what})" for item in traced.assumptions]
    executable = getattr(made.loaded, "executable", None) if made is not None else None
    return Explanation(
        signature=f"({inputs}) -> ({outputs})",
        key=cache_key(tape, options),
        source=str(made.origin) if made is not None else "not made yet",
        options=options.text,
        guards=tuple(guards),
        report=dict(executable.metadata.get("report", {})) if executable is not None else {},
    )
