"""A program to tune: compiled under plans, run on tensors of its own, timed by the clock of its device.

All of it happens outside of compilations. What is timed is counted, so that a test can say that nothing was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera.api.compilation import compile_to_cache, device_of, load
from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TuningError
from tessera.frontend.concrete import copy_to_host
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.tape import DONATED, Tape
from tessera.runtime.tensor import Tensor
from tessera.tuner.protocol import InProcess, Protocol, device_time, host_time
from tessera.tuner.records import Plan
from tessera.tuner.runner import Isolated, Job

if TYPE_CHECKING:
    from tessera.compiler.space import ProgramSpace

LEAST_RUN = 200_000
"""Nanoseconds that a timed run has at least, by calling a short program several times: a host call takes some 2 000 of
them, and a clock is read within 50."""
MOST_CALLS = 64
"""Calls of one timed run at most."""
DESCRIPTIONS = ("arithmetic", "report", "spans", "work")
"""Metadata of an executable that is for people and models: it names choices, and nothing runs by it."""

_runs = 0


def measurements() -> int:
    """Timed runs of programs in this process so far."""
    return _runs


class RunnableProgram:
    """A program under a plan, ready to run: `records.Compiled`."""

    def __init__(
        self, program: Any, tensors: Sequence[Any], donated: Sequence[int], device: Any, options: Options
    ) -> None:
        """`options` are those that it was compiled with."""
        self._program: Any = program
        self._tensors, self._donated, self._device = tensors, donated, device
        self.options = options
        self.calls = 1
        """Calls of a timed run."""

    @property
    def code(self) -> str:
        """A digest of all that runs: equal for plans whose choices made no difference; empty where nobody knows."""
        executable = getattr(self._program, "executable", None)
        if executable is None:
            return ""
        digest = hashlib.sha256()
        for part in (*executable.objects, executable.support):
            digest.update(len(part).to_bytes(8, "little") + part)
        facts = {name: fact for name, fact in executable.metadata.items() if name not in DESCRIPTIONS}
        digest.update(json.dumps(facts, sort_keys=True, default=repr).encode())
        return digest.hexdigest()

    def _arguments(self) -> Sequence[Any]:
        """The tensors of a call; what a program may write over is copied for each."""
        if not self._donated:
            return self._tensors
        return [tensor.copy() if number in self._donated else tensor for number, tensor in enumerate(self._tensors)]

    def run(self) -> float:
        """Nanoseconds of a call: by events of the device where it has them, else by the clock of this process."""
        global _runs
        _runs += 1
        given = [self._arguments() for _ in range(self.calls)]
        run = self._program.run

        def call() -> None:
            for tensors in given:
                run(tensors)

        return (device_time if self._device.is_asynchronous else host_time)(call) / self.calls

    def bits(self) -> str:
        """A hash of the shapes and bytes of all results."""
        digest = hashlib.sha256()
        outputs = as_tuple(self._program.run(self._arguments()))
        if self._device.is_asynchronous:
            self._device.synchronize()
        for tensor in copy_to_host(outputs):
            array = np.ascontiguousarray(np.asarray(tensor))
            digest.update(repr((array.shape, str(array.dtype))).encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        """Let the code and the tensors go."""
        self._program, self._tensors = None, ()


class ProgramWorkload:
    """A program with its arguments: `protocol.Workload`. Plans that would change bits are refused before they run."""

    def __init__(
        self,
        space: ProgramSpace,
        tensors: Sequence[Any],
        flush: Callable[[], None] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        """`fixed` are choices that every plan has beside its own, the safe one excepted."""
        self.space, self._tensors, self._flush, self._fixed = space, tensors, flush, dict(fixed or {})
        self._device = device_of(manifest_of(space.options.backend))
        self._calls = 0
        self.sizes: Mapping[str, int] = {}
        """What symbolic dims are in its tensors."""

    def options(self, plan: Plan) -> Options:
        """The options that a plan is compiled with."""
        choices = Plan.of({**self._fixed, **plan.overrides}).choices if plan.choices else ()
        return replace(self.space.options, tuned=choices)

    def refusal(self, plan: Plan) -> str:
        """Why a plan is not to be measured: it changes bits, or cannot be carried out; empty where it may."""
        if not plan.choices:
            return ""
        kind, why = self.space.classify(Plan(self.options(plan).tuned))
        return "" if kind == "bit_neutral" else f"{kind}: {why}"

    def compile(self, plan: Plan) -> RunnableProgram:
        """The program under a plan; raises TuningError (T0803) for one that changes bits."""
        if reason := self.refusal(plan):
            raise TuningError(f"{plan} is not measured: {reason}", fix="leave it out of the space")
        options = self.options(plan)
        program, _ = load(self.space.tape, options, uses_stored=False)
        made = RunnableProgram(program, self._tensors, self._donated, self._device, options)
        if not self._calls:
            self._calls = _calls_of(made)
        made.calls = self._calls
        return made

    @property
    def _donated(self) -> Sequence[int]:
        return tuple(self.space.tape.promises.get(DONATED, ()))

    def prepare(self, plan: Plan) -> None:
        """Put the code of a plan into the disk cache."""
        load(self.space.tape, self.options(plan), uses_stored=False)

    def flush(self) -> None:
        """Evict caches, where somebody gave a way to."""
        if self._flush is not None:
            self._flush()

    def close(self) -> None:
        """Let the tensors go."""
        self._tensors = ()


def _calls_of(program: RunnableProgram) -> int:
    """How often a program is called in a timed run, so that it is long enough to be told from the clock."""
    program.run()
    once = min(program.run() for _ in range(3))
    return min(MOST_CALLS, max(1, math.ceil(LEAST_RUN / max(once, 1.0))))


def make_tensors(tape: Tape, sizes: Mapping[str, int], options: Options) -> list[Any]:
    """Tensors that a program takes: floats between a half and one and a half, so that no op leaves the numbers.

    Integers are zero, which is a position in everything that has one.
    """
    rng, made = np.random.default_rng(0), list[Any]()
    for value in tape.inputs:
        type = tape.types[value]
        shape = [dim.evaluate({name: sizes[name] for name in dim.symbols}) for dim in type.shape]
        if type.dtype.is_float:
            array = rng.uniform(0.5, 1.5, shape).astype(np.float32).astype(numpy_dtype(type.dtype))
        else:
            array = np.zeros(shape, numpy_dtype(type.dtype))
        made.append(Tensor.of(array, type.dtype))
    if manifest_of(options.backend).runs_in_host_memory:
        return made
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415 - for a GPU alone

    return [CudaTensor.of(tensor) for tensor in made]


# Processes that compile plans for a GPU together while one measures: assembling a kernel takes longer than a run.

PART = "part"
"""The choice by which a process knows which program a plan is for."""


class CompileParts:
    """What a compiling process has, programs by name: it puts plans of them into the disk cache, and runs nothing."""

    def __init__(self, parts: Mapping[str, Tape], options: str) -> None:
        self._parts, self._options = parts, Options.parse(options)

    def prepare(self, plan: Plan) -> None:
        """Compile a plan, which says of which program it is."""
        choices = plan.overrides
        tape = self._parts[choices.pop(PART)]
        compile_to_cache(tape, replace(self._options, tuned=Plan.of(choices).choices))

    def compile(self, plan: Plan) -> Any:
        """Nothing of it: it is measured elsewhere."""
        raise TuningError(f"{plan} is compiled here, and measured where its device is", fix="call `prepare`")

    def flush(self) -> None:
        """Nothing: nothing runs."""

    def close(self) -> None:
        """Nothing: it has no memory of a device."""


def build(parts: Mapping[str, Tape], options: str) -> CompileParts:
    """The workload of a compiling process."""
    return CompileParts(parts, options)


class PooledMeasurer(InProcess):
    """Measures in this process what others have compiled."""

    def __init__(self, workload: ProgramWorkload, pool: Isolated, part: str) -> None:
        super().__init__(workload, Protocol(), is_distinct=True)
        self._pool, self._part, self._programs = pool, part, workload

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Compile plans together; the reasons of those that cannot be."""
        wanted = {Plan.of({**plan.overrides, PART: self._part}): plan for plan in plans}
        failed = self._pool.prepare(list(wanted), seconds)
        return {wanted[plan]: reason for plan, reason in failed.items()}


@contextmanager
def compile_pool(parts: Mapping[str, Tape], options: Options) -> Generator[Isolated | None]:
    """Processes that compile programs, where that takes long and they can have all of them; else None.

    Kernels of a user and functions that a program calls are this process's alone.
    """
    has_own = any(tape.functions or _calls_kernels(tape) for tape in parts.values())
    if manifest_of(options.backend).runs_in_host_memory or has_own:
        yield None
        return
    job = Job(f"{__name__}:build", (dict(parts), options.text))
    with Isolated(job, Protocol()) as pool:
        yield pool


def _calls_kernels(tape: Tape) -> bool:
    return any("kernel" in record.attributes or any(map(_calls_kernels, record.bodies)) for record in tape.records)
