"""From a tape to a program that runs: the disk cache first, the compiler only on a miss."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from tessera import __version__
from tessera.api.collectives import other_ranks
from tessera.api.explanation import Explanation
from tessera.api.specialization import Origin, Specialization
from tessera.api.stored_plans import has_plans, load_under_plan, options_under_plan
from tessera.compiler.backend import backend_of, interpreter_of, manifest_of
from tessera.compiler.options import Options, for_device
from tessera.diagnostics.codes import DeviceError, LoadError
from tessera.diagnostics.error import Span
from tessera.frontend.arguments import describe_value
from tessera.frontend.bind import Signature
from tessera.frontend.trace import TracedFunction
from tessera.ir.base.tape import POLICY, Tape, tape_hash, tape_text
from tessera.types import numerics
from tessera.types.device import DEVICE, Device
from tessera.types.policy import Policy
from tessera.types.settings import Settings, shows_passes, warn_unknown_variables

if TYPE_CHECKING:
    from tessera.frontend.shape_inference import Assumption
    from tessera.runtime.cache import Store
    from tessera.runtime.devices import Program
    from tessera.runtime.executable import Executable
    from tessera.types.constraint import Constraint
    from tessera.types.device import Manifest

T = TypeVar("T")


def load(tape: Tape, options: Options, name: str = "", *, uses_stored: bool = True) -> tuple[Program, Origin]:
    """The program of a tape; `name` is whose it is, for the account of a miss.

    It is compiled under the plan that was tuned for it, where there is one that still fits, unless `uses_stored` says
    not to look.
    """
    options = choose_device(options, tape)
    manifest = manifest_of(options.backend)
    if not manifest.compiles:
        return interpreter_of(manifest.name).program(tape), Origin(manifest.name)
    # The runtime needs neither xDSL nor llvmlite, so a program that is in the cache runs without loading them.
    from tessera.api.eager import prepare  # noqa: PLC0415

    prepare()
    warn_unknown_variables()
    if manifest.asks_device:
        options = replace(options, features=device_of(manifest).features())
    if uses_stored and not options.tuned and has_plans(tape):
        return load_under_plan(
            tape, options, lambda chosen: _load_compiled(tape, chosen, name), lambda chosen: _arithmetic(tape, chosen)
        )
    return _load_compiled(tape, options, name)


def _arithmetic(tape: Tape, options: Options) -> Mapping[str, int]:
    """How the program of a tape computes, by the disk cache or by what would be compiled."""
    from tessera.runtime.cache import default_store  # noqa: PLC0415 - see `load`

    executable = _read_entry(default_store(), cache_key(tape, options))
    if executable is not None and "arithmetic" in executable.metadata:
        return executable.metadata["arithmetic"]
    from tessera.compiler.space import lowered_arithmetic  # noqa: PLC0415 - loads the compiler

    return lowered_arithmetic(tape, options)


def _load_compiled(tape: Tape, options: Options, name: str) -> tuple[Program, Origin]:
    from tessera.runtime.cache import default_store  # noqa: PLC0415 - see `load`

    parts = key_parts(tape, options)
    key, store = _key(parts), default_store()
    is_shown = shows_passes()
    program = None if is_shown else _load_stored(store, key, tape, options)
    if program is not None:
        return program, Origin("disk cache", key)
    from tessera.runtime.ranks import world  # noqa: PLC0415 - see above

    with world.exclusive(key):
        # Of several ranks that want one program, the first makes it, and the others find it.
        program = _load_stored(store, key, tape, options) if world.size() > 1 and not is_shown else None
        if program is not None:
            return program, Origin("disk cache", key)
        reason = "its passes are shown" if is_shown else _reason(store, name, parts)
        executable = _compile_tape(tape, options)
        executable.metadata[SPANS] = spans_of(tape)
        store.put(key, executable.to_bytes())
    return _load_executable(executable, tape, options), Origin("compiled", key, reason)


def compile_to_cache(tape: Tape, options: Options) -> Executable:
    """Put the code of a program into the disk cache; no device is needed, its features are in the options."""
    from tessera.runtime.cache import default_store  # noqa: PLC0415 - see `load`

    key, store = cache_key(tape, options), default_store()
    executable = _read_entry(store, key)
    if executable is None:
        executable = _compile_tape(tape, options)
        executable.metadata[SPANS] = spans_of(tape)
        store.put(key, executable.to_bytes())
    return executable


def find_stored(tape: Tape, options: Options) -> Executable | None:
    """What the disk cache has of a program; nothing of one whose device would have to be asked first."""
    from tessera.runtime.cache import default_store  # noqa: PLC0415 - see `load`

    manifest = manifest_of(options.backend)
    if not manifest.compiles or manifest.asks_device:
        return None
    tuned = options_under_plan(tape, options)
    found = _read_entry(default_store(), cache_key(tape, tuned))
    return _read_entry(default_store(), cache_key(tape, options)) if found is None and tuned != options else found


def choose_device(options: Options, tape: Tape) -> Options:
    """The options for a program where it says that it runs."""
    named = tape.promises.get(DEVICE)
    return options if named is None else for_device(options, Device.parse(named))


SPANS = "spans"
"""Where an executable says which lines its program was traced from, an entry for each record of the tape."""


def _label(span: Span) -> str:
    return span.label


def spans_of(tape: Tape, written: Callable[[Span], str] = _label) -> list[str]:
    """Where each record of a tape stands in the source, those of bodies after the record they belong to."""
    found: list[str] = []
    for record in tape.records:
        found.append(written(record.span) if record.span is not None else "")
        found += [span for body in record.bodies for span in spans_of(body, written)]
    return found


def _load_stored(store: Store, key: str, tape: Tape, options: Options) -> Program | None:
    """The program that the cache has under a key; one that cannot be loaded is removed, and is a miss."""
    executable = _read_entry(store, key)
    if executable is not None:
        _relocate(executable.metadata, tape)
    try:
        return executable and _load_executable(executable, tape, options)
    except LoadError:
        store.remove(key)
        return None


def _load_executable(executable: Executable, tape: Tape, options: Options) -> Program:
    program = device_of(manifest_of(options.backend)).load(executable, tape.functions)
    if "given" not in executable.metadata:
        return program
    from tessera.api.constants import take_constants  # noqa: PLC0415 - few programs have any

    plain = Options(backend=options.backend, features=options.features)  # what is chosen is chosen for the program
    return take_constants(program, executable, tape, lambda copy: load(copy, plain)[0])


def device_of(manifest: Manifest) -> Any:
    """The device that runs what a backend compiles."""
    from tessera.runtime.devices import find_device  # noqa: PLC0415 - see `load`

    return find_device(manifest.device)


def _compile_tape(tape: Tape, options: Options) -> Executable:
    """What the compiler makes of a tape; its processes load LLVM while this one loads the rest of the compiler."""
    from tessera.ir.base.compilation import without_collection  # noqa: PLC0415 - see `load`

    with without_collection(postpones=True):
        from tessera.api.eager import begin_support  # noqa: PLC0415
        from tessera.ir.target.machine_code import warm  # noqa: PLC0415

        warm()
        begin_support()
        from tessera.compiler.compile import compile_tape  # noqa: PLC0415

        return compile_tape(tape, options)


def _read_entry(store: Store, key: str) -> Executable | None:
    """What the cache has under a key; an entry that cannot be read any more is removed, and is a miss."""
    from tessera.runtime.executable import Executable  # noqa: PLC0415 - see `load`

    data = store.get(key)
    if data is None:
        return None
    try:
        return Executable.from_bytes(data)
    except (LoadError, ValueError, TypeError, LookupError, RecursionError):
        store.remove(key)
        return None


def _reason(store: Store, name: str, parts: dict[str, str]) -> str:
    """Why a program was not in the cache: what differs from the last one of that name; and note the new one."""
    if not name:
        return ""
    from tessera.runtime.cache import key_of  # noqa: PLC0415 - see `load`

    note = key_of("note", name)
    before = store.get(note)
    store.put(note, json.dumps(parts).encode())
    try:
        known: dict[str, str] = dict(json.loads(before or b"{}"))
    except (ValueError, TypeError, RecursionError):  # an entry that is no note of ours is a miss
        known = {}
    if not known:
        return "never compiled before"
    changed = [part for part, digest in parts.items() if known.get(part) != digest]
    return f"the {' and the '.join(changed)} changed since the last time" if changed else "no longer in the cache"


def cache_key(tape: Tape, options: Options) -> str:
    """The one key of a program: what it computes, how, for which machine, by which compiler."""
    return _key(key_parts(tape, options))


def key_parts(tape: Tape, options: Options) -> dict[str, str]:
    """What a key is made of, a digest each."""
    texts = {"options": options.text, "machine": machine_text(), "compiler": compiler_text()}
    digests = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in texts.items()}
    # A debug build names lines when it runs, and so does a check of indices: the same program on other lines, or in
    # another file, is another one.
    is_named = options.debug or _checks_indices(tape)
    lines = {"lines": hashlib.sha256("\n".join(_lines(tape)).encode()).hexdigest()} if is_named else {}
    return {"program": tape_hash(tape), **digests, **lines}


def _lines(tape: Tape) -> list[str]:
    """All lines that errors of a run may name: where ops stand, and the kernels that they call."""
    from tessera.ir.base.dispatch import KERNELS  # noqa: PLC0415 - for debug builds alone

    known = sorted(_called_kernels(tape) & KERNELS.keys())
    return [*spans_of(tape, repr), *(f"{name} {KERNELS[name].location}" for name in known)]


def _checks_indices(tape: Tape) -> bool:
    return any(
        record.attributes.get("mode") == "error" or any(map(_checks_indices, record.bodies)) for record in tape.records
    )


def _called_kernels(tape: Tape) -> set[str]:
    """The kernels that a tape calls, by name, in bodies too."""
    own = {record.attributes["kernel"] for record in tape.records if "kernel" in record.attributes}
    return own.union(*(_called_kernels(body) for record in tape.records for body in record.bodies))


def _key(parts: dict[str, str]) -> str:
    from tessera.runtime.cache import key_of  # noqa: PLC0415 - see `load`

    return key_of("program", *parts.values())


@cache
def machine_text() -> str:
    """What this CPU can do, and Linux lets this process do with it, as far as code depends on it.

    Of a CPU without tiles it is what it always was: what was tuned for it is found by this.
    """
    wanted, found = ("model name", "flags", "Features", "CPU part"), [platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            # All CPUs are alike; the file has a block for each.
            found += [line.rstrip() for line in takewhile(str.strip, lines) if line.startswith(wanted)]
    except OSError:
        found.append(platform.processor())
    if any(" amx" in line for line in found):
        from tessera.runtime.loader import can_use_tiles  # noqa: PLC0415 - see `load`

        found.append(f"tiles: {can_use_tiles()}")
    return "\n".join(found)


@cache
def compiler_text() -> str:
    """The compiler that would make the code: its version, the state of its files, and what it is built upon."""
    from tessera.runtime.cache import package_text  # noqa: PLC0415 - see `load`

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts: list[str] = [__version__, f"numerics {numerics.VERSION}", *map(package_text, ("llvmlite", "xdsl"))]
    for folder in ("compiler", "ir", "backends", "stdlib", "types", "runtime"):
        parts += _states(os.path.join(root, folder), folder)
    return "\n".join(sorted(parts))


def _states(folder: str, name: str) -> list[str]:
    found: list[str] = []
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return found
    for entry in entries:
        if entry.name.endswith((".py", ".ll")):
            status = entry.stat()
            found.append(f"{name}/{entry.name} {status.st_size} {status.st_mtime_ns}")
        elif entry.is_dir() and entry.name != "__pycache__":
            found += _states(entry.path, f"{name}/{entry.name}")
    return found


# What a jitted function becomes: its text at every level, and an account of what runs.


class IRText(str):
    """The text of a program, which a prompt shows as it is and not as a string with its escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


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


