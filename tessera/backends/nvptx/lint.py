"""Kernels looked at before they run: what each takes of a GPU, and its bank conflicts in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.bank_lint import SharedAccess, shared_accesses
from tessera.backends.nvptx.resources import Resources, resources_of
from tessera.backends.nvptx.text import KernelCode
from tessera.ir.base.op import SpecOp


@dataclass(frozen=True)
class KernelLint:
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


def lint_kernels(
    targets: Sequence[SpecOp], codes: Sequence[KernelCode], texts: Sequence[bytes], backend: NvptxBackend
) -> tuple[KernelLint, ...]:
    """Look at kernels as Target IR, as code and as PTX."""
    found: list[KernelLint] = []
    for target, code, ptx in zip(targets, codes, texts, strict=True):
        fact = {"name": code.name, "threads": code.threads, "shared": code.shared, "resident": code.resident}
        resources = resources_of(fact, ptx.decode(), backend.machine.cpu)
        found.append(KernelLint(resources, tuple(shared_accesses(target))))
    return tuple(found)
