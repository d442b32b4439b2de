"""From a tape to a program that runs: the disk cache first, the compiler only on a miss."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tessera import __version__
from tessera.api.specialization import Loaded, Origin
from tessera.compiler.backend import interpreter_of, manifest_of
from tessera.compiler.options import Options, for_device
from tessera.diagnostics.codes import LoadError
from tessera.diagnostics.span import Span
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.tape import Tape
from tessera.ir.base.tape_text import tape_hash
from tessera.types.device import DEVICE, Device

if TYPE_CHECKING:
    from tessera.runtime.cache import Store
    from tessera.runtime.executable import Executable
    from tessera.types.backend import Manifest


def load(tape: Tape, options: Options, name: str = "") -> tuple[Loaded, Origin]:
    """The program of a tape; `name` is whose it is, for the account of a miss."""
    options = placed(options, tape)
    manifest = manifest_of(options.backend)
    if not manifest.compiles:
        return interpreter_of(manifest.name).program(tape), Origin(manifest.name)
    # The runtime needs neither xDSL nor llvmlite, so a program that is in the cache runs without loading them.
    from tessera.api.tensor import prepare  # noqa: PLC0415
    from tessera.runtime.cache import default_store  # noqa: PLC0415

    prepare()
    if manifest.asks_device:
        options = replace(options, features=device_of(manifest).features())
    parts = key_parts(tape, options)
    key, store = _key(parts), default_store()
    executable = _stored(store, key)
    if executable is not None:
        return _loaded(executable, tape, options), Origin("disk cache", key)
    from tessera.runtime.ranks import world  # noqa: PLC0415 - see above
    from tessera.runtime.ranks.world import exclusive  # noqa: PLC0415

    with exclusive(key):
        # Of several ranks that want one program, the first makes it, and the others find it.
        executable = _stored(store, key) if world.size() > 1 else None
        if executable is not None:
            return _loaded(executable, tape, options), Origin("disk cache", key)
        reason = _reason(store, name, parts)
        executable = _compiled(tape, options)
        executable.metadata[SPANS] = spans_of(tape)
        store.put(key, executable.to_bytes())
    return _loaded(executable, tape, options), Origin("compiled", key, reason)


def stored(tape: Tape, options: Options) -> Executable | None:
    """What the disk cache has of a program; nothing of one whose device would have to be asked first."""
    from tessera.runtime.cache import default_store  # noqa: PLC0415 - see `load`

    manifest = manifest_of(options.backend)
    is_known = manifest.compiles and not manifest.asks_device
    return _stored(default_store(), cache_key(tape, options)) if is_known else None


def placed(options: Options, tape: Tape) -> Options:
    """The options for a program where it says that it runs."""
    named = tape.promises.get(DEVICE)
    return options if named is None else for_device(options, Device.parse(named))


SPANS = "spans"
"""Where an executable says which lines its program was traced from, an entry for each record of the tape."""


def spans_of(tape: Tape, written: Callable[[Span], str] = str) -> list[str]:
    """Where each record of a tape stands in the source, those of bodies after the record they belong to."""
    found: list[str] = []
    for record in tape.records:
        found.append(written(record.span) if record.span is not None else "")
        for value in record.attributes.values():
            bodies = [value] if isinstance(value, Tape) else as_tuple(value)
            found += [span for body in bodies if isinstance(body, Tape) for span in spans_of(body, written)]
    return found


def _loaded(executable: Executable, tape: Tape, options: Options) -> Loaded:
    return device_of(manifest_of(options.backend)).load(executable, tape.functions)


def device_of(manifest: Manifest) -> Any:
    """The device that runs what a backend compiles."""
    from tessera.runtime.devices import find_device  # noqa: PLC0415 - see `load`

    return find_device(manifest.device)


def _compiled(tape: Tape, options: Options) -> Executable:
    """What the compiler makes of a tape; its processes load LLVM while this one loads the rest of the compiler."""
    from tessera.ir.base.collection import without_collection  # noqa: PLC0415 - see `load`

    with without_collection():
        from tessera.api.tensor import begin_support  # noqa: PLC0415
        from tessera.ir.target.machine_code import warm  # noqa: PLC0415

        warm()
        begin_support()
        from tessera.compiler.compile import compile_tape  # noqa: PLC0415

        return compile_tape(tape, options)


def _stored(store: Store, key: str) -> Executable | None:
    """What the cache has under a key; an entry that cannot be read any more is removed, and is a miss."""
    from tessera.runtime.executable import Executable  # noqa: PLC0415 - see `load`

    data = store.get(key)
    if data is None:
        return None
    try:
        return Executable.from_bytes(data)
    except LoadError:
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
    if before is None:
        return "never compiled before"
    known: dict[str, str] = json.loads(before)
    changed = [part for part, digest in parts.items() if known.get(part) != digest]
    return f"the {' and the '.join(changed)} changed since the last time" if changed else "no longer in the cache"


def cache_key(tape: Tape, options: Options) -> str:
    """The one key of a program: what it computes, how, for which machine, by which compiler."""
    return _key(key_parts(tape, options))


def key_parts(tape: Tape, options: Options) -> dict[str, str]:
    """What a key is made of, a digest each."""
    texts = {"options": options.text, "machine": machine_text(), "compiler": compiler_text()}
    digests = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in texts.items()}
    # A debug build names lines when it runs: the same program on other lines, or in another file, is another one.
    lines = {"lines": hashlib.sha256("\n".join(_lines(tape)).encode()).hexdigest()} if options.debug else {}
    return {"program": tape_hash(tape), **digests, **lines}


def _lines(tape: Tape) -> list[str]:
    """All lines that errors of a run may name: where ops stand, and the kernels that they call."""
    from tessera.ir.base.kernels import KERNELS  # noqa: PLC0415 - for debug builds alone

    known = sorted(_called_kernels(tape) & KERNELS.keys())
    return [*spans_of(tape, repr), *(f"{name} {KERNELS[name].place}" for name in known)]


def _called_kernels(tape: Tape) -> set[str]:
    """The kernels that a tape calls, by name, in bodies too."""
    values = [(name, value) for record in tape.records for name, value in record.attributes.items()]
    bodies = [body for _, value in values for body in ([value] if isinstance(value, Tape) else as_tuple(value))]
    own = {value for name, value in values if name == "kernel"}
    return own.union(*(_called_kernels(body) for body in bodies if isinstance(body, Tape)))


def _key(parts: dict[str, str]) -> str:
    from tessera.runtime.cache import key_of  # noqa: PLC0415 - see `load`

    return key_of("program", *parts.values())


@cache
def machine_text() -> str:
    """What this CPU can do, as far as code depends on it."""
    wanted, found = ("model name", "flags", "Features", "CPU part"), [platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            # All CPUs are alike; the file has a block for each.
            found += [line.rstrip() for line in takewhile(str.strip, lines) if line.startswith(wanted)]
    except OSError:
        found.append(platform.processor())
    return "\n".join(found)


@cache
def compiler_text() -> str:
    """The compiler that would make the code: its version, the state of its files, and what it is built upon."""
    from tessera.runtime.cache import package_text  # noqa: PLC0415 - see `load`

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts: list[str] = [__version__, *map(package_text, ("llvmlite", "xdsl"))]
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