def lower_traced(traced: TracedFunction, options: Options) -> Lowered:
    """The program at every level; it is compiled anew, and the cache is not looked at.

    One that needs other ranks, by a backend without collectives, has Graph IR, and below it why there is no more.
    """
    from tessera.compiler.compile import graph_text, lower_tape  # noqa: PLC0415 - loads the compiler

    tape, options = traced.tape, choose_device(options, traced.tape)
    manifest = manifest_of(options.backend)
    found = None if manifest.compiles and manifest.has_collectives else other_ranks(tape)
    if found is None:
        texts = _under_stored_plan(tape, options, lambda chosen: lower_tape(tape, chosen))
    else:
        none = f"// {found[0]}: programs for `{options.backend}` have no collectives"
        texts = {**dict.fromkeys(_LEVELS, none), "graph": graph_text(tape, options)}
    return Lowered(IRText(tape_text(tape)), **{name: IRText(texts[name]) for name in _LEVELS})


def plan_traced(traced: TracedFunction, options: Options) -> IRText:
    """The plan that a program is compiled by."""
    from tessera.compiler.plan_text import export_plan  # noqa: PLC0415 - loads the compiler

    tape, options = traced.tape, choose_device(options, traced.tape)
    return IRText(_under_stored_plan(tape, options, lambda chosen: export_plan(tape, chosen)))


