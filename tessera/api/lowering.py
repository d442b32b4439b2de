"""What a jitted function becomes: its text at every level, and an account of what runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tessera.api.collectives import other_ranks
from tessera.api.compilation import SPANS, cache_key, placed, spans_of, stored
from tessera.api.specialization import Specialization
from tessera.compiler.backend import backend_of, manifest_of
from tessera.compiler.options import Options
from tessera.diagnostics.error import readable
from tessera.frontend.arguments import describe_value
from tessera.frontend.bind import Signature
from tessera.frontend.trace import TracedFunction
from tessera.ir.base.tape import POLICY, Tape
from tessera.ir.base.tape_text import tape_text
from tessera.types.policy import Policy

if TYPE_CHECKING:
    from tessera.frontend.shape_inference import Assumption
    from tessera.types.constraint import Constraint


@dataclass(frozen=True, slots=True, repr=False)
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

    __repr__ = __str__


def lowered(traced: TracedFunction, options: Options) -> Lowered:
    """The program at every level; it is compiled anew, and the cache is not looked at.

    One that needs other ranks, and is for a GPU, has Graph IR, and below it the reason why there is no more.
    """
    from tessera.compiler.compile import graph_text, lower_tape  # noqa: PLC0415 - loads the compiler

    tape, options = traced.tape, placed(options, traced.tape)
    manifest = manifest_of(options.backend)
    found = None if manifest.compiles and manifest.has_collectives else other_ranks(tape)
    if found is None:
        texts = lower_tape(tape, options)
    else:
        none = f"// {found[0]}: ranks communicate through the memory of CPUs, and this is for `{options.backend}`"
        texts = {**dict.fromkeys(_LEVELS, none), "graph": graph_text(tape, options)}
    return Lowered(tape=tape_text(tape), **{name: texts[name] for name in _LEVELS})


_LEVELS = ("graph", "schedule", "tile", "target", "llvm")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What runs for a call: printed, it is a page; `report` is what the compiler says, by name."""

    signature: str
    key: str
    source: str
    options: str
    guards: tuple[str, ...]
    proved: tuple[str, ...]
    report: dict[str, Any]
    captured: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.signature, *(f"  static: {item}" for item in self.static)]
        lines += [f"  code: {self.source} (key {self.key[:16]})", f"  options: {self.options}"]
        lines += [f"  captured: {item}" for item in self.captured]
        lines += [f"  guard: {guard}" for guard in self.guards]
        lines += [f"  proved: {fact}" for fact in self.proved]
        for name, value in self.report.items():
            lines += _format(name, value)
        return readable("\n".join(lines))

    __repr__ = __str__


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """What a function has been compiled to so far, printed as a page; `specializations` has an explanation of each."""

    function: str
    cache: Any
    specializations: tuple[Explanation, ...]

    def __str__(self) -> str:
        found = self.cache
        counts = f"hits {found.hits}, misses {found.misses}, of which compiled {found.compiles}"
        return "\n\n".join([f"{self.function}\n  calls: {counts}", *map(str, self.specializations)])

    __repr__ = __str__


def _format(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [f"  {name}: {value}"]
    items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return [f"  {name}:", *(f"    {item}" for item in items)]


def explained(traced: TracedFunction, options: Options, made: Specialization | None) -> Explanation:
    """The account of one signature; `made` is its specialization if it has been called."""
    tape, options = traced.tape, placed(options, traced.tape)
    inputs = ", ".join(f"{name}: {tape.types[value]}" for name, value in zip(tape.names, tape.inputs, strict=True))
    outputs = ", ".join(str(tape.types[value]) for value in tape.outputs)
    policy = Policy.of(tape.promises.get(POLICY, {}))
    under = f" under {policy}" if policy else ""
    guards = dict.fromkeys(_guard_text(item) for item in traced.assumptions)
    executable = getattr(made.loaded, "executable", None) if made is not None else stored(tape, options)
    waiting = "not made yet" if executable is None else "not made yet, but in the disk cache"
    return Explanation(
        signature=f"({inputs}) -> ({outputs})" + (f" {traced.effects}" if traced.effects else "") + under,
        key=(made.origin.key if made is not None else "") or cache_key(tape, options),
        source=str(made.origin) if made is not None else waiting,
        options=options.text,
        guards=tuple(guards),
        proved=tuple(_proved_text(*item) for item in traced.proved),
        report=_report(executable, tape, options.backend) if executable is not None else {},
        captured=tuple(map(_captured_text, made.captures.paths)) if made is not None else (),
        static=_static_texts(made.signature) if made is not None else (),
    )


def _static_texts(signature: Signature) -> tuple[str, ...]:
    """The Python values that a specialization was made for."""
    leaves = zip(signature.paths(), signature.leaves, strict=True)
    return tuple([f"{path} = {describe_value(leaf.static)}" for path, leaf in leaves if leaf.dtype is None])


def _resources(executable: Any, backend: str) -> dict[str, Any]:
    """What kernels take of a device, where its backend can say."""
    if not manifest_of(backend).has_launch_schedule:
        return {}
    lines = backend_of(backend).resources(executable.metadata, executable.objects)
    return {"resources": lines}


_ORDER = ("groups", "kernels", "movements", "choices", "flops", "bytes", "workspace")


def _report(executable: Any, tape: Tape, backend: str) -> dict[str, Any]:
    """The compiler's report, with the lines of this trace: cached code may be of a program that stood elsewhere."""
    metadata: Mapping[str, Any] = executable.metadata
    report: dict[str, Any] = dict(metadata.get("report", {}))
    places: dict[str, list[str]] = {}
    for then, now in zip(metadata.get(SPANS, ()), spans_of(tape), strict=False):
        if now not in places.setdefault(then, []):
            places[then].append(now)
    ordered = [name for name in _ORDER if name in report]
    report = {name: report[name] for name in (*ordered, *(name for name in report if name not in _ORDER))}
    for name in ("groups", "movements"):
        if name in report:
            report[name] = [_placed(line, places) for line in report[name]]
    return {**report, **_resources(executable, backend)}


def _placed(line: str, places: Mapping[str, Sequence[str]]) -> str:
    text, separator, then = line.rpartition(" at ")
    if not separator:
        return line
    now = [place for place in places.get(then, ()) if place]
    return f"{text} at {' and '.join(now)}" if now else text


def _captured_text(path: str) -> str:
    return f"`{path}`, read at each call" if path else "a constant made while tracing"


def _guard_text(item: Assumption) -> str:
    if item.constraint is None:
        return f"{item.left} == {item.right} ({item.rule})"
    return f"{item.constraint.text} (at {item.constraint.span})" if item.constraint.span else item.constraint.text


def _proved_text(fact: str, because: Sequence[Constraint]) -> str:
    rules = ", ".join(item.text for item in because)
    return f"{fact} (by {rules})" if rules else fact
