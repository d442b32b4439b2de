"""A program to tune: compiled under plans, run on tensors of its own, timed by the clock of its device.

All of it happens outside of compilations. What is timed is counted, so that a test can say that nothing was.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tessera.api.compilation import compile_to_cache, device_of, load
from tessera.compiler.backend import backend_of, manifest_of
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CaptureError, TuningError
from tessera.frontend.concrete import copy_to_host
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.tape import DONATED, Tape
from tessera.runtime.tensor import Tensor
from tessera.tuner.protocol import LEAST_ROUNDS, DeviceEviction, capture_calls, device_time, host_time
from tessera.tuner.records import Plan, Trial
from tessera.tuner.runner import TIMEOUT, Isolated, Job
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.compiler.space import ProgramSpace
    from tessera.runtime.devices.cuda.nvml import Meter
    from tessera.runtime.executable import Executable

LEAST_RUN = 200_000
"""Nanoseconds that a timed run has at least, by calling a short program several times: a host call takes some 2 000 of
them, and a clock is read within 50."""
MOST_CALLS = 64
"""Calls of one timed run at most."""
LEAST_SECONDS = 2.0
"""Seconds that a plan may take at least, however little of the budget is left: it began within it."""
BUILDER = f"{__name__}:build"
"""What children build their workload by."""
PROGRAM = "program"
"""The name of the whole program among its groups."""
DESCRIPTIONS = ("arithmetic", "report", "spans", "work")
"""Metadata of an executable that is for people and models: it names choices, and nothing runs by it."""

_runs = 0


def code_digest(executable: Executable | None) -> str:
    """A digest of all that runs of an executable; empty for none."""
    if executable is None:
        return ""
    digest = hashlib.sha256()
    for part in (*executable.objects, executable.support):
        digest.update(len(part).to_bytes(8, "little") + part)
    facts = {name: fact for name, fact in executable.metadata.items() if name not in DESCRIPTIONS}
    digest.update(json.dumps(facts, sort_keys=True, default=repr).encode())
    return digest.hexdigest()


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
        self._burst: Callable[[], object] | None = None

    @property
    def code(self) -> str:
        """A digest of all that runs: equal for plans whose choices made no difference; empty where nobody knows."""
        return code_digest(getattr(self._program, "executable", None))

    def _arguments(self) -> Sequence[Any]:
        """The tensors of a call; what a program may write over is copied for each."""
        if not self._donated:
            return self._tensors
        return [tensor.copy() if number in self._donated else tensor for number, tensor in enumerate(self._tensors)]

    def run(self) -> float:
        """Nanoseconds of a call: by events of the device where it has them, else by the clock of this process.

        Several calls of a GPU are one CUDA graph: the host takes longer to launch a short kernel than that runs.
        """
        global _runs
        _runs += 1
        if not self._device.is_asynchronous:
            return host_time(self._prepare_calls()) / self.calls
        if self.calls > 1 and self._burst is None:
            self._capture()
        return device_time(self._burst or self._prepare_calls()) / self.calls

    def _capture(self) -> None:
        """All calls of a timed run as a graph; a program that waits for values of the device is called once instead."""
        self._program.run(self._arguments())  # nothing is loaded while a graph is captured
        try:
            self._burst = capture_calls(self._prepare_calls())
        except CaptureError:
            self.calls = 1

    def _prepare_calls(self) -> Callable[[], object]:
        """All calls of a timed run, whose tensors are there before it."""
        given, run = [self._arguments() for _ in range(self.calls)], self._program.run

        def call() -> None:
            for tensors in given:
                run(tensors)

        return call

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
        self._program, self._tensors, self._burst = None, (), None


class TapeWorkload:
    """A program with its arguments, compiled under any plan: `protocol.Workload`."""

    def __init__(
        self, tape: Tape, options: Options, tensors: Sequence[Any], flush: Callable[[], None] | None = None
    ) -> None:
        self.tape, self.plain_options, self._tensors, self._flush = tape, options, tensors, flush
        self._calls = 0

    def options(self, plan: Plan) -> Options:
        """The options that a plan is compiled with."""
        return replace(self.plain_options, tuned=plan.choices)

    def compile(self, plan: Plan) -> RunnableProgram:
        """The program under a plan."""
        options = self.options(plan)
        program, _ = load(self.tape, options, uses_stored=False)
        donated: Sequence[int] = tuple(self.tape.promises.get(DONATED, ()))
        device = device_of(manifest_of(options.backend))
        made = RunnableProgram(program, self._tensors, donated, device, options)
        if not self._calls:
            self._calls = _calls_of(made)
        made.calls = self._calls
        return made

    def prepare(self, plan: Plan) -> str:
        """Put the code of a plan into the disk cache; a digest of it. No device is needed."""
        return code_digest(compile_to_cache(self.tape, self.options(plan)))

    def meter(self) -> Meter | None:
        """What asks a GPU for its power, clocks and bandwidth around runs; a CPU does not say."""
        if manifest_of(self.plain_options.backend).runs_in_host_memory:
            return None
        from tessera.runtime.devices.cuda.nvml import Meter  # noqa: PLC0415 - for a GPU alone

        return Meter()

    def flush(self) -> None:
        """Evict caches, where somebody gave a way to."""
        if self._flush is not None:
            self._flush()

    def close(self) -> None:
        """Let the tensors go."""
        self._tensors = ()


class ProgramWorkload(TapeWorkload):
    """A program of which the space is known. Plans that would change bits are refused before they run."""

    def __init__(
        self, space: ProgramSpace, tensors: Sequence[Any] = (), flush: Callable[[], None] | None = None
    ) -> None:
        super().__init__(space.tape, space.options, tensors, flush)
        self.space = space
        self.sizes: Mapping[str, int] = {}
        """What symbolic dims are in its tensors."""

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
        return super().compile(plan)

    def spilling(self) -> Sequence[str]:
        """Kernels of the safe plan in which more is live than a thread has registers for."""
        made = compile_to_cache(self.tape, self.options(Plan()))
        return backend_of(self.plain_options.backend).spilling(made.metadata, made.objects)


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
    for _, shape, dtype in _shapes_of(tape, sizes):
        if dtype.is_float:
            array = rng.uniform(0.5, 1.5, shape).astype(np.float32).astype(numpy_dtype(dtype))
        else:
            array = np.zeros(shape, numpy_dtype(dtype))
        made.append(Tensor.of(array, dtype))
    return _on_device(made, options)


def _shapes_of(tape: Tape, sizes: Mapping[str, int]) -> Generator[tuple[int, list[int], DType]]:
    """The shape and dtype of each argument at some sizes, by its number."""
    for number, value in enumerate(tape.inputs):
        type = tape.types[value]
        shape = [dim.evaluate({name: sizes[name] for name in dim.symbols}) for dim in type.shape]
        yield number, shape, type.dtype


def _on_device(tensors: list[Any], options: Options) -> list[Any]:
    if manifest_of(options.backend).runs_in_host_memory:
        return tensors
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415 - for a GPU alone

    return [CudaTensor.of(tensor) for tensor in tensors]


# Programs in child processes: what is broken there costs one plan.


@frozen
class Part:
    """A program as children have it: its tensors are read from a folder, or made up where there is none."""

    tape: Tape
    sizes: Mapping[str, int]
    folder: str = ""


class ProgramParts:
    """What a child has, programs by name: it puts plans of them into the disk cache, or measures them."""

    def __init__(self, parts: Mapping[str, Part], options: str) -> None:
        from tessera.api.eager import prepare  # noqa: PLC0415 - a fresh process has nothing that tensors need

        prepare()
        self._parts, self._options = parts, Options.parse(options)

    def part(self, name: str) -> PartWorkload:
        """The workload of one of the programs."""
        return PartWorkload(self._parts[name], self._options)


class PartWorkload(TapeWorkload):
    """One of the programs: its tensors are there once something is to be run."""

    def __init__(self, part: Part, options: Options) -> None:
        super().__init__(part.tape, options, ())
        self._part = part

    def compile(self, plan: Plan) -> RunnableProgram:
        """The program under a plan, which whoever asks has found to change no bit."""
        if not self._tensors:
            part, options = self._part, self.plain_options
            self._tensors = read_tensors(part, options) if part.folder else make_tensors(part.tape, part.sizes, options)
            if self._flush is None and not manifest_of(options.backend).runs_in_host_memory:
                self._flush = DeviceEviction()
        return super().compile(plan)

    def close(self) -> None:
        """Let the tensors go, and what evicts caches."""
        super().close()
        if isinstance(self._flush, DeviceEviction):
            self._flush.close()
            self._flush = None


def build(parts: Mapping[str, Part], options: str) -> ProgramParts:
    """The workload of a child."""
    return ProgramParts(parts, options)


def write_tensors(tensors: Sequence[Any], folder: str) -> None:
    """Leave the bytes of tensors in a folder, a file each, where children read them."""
    for number, tensor in enumerate(copy_to_host(tensors)):
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(np.ascontiguousarray(np.asarray(tensor)).tobytes())


def read_tensors(part: Part, options: Options) -> list[Any]:
    """The tensors of a program that its parent left."""
    made: list[Any] = []
    for number, shape, dtype in _shapes_of(part.tape, part.sizes):
        with open(os.path.join(part.folder, str(number)), "rb") as file:
            array = np.frombuffer(bytearray(file.read()), numpy_dtype(dtype)).reshape(shape)
        made.append(Tensor.of(array, dtype))
    return _on_device(made, options)


class PartMeasurer:
    """Measures one of the programs of a pool in its child, beside the safe plan: `protocol.Measurer`."""

    def __init__(self, pool: Isolated, part: str, left: Callable[[], float]) -> None:
        """`left` are the seconds that are left of the budget: a plan that hangs takes no more of them."""
        self._pool, self._part, self._left = pool, part, left

    @property
    def safe_bits(self) -> str:
        """The hash of what the safe plan gives."""
        return self._pool.bits_of(self._part)

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Compile plans together; the reasons of those that failed. What has the safe plan's code is found by it."""
        return self._pool.prepare([Plan(), *plans], seconds, self._part)

    def measure(self, plan: Plan, rounds: int = LEAST_ROUNDS) -> Trial:
        """Measure a plan; what breaks its child, or takes too long, is its reason."""
        global _runs
        timeout = min(TIMEOUT, max(LEAST_SECONDS, self._left()))
        trial = self._pool.measure(plan, rounds, self._part, timeout=timeout)
        _runs += len(trial.samples) + len(trial.baseline)
        return trial

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: the pool is of all parts."""


def why_in_process(tapes: Sequence[Tape]) -> str:
    """Why no child can have these programs: what they need is this process's alone; empty where one can."""
    if any(tape.functions for tape in tapes):
        return "it calls functions of this process"
    return "it calls kernels that this process has defined" if any(map(_calls_kernels, tapes)) else ""


def _calls_kernels(tape: Tape) -> bool:
    return any("kernel" in record.attributes or any(map(_calls_kernels, record.bodies)) for record in tape.records)


@contextmanager
def program_pool(parts: Mapping[str, Part], options: Options, tensors: Sequence[Any]) -> Generator[Isolated | None]:
    """Children that compile and measure programs, that of `PROGRAM` with these tensors; None where they cannot."""
    if why_in_process([part.tape for part in parts.values()]):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tessera-tuning-") as folder:
        write_tensors(tensors, folder)
        given = {**parts, PROGRAM: replace(parts[PROGRAM], folder=folder)}
        with Isolated(Job(BUILDER, (given, options.text))) as pool:
            yield pool