def _under_stored_plan(tape: Tape, options: Options, make: Callable[[Options], T]) -> T:
    """What `make` gives of the options that a call would compile with: under the plan that was tuned, if any was.

    Without the device that a plan would be for, it is that of the options alone: nothing runs here.
    """
    manifest = manifest_of(options.backend)
    if options.tuned or not manifest.compiles or not has_plans():
        return make(options)
    if manifest.asks_device:
        try:
            features = device_of(manifest).features()
        except DeviceError:
            return make(options)
        options = replace(options, features=features)
    return load_under_plan(tape, options, make, lambda chosen: _arithmetic(tape, chosen))


_LEVELS = ("graph", "schedule", "tile", "target", "llvm")


def explain_traced(
    traced: TracedFunction,
    options: Options,
    made: Specialization | None,
    needed: Mapping[str, str],
    shapes: Sequence[Sequence[int]] = (),
) -> Explanation:
    """The account of one signature; `made` is its specialization if it has been called.

    `needed` are the floats whose values the program needs, and why; `shapes` are those of a call's tensors.
    """
    tape, options = traced.tape, choose_device(options, traced.tape)
    inputs = ", ".join(f"{name}: {tape.types[value]}" for name, value in zip(tape.names, tape.inputs, strict=True))
    outputs = ", ".join(str(tape.types[value]) for value in tape.outputs)
    policy = Policy.of(tape.promises.get(POLICY, {}))
    under = f" under {policy}" if policy else ""
    guards = dict.fromkeys(_guard_text(item) for item in traced.assumptions)
    executable = getattr(made.loaded, "executable", None) if made is not None else find_stored(tape, options)
    waiting = "not made yet" if executable is None else "not made yet, but in the disk cache"
    return Explanation(
        signature=f"({inputs}) -> ({outputs})" + (f" {traced.effects}" if traced.effects else "") + under,
        key=(made.origin.key if made is not None else "") or cache_key(tape, options),
        source=str(made.origin) if made is not None else waiting,
        options=options.label,
        guards=tuple(guards),
        proved=tuple(_proved_text(*item) for item in traced.proved),
        report=_report(executable, tape, options.backend, shapes) if executable is not None else {},
        captured=tuple(
            f"`{path}`, read at each call" if path else "a constant made while tracing"
            for path in (made.captures.paths if made is not None else ())
        ),
        static=_static_texts(made.signature, needed) if made is not None else (),
    )


