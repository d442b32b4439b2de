"""Backends by folder: the protocol that each implements, and how one is found by its name or its kind of device.

A folder of `tessera/backends` is a backend. Its `manifest.py` (`MANIFEST`) says what it is, in a module that loads in
no time; its `compile.py` (`BACKEND`) takes part in compilations, and is loaded by the first one for it. Nothing here or
above compares names of backends.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from tessera.diagnostics.codes import OverrideError

if TYPE_CHECKING:
    from tessera.compiler.options import Options
    from tessera.ir.base.compilation import Chooser, Model
    from tessera.ir.base.op import SpecOp
    from tessera.ir.base.passes import Pass
    from tessera.ir.base.tape import Tape
    from tessera.ir.target.program import Begin, Code
    from tessera.types.device import Manifest
    from tessera.types.machine import Machine


class Compilation(Protocol):
    """What a backend adds to one compilation, in the order in which `compiler/compile.py` asks for it."""

    @property
    def machine(self) -> Machine:
        """What earlier passes may know of the machine."""
        ...

    def tile_passes(self) -> Sequence[Pass]:
        """Passes over Tile IR that only this machine needs; they follow the general ones, in the same runner."""
        ...

    def target_passes(self) -> Sequence[Pass]:
        """The lowering of tile kernels to Target IR, which verifies each, and passes over that.

        A lowering raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        ...

    def check_target(self, kernel: SpecOp) -> None:
        """A closer look at a lowered kernel, beside its verifiers; raises OpError."""
        ...

    def emit(self, program: SpecOp, kernels: Sequence[SpecOp], targets: Sequence[SpecOp], begin: Begin | None) -> Code:
        """Target IR and the host program as text: LLVM's, or another language that `Code.language` names."""
        ...

    def check_code(self, targets: Sequence[SpecOp]) -> None:
        """Try to make code of lowered kernels; raises TargetVerifyError (T0601) with the numbers that disagree."""
        ...


class Backend(Protocol):
    """What `backends/<folder>/compile.py` exports as `BACKEND`."""

    accumulation_units: tuple[str, ...]
    """Names that `accumulation_unit` gives, the one to prefer first."""
    models: Mapping[str, tuple[str, Model]]
    """Static models of this backend's machines, by knob, each with its name; they come before the general ones."""
    times: Mapping[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any]], float | None]]
    """Nanoseconds of candidates by knob: of a value, in a context, beside other choices; None where it cannot say."""

    def compilation(self, options: Options, chooser: Chooser) -> Compilation:
        """A compilation for the machine that options name, or that is here.

        Raises OverrideError (T0402) where options name a machine that the backend does not know.
        """
        ...

    def compilation_for(self, machine: Machine) -> Compilation:
        """A compilation for a machine, all choices at their defaults."""
        ...

    def accumulation_unit(self, kernel: SpecOp, machine: Machine) -> str:
        """What adds up the float dots of a tile kernel: units with other names have other bits; empty for none."""
        ...

    def resources(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        """What each kernel of an executable takes of the device, as `explain` shows it."""
        ...

    def spilling(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        """The kernels of an executable in which more is live than a thread has registers for, by name."""
        ...


class Interpreter(Protocol):
    """What `compile.py` of a backend that compiles nothing exports as `BACKEND`."""

    def program(self, tape: Tape) -> Any:
        """A traced program, ready to run (`Loaded`)."""
        ...


def manifest_of(name: str) -> Manifest:
    """The manifest of a backend; raises OverrideError (T0402) for a name that none has."""
    if (own := _own_folder(name)) is not None and own.name == name:
        return own
    found = {one.name: one for one in manifests()}
    if name not in found:
        raise OverrideError(f"there is no backend `{name}`", fix=f"`backend` is one of {', '.join(sorted(found))}")
    return found[name]


def backend_of(name: str) -> Backend:
    """The backend of a name; raises OverrideError (T0402) where there is none, or it compiles nothing."""
    if not manifest_of(name).compiles:
        others = ", ".join(sorted(one.name for one in manifests() if one.compiles))
        raise OverrideError(
            f"backend `{name}` interprets programs and compiles none", fix=f"those that do are {others}"
        )
    return _load_backend(name)


def interpreter_of(name: str) -> Interpreter:
    """The backend of a name that compiles nothing."""
    return _load_backend(name)


def backend_for_kind(kind: str) -> Manifest:
    """The backend that compiles for a kind of device or machine: `cpu`, `gpu`."""
    if (own := _own_folder(kind)) is not None and own.device_kind == kind:
        return own
    return next(one for one in manifests() if one.device_kind == kind)


def backend_for_machine(machine: Machine) -> Backend:
    """The backend that compiles for a machine."""
    return backend_of(backend_for_kind(machine.kind).name)


@cache
def machines() -> dict[str, Machine]:
    """The machines of all backends that users can name, by the name of their architecture."""
    return {machine.cpu: machine for one in manifests() for machine in one.machines}


@cache
def manifests() -> tuple[Manifest, ...]:
    """All backends, by the order of their folders."""
    return tuple(map(_manifest, _folders()))


@cache
def _folders() -> tuple[str, ...]:
    import pkgutil  # noqa: PLC0415 - most often a folder is found by its own name

    package = importlib.import_module("tessera.backends")
    return tuple(sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg))


@cache
def _own_folder(name: str) -> Manifest | None:
    """The manifest of the folder of this very name, for which no other folder is looked into."""
    try:
        return _manifest(name) if name.isidentifier() else None
    except ModuleNotFoundError:
        return None


@cache
def _manifest(folder: str) -> Manifest:
    return importlib.import_module(f"tessera.backends.{folder}.manifest").MANIFEST


@cache
def _load_backend(name: str) -> Any:
    own = _own_folder(name)
    is_own = own is not None and own.name == name
    folder = name if is_own else next(one for one in _folders() if _manifest(one).name == name)
    return importlib.import_module(f"tessera.backends.{folder}.compile").BACKEND
