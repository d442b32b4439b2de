"""Kernels looked at before they run: what each takes of a GPU, and which accesses of shared memory wait for a bank."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backends.nvptx.bank_lint import SharedAccess, shared_accesses
from tessera.backends.nvptx.resources import Resources, resources_of
from tessera.compiler.compile import lower
from tessera.compiler.device import DeviceParts
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.tape import Tape
from tessera.ir.target.machine_code import compile_texts


@dataclass(frozen=True)
class Looked:
    """One kernel: its resources, and its accesses of shared memory whose lanes are known."""

    resources: Resources
    accesses: tuple[SharedAccess, ...]

    @property
    def conflicts(self) -> tuple[SharedAccess, ...]:
        """Accesses in which lanes wait for each other."""
        return tuple(access for access in self.accesses if access.degree > 1)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What should be otherwise, a sentence each."""
        found = [str(access) for access in self.conflicts]
        if self.resources.registers.spills:
            found.append(f"{self.resources.name}: {self.resources.registers}")
        return tuple(found)


def lint_tape(tape: Tape, options: Options) -> tuple[Looked, ...]:
    """Look at all kernels of a program compiled for a GPU, which need not be here.

    Raises OverrideError (T0402) for a program that is not compiled for one.
    """
    parts = lower(tape, options).code
    if not isinstance(parts, DeviceParts):
        raise OverrideError("only kernels for a GPU are looked at", fix='compile with `backend="cuda"`')
    texts = compile_texts(parts.texts, parts.backend.code_target)
    found: list[Looked] = []
    for target, code, ptx in zip(parts.targets, parts.codes, texts, strict=True):
        fact = {"name": code.name, "threads": code.threads, "shared": code.shared, "resident": code.resident}
        resources = resources_of(fact, ptx.decode(), parts.backend.machine.cpu)
        found.append(Looked(resources, tuple(shared_accesses(target))))
    return tuple(found)