def _static_texts(signature: Signature, needed: Mapping[str, str]) -> tuple[str, ...]:
    """The Python values that a specialization was made for; of a float that could be traced, why it is not."""
    texts: list[str] = []
    for path, leaf in zip(signature.paths(), signature.leaves, strict=True):
        if leaf.dtype is None:
            reason = f": {needed[path]}" if path in needed else ""
            texts.append(f"{path} = {describe_value(leaf.static)}{reason}")
    return tuple(texts)


_ORDER = ("groups", "steps", "kernels", "movements", "choices", "flops", "bytes", "workspace", "host memory")


def _relocate(metadata: dict[str, Any], tape: Tape) -> None:
    """Give an executable the lines of this trace: cached code may be of a program that stood elsewhere."""
    now = spans_of(tape)
    if list(metadata.get(SPANS, ())) != now:
        metadata["report"], metadata[SPANS] = _report_at(metadata, now), now


def _report_at(metadata: Mapping[str, Any], spans: Sequence[str]) -> dict[str, Any]:
    """The report of an executable with these lines in the place of its own."""
    report: dict[str, Any] = dict(metadata.get("report", {}))
    locations: dict[str, list[str]] = {}
    for then, now in zip(metadata.get(SPANS, ()), spans, strict=False):
        if now not in locations.setdefault(then, []):
            locations[then].append(now)
    for name in ("groups", "steps", "movements"):
        if name in report:
            report[name] = [_with_locations(line, locations) for line in report[name]]
    return report


