"""What tuning is about, as values: whose plan it is, the choices of a plan, and what a trial of it gave."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tessera.types.frozen import frozen


@frozen
class Signature:
    """Whose plan it is: a fusion group or an op, at its sizes, on a machine, under a policy, by one compiler."""

    op_kind: str
    """The name of the op, or of the body of a fusion group, which comes of its content."""
    shape_sig: str
    """Sizes, such as `4096x4096x1024`; of a symbolic dim its bucket."""
    dtype: str
    mesh_sig: str = ""
    """Axes of the mesh and their sizes, such as `dp1.tp12`; empty for one device."""
    arch: str = ""
    policy_hash: str = ""
    runtime: str = ""
    """A hash of driver, runtime and compiler: with another of them the machine is measured again."""

    @property
    def parts(self) -> tuple[str, ...]:
        """All of it, in the order of the database."""
        return (
            self.op_kind, self.shape_sig, self.dtype, self.mesh_sig, self.arch, self.policy_hash, self.runtime
        )  # fmt: skip

    def __str__(self) -> str:
        """Its parts, in short: the shapes of a program's inputs may be many."""
        return " ".join(part if len(part) <= 60 else f"{part[:57]}..." for part in self.parts if part)


def runtime_hash(*parts: str) -> str:
    """The `runtime` of a signature: a digest of versions, of the driver, the runtime and the compiler, say."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@frozen
class Plan:
    """Choices by the names of knobs, with `@` and a location where they are for one, sorted; none is the safe plan."""

    choices: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(choices: Mapping[str, Any]) -> Plan:
        """A plan of some choices, whose lists become tuples: so they are compared, and so they are written as JSON."""
        return Plan(tuple(sorted((name, _plain(value)) for name, value in choices.items())))

    @property
    def overrides(self) -> dict[str, Any]:
        """As `jit(overrides=...)` takes it."""
        return dict(self.choices)

    @property
    def digest(self) -> str:
        """A name that equal plans share, in every process."""
        return hashlib.sha256(json.dumps(self.choices, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.choices) or "the safe plan"


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@frozen
class Trial:
    """What became of a plan: its runs, or the reason why there are none."""

    plan: Plan
    samples: tuple[float, ...] = ()
    """Nanoseconds of single runs, interleaved with those of the safe plan."""
    baseline: tuple[float, ...] = ()
    """Nanoseconds of the safe plan in the same rounds."""
    predicted: float | None = None
    """Nanoseconds by the model."""
    bits: str = ""
    """A hash of all results."""
    reason: str = ""
    """Why it was not measured, or not accepted."""
    memory: int | None = None
    """Bytes that it needs beside its tensors, where somebody knows."""
    readings: tuple[tuple[str, float | None], ...] = ()
    """What a GPU reported of itself meanwhile, by name, None for what it does not report; nothing on a CPU."""

    @property
    def time(self) -> float | None:
        """The median of its runs, in nanoseconds."""
        return statistics.median(self.samples) if self.samples else None


SOURCES = ("measured", "imported", "profile", "cost_model")
"""Where a stored plan comes from, best first: measured here, imported from a file, shipped with the package, or chosen
by a model for a machine that is not here."""


@frozen
class Entry:
    """What the database keeps of a signature: its plan, which may be the safe one, and the trials that led to it."""

    signature: Signature
    plan: Plan
    trials: tuple[Trial, ...] = ()
    source: str = SOURCES[0]
    stored: float = 0.0
    """When, as Unix time."""


class Compiled(Protocol):
    """A plan that was compiled, ready to run."""

    def run(self) -> float:
        """Run it once and give the nanoseconds that took."""
        ...

    def bits(self) -> str:
        """A hash of all results of a run."""
        ...

    def close(self) -> None:
        """Let its code and memory go."""
        ...


Compile = Callable[[Plan], Compiled]
"""Compiles a plan, or raises a CompilationError that says why it cannot be carried out."""


def ratios(trial: Trial) -> list[float]:
    """How many times as long the safe plan takes, in each round.

    Rounds are compared with themselves: a slow spell of a machine slows both plans, and a ratio of medians would
    compare a slow spell of one with a fast one of the other.
    """
    pairs: Sequence[tuple[float, float]] = list(zip(trial.baseline, trial.samples, strict=True))
    return [safe / own for safe, own in pairs]


def median_ratio(trial: Trial) -> float:
    """How many times as long the safe plan takes: the median over rounds."""
    return statistics.median(ratios(trial))
