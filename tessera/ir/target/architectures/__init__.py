"""CPU architectures as tables: one module of this folder each, read by the cpu backend, verifiers and host programs.

A table says all that is true of one instruction set only: LLVM's names of CPUs and features, the width and number of
vector registers, which instructions there are beside those that LLVM finds by itself, and how the operating system
spells the features of the CPU at hand. Another architecture is another table, and no code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from tessera.ir.target.llvm.instructions import TargetText
from tessera.runtime.loader import usable_flags
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import Machine, MatrixInstruction

DEFAULT = "x86_64"
"""What is compiled for where the CPU at hand has no table; its code is refused when it is loaded there."""


@frozen
class CpuMatrixInstruction(MatrixInstruction):
    """A matrix instruction of CPUs, named by the feature it comes with: dtypes of operands, and of accumulators."""

    operands: tuple[DType, ...] = ()
    accumulator: DType | None = None
    is_exact: bool = False
    """Whether its bits are those of a chain of multiply-adds, so that a compiler may choose it unasked."""

    def takes(self, lhs: DType, rhs: DType, accumulator: DType) -> bool:
        """Whether it multiplies such operands."""
        return lhs in self.operands and rhs in self.operands and accumulator is self.accumulator


@frozen
class CpuLevel:
    """A set of features that code is made for; `name` is LLVM's of a CPU that has them and no others.

    `width` is the feature that registers of `lanes` f32 come with. Where no CPU of LLVM's has just these features,
    `cpu` is one that lacks some, and has no others.
    """

    name: str
    width: str
    lanes: int
    registers: int
    features: tuple[str, ...]
    has_narrow_masks: bool = False
    """Whether one instruction loads or stores some lanes of 1- and 2-byte elements."""
    has_wide_multiply: bool = False
    """Whether one instruction multiplies 64-bit integers."""
    scale_intrinsic: str = ""
    """LLVM's name of the instruction `x * 2**n` of a whole register, with `{suffix}` for the element; or none."""
    cpu: str = ""

    @property
    def machine(self) -> Machine:
        """The level as a machine, which passes read."""
        cpu = self.cpu or self.name
        return Machine(self.name, lanes=self.lanes, registers=self.registers, features=self.features, cpu=cpu)

    @property
    def text(self) -> TargetText:
        """The level as what emitters of LLVM text read."""
        features = ",".join(f"+{feature}" for feature in self.features)
        abilities = (self.registers, self.has_narrow_masks, self.has_wide_multiply, self.scale_intrinsic)
        return TargetText(self.lanes, self.cpu or self.name, features, *abilities)


@frozen
class CpuArchitecture:
    """An instruction set: `levels` from the widest to the baseline, which every CPU of the architecture has."""

    name: str
    triple: str
    levels: tuple[CpuLevel, ...]
    features: Mapping[str, str]
    """Features by LLVM's name, each with the one that it cannot be without, or nothing."""
    first_levels: Mapping[str, tuple[str, ...]]
    """Features by the published level of the architecture that first has them, for advice in errors."""
    support_cpu: str
    """LLVM's name of the CPU that the native support code is compiled for: one object serves all CPUs."""
    flags_field: str = "flags"
    """The field of `/proc/cpuinfo` that lists features."""
    flag_names: Mapping[str, str] | None = None
    """LLVM's names of the features that Linux spells otherwise."""
    matrix_instructions: tuple[CpuMatrixInstruction, ...] = ()
    """Matrix instructions, the best first."""

    @property
    def baseline(self) -> CpuLevel:
        """What every CPU has."""
        return self.levels[-1]

    def level_for(self, features: frozenset[str]) -> CpuLevel:
        """The widest level whose features are all present; the baseline where none is."""
        return next((level for level in self.levels if set(level.features) <= features), self.baseline)


@cache
def architectures() -> Mapping[str, CpuArchitecture]:
    """All tables, by name: the modules of this folder."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    return {name: import_module(f"{__name__}.{name}").ARCHITECTURE for name in names}


def features_named(name: str) -> tuple[str, ...]:
    """The features that a name stands for: those of a level (`x86-64-v3`), else it is one itself."""
    levels = (level for architecture in architectures().values() for level in architecture.levels)
    return next((level.features for level in levels if level.name == name), (name,))


@cache
def host_architecture() -> CpuArchitecture:
    """The architecture of this process."""
    found = architectures()
    return found.get(os.uname().machine, found[DEFAULT])


@cache
def host_features() -> frozenset[str]:
    """The features that this CPU has and Linux lets this process use, in LLVM's spelling."""
    architecture = host_architecture()
    names = architecture.flag_names or {}
    return frozenset(names.get(flag, flag) for flag in usable_flags(architecture.flags_field) or ())


def machine_of(features: frozenset[str], architecture: CpuArchitecture | None = None) -> Machine:
    """The widest machine of an architecture, that of this process unless given, whose features are all present."""
    return (architecture or host_architecture()).level_for(features).machine


def host_machine() -> Machine:
    """The CPU at hand."""
    return machine_of(host_features())


def level_of(machine: Machine) -> tuple[CpuArchitecture, CpuLevel]:
    """The architecture and level that a machine was made of."""
    return next(
        (architecture, level)
        for architecture in architectures().values()
        for level in architecture.levels
        if level.name == machine.name
    )


def target_text(machine: Machine) -> TargetText:
    """What emitters of LLVM text are told of a machine."""
    return level_of(machine)[1].text