def _report(executable: Any, tape: Tape, backend: str, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The compiler's report, with the lines of this trace, and what is written there; of arguments of some shapes."""
    report = _report_at(executable.metadata, spans_of(tape, lambda span: span.described))
    report = {**{name: report[name] for name in _ORDER if name in report}, **report}
    if manifest_of(backend).has_launch_schedule:
        # What kernels take of a device, where its backend can say.
        report["resources"] = backend_of(backend).resources(executable.metadata, executable.objects)
    return {**report, **_report_roofline(executable, backend, shapes)}


def _report_roofline(executable: Any, backend: str, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The shares of kernels at most, and whose rates they are of; nothing where sizes or such rates are not known."""
    machine = executable.metadata.get("architecture", backend)
    from tessera.tuner.machine_rates import kept_rates  # noqa: PLC0415 - for those who ask what was compiled
    from tessera.types.rates import describe_shares, rates_of  # noqa: PLC0415

    kept = kept_rates(machine)
    rates = kept or rates_of(machine)
    if rates is None:
        return {}
    other = f"{rates.machine or 'some other machine'}; this one was not measured"
    whose = "this machine" if kept is not None else other
    held = rates.on(Settings.from_environment().threads) if machine == "cpu" else rates
    dims = [int(size) for shape in shapes for size in shape]
    pairs: Iterable[tuple[str, int]] = zip(executable.symbols, executable.binding, strict=True)
    sizes = {name: dims[number] for name, number in pairs if number < len(dims)}
    lines = describe_shares(executable.metadata.get("work", ()), held, sizes)
    texts = list(dict.fromkeys(f"{name}: {text}" for name, text in lines))
    return {"roofline": texts, "rates": f"as measured on {whose}"} if texts else {}


def _with_locations(line: str, locations: Mapping[str, Sequence[str]]) -> str:
    text, separator, then = line.rpartition(" at ")
    if not separator:
        return line
    now = [one for one in locations.get(then, ()) if one]
    return f"{text} at {' and '.join(now)}" if now else text


def _guard_text(item: Assumption) -> str:
    if item.constraint is None:
        return f"{item.left} == {item.right} ({item.rule})"
    return f"{item.constraint.text} (at {item.constraint.span})" if item.constraint.span else item.constraint.text


def _proved_text(fact: str, because: Sequence[Constraint]) -> str:
    rules = ", ".join(item.text for item in because)
    return f"{fact} (by {rules})" if rules else fact
