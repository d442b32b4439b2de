"""From a tape to a program that runs: the disk cache first, the compiler only on a miss."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tessera import __version__
from tessera.api.specialization import Loaded
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.tape import Tape
from tessera.ir.base.tape_text import tape_hash


def load(tape: Tape, options: Options) -> tuple[Loaded, str]:
    """The program of a tape, and where it came from: `compiled`, `disk cache` or `reference`."""
    if options.backend == "reference":
        return ReferenceProgram(tape), "reference"
    if options.backend != "x86":
        raise OverrideError(f"there is no backend `{options.backend}`", fix="the backends are x86 and reference")
    # The runtime needs neither xDSL nor llvmlite, so a program that is in the cache runs without loading them.
    from tessera.api.tensor import prepare  # noqa: PLC0415
    from tessera.runtime.cache import default_store  # noqa: PLC0415
    from tessera.runtime.executable import Executable  # noqa: PLC0415
    from tessera.runtime.launch import LoadedExecutable  # noqa: PLC0415

    prepare()
    key, store = cache_key(tape, options), default_store()
    data = store.get(key)
    if data is not None:
        return LoadedExecutable(Executable.from_bytes(data)), "disk cache"
    from tessera.compiler.compile import compile_tape  # noqa: PLC0415

    executable = compile_tape(tape, options)
    store.put(key, executable.to_bytes())
    return LoadedExecutable(executable), "compiled"


def cache_key(tape: Tape, options: Options) -> str:
    """The one key of a program: what it computes, how, for which machine, by which compiler."""
    from tessera.runtime.cache import key_of  # noqa: PLC0415 - see `load`

    return key_of("program", tape_hash(tape), options.text, machine_text(), compiler_text())


@cache
def machine_text() -> str:
    """What this processor can do, as far as code depends on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    found = {line.split(":", 1)[0].strip(): line for line in reversed(lines) if line.startswith(wanted)}
    return "\n".join([platform.machine(), *(found[name] for name in sorted(found))])


@cache
def compiler_text() -> str:
    """The compiler that would make the code: its version, and the state of the files it is made of."""
    root = Path(__file__).parents[1]
    parts: list[str] = [__version__]
    for folder in ("compiler", "ir", "backends", "stdlib"):
        for file in sorted((root / folder).rglob("*.py")):
            status = file.stat()
            parts.append(f"{file.relative_to(root)} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts)


class ReferenceProgram:
    """A tape run op by op on NumPy: the oracle, used only when it is asked for by name."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.calls = 0

    def call(self, *tensors: Any) -> Any:
        """Always the checked way: the oracle has no fast one."""
        return NotImplemented

    def run(self, arguments: Sequence[Any]) -> Any:
        """The outputs as tensors."""
        import numpy as np  # noqa: PLC0415 - only the oracle computes with NumPy

        from tessera.api.tensor import Tensor  # noqa: PLC0415
        from tessera.backends.reference.interpret import run_tape  # noqa: PLC0415

        outputs = run_tape(self.tape, [np.asarray(argument) for argument in arguments])
        types = [self.tape.types[value] for value in self.tape.outputs]
        self.calls += 1
        made = tuple(Tensor.of(output, type.dtype) for output, type in zip(outputs, types, strict=True))
        return made[0] if len(made) == 1 else made
