"""`Stages`: runs the passes and exit verifier of each stage, times, dumps, and says whose fault a failure is."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics import codes
from tessera.diagnostics.error import CompilationError, InternalError, TesseraError
from tessera.ir.base.compilation import without_collection, write_reproducer
from tessera.ir.base.effects import check_order, steps_of
from tessera.ir.base.op import OpError
from tessera.ir.base.passes import Pass, pipeline_text
from tessera.ir.base.text import print_module
from tessera.ir.base.verify import Legality, verify
from tessera.types.frozen import frozen
from tessera.types.settings import Settings

_USER_ERRORS: dict[str, type[CompilationError]] = {
    "graph": codes.GraphVerifyError,
    "schedule": codes.ScheduleError,
    "tile": codes.TileVerifyError,
    "target": codes.TargetVerifyError,
}


@frozen
class Step:
    """One pass that ran: where, for how long, and how many ops it left."""

    stage: str
    name: str
    seconds: float
    ops: int


@frozen
class Snapshot:
    """The text after a pass; the first of a stage is named `input`."""

    stage: str
    name: str
    text: str


Visit: TypeAlias = "tuple[str, Sequence[Pass], Legality | None]"


@dataclass
class Stages:
    """The walk of one module through its stages.

    With `rebuild` (how to make the module again from its tape) the walk is quick: each stage is verified once, at its
    end, and only a failure is walked again, slowly, to find the pass and the text before it. Without, or with
    `TESSERA_VERIFY=1`, every pass is verified and its text kept until the next. `TESSERA_DUMP=dir` writes the text
    after each pass, `TESSERA_TIMING=1` prints a table at `finish`. With `keep_locations` texts say where ops came from.
    """

    rebuild: Callable[[], ModuleOp] | None = None
    keep_snapshots: bool = False
    keep_locations: bool = False
    steps: list[Step] = field(default_factory=list[Step], init=False)
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot], init=False)
    _history: list[Visit] = field(default_factory=list["Visit"], init=False)

    def __post_init__(self) -> None:
        settings = Settings.from_environment()
        self._dump, self._timing = settings.dump_dir, settings.timing
        self._careful = self.rebuild is None or os.environ.get("TESSERA_VERIFY") == "1"

    def run(
        self,
        stage: str,
        passes: Sequence[Pass],
        module: ModuleOp,
        legality: Legality | None = None,
        *,
        are_verified: bool = False,
    ) -> None:
        """Take the module through a stage, in place; `are_verified` says that its passes verify what they make.

        Raises the stage's verify error when the module is wrong on entering the first stage (the user's mistake),
        InternalError naming the pass when it is wrong after one, and lets through what a pass says to the user.
        """
        if not self._history:
            check_entry(stage, module)
        self._history.append((stage, passes, legality))
        self._keep(stage, "input", module)
        with without_collection():
            for one in passes:
                self._run_pass(stage, one, module)
            self._verify_exit(stage, passes, module, legality, are_verified)

    def _run_pass(self, stage: str, one: Pass, module: ModuleOp) -> None:
        before = print_module(module, locations=True) if self._careful else None
        steps = steps_of(module) if self._careful and stage == "graph" else None
        started = time.perf_counter()
        try:
            one.run(module)
            seconds = time.perf_counter() - started
            if self._careful:
                verify(module)
            if steps is not None:
                check_order(one.name, module, steps)
        except TesseraError:
            raise
        except Exception as error:
            raise self._blame(stage, one, before, error) from error
        ops = sum(1 for _ in module.walk()) if self._timing else 0
        self.steps.append(Step(stage, one.name, seconds, ops))
        self._keep(stage, one.name, module)

    def _verify_exit(
        self, stage: str, passes: Sequence[Pass], module: ModuleOp, legality: Legality | None, are_verified: bool
    ) -> None:
        started = time.perf_counter()
        try:
            if self._careful or not are_verified:
                verify(module)
            if legality is not None:
                legality.check(module)
        except OpError as error:
            raise self._blame(stage, passes[-1] if passes else None, None, error) from error
        self.steps.append(Step(stage, "exit", time.perf_counter() - started, 0))

    def _blame(self, stage: str, one: Pass | None, before: str | None, error: Exception) -> InternalError:
        """The error for a failure of ours; a quick walk is walked again to find the pass that did it."""
        if before is None and self.rebuild is not None:
            again = Stages(rebuild=None)
            module = self.rebuild()
            try:
                for past_stage, passes, legality in self._history:
                    again.run(past_stage, passes, module, legality)
            except InternalError as found:
                return found
        name = one.name if one is not None else stage
        message = error.message if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
        if before is None:
            return InternalError(message, where=name)
        command_passes = pipeline_text([one]) if one is not None else ""
        header = _reproducer_header(name, message, [past.text for _, passes, _ in self._history for past in passes])
        path = write_reproducer(name, ".mlir", f"{header}\n{before}")
        command = f"tessera-opt {path} -p '{command_passes}'"
        return InternalError(message, where=name, reproducer=str(path), command=command)

    @contextmanager
    def measure(self, stage: str, name: str) -> Generator[None]:
        """Time what is done to a program by other means than a pass."""
        started = time.perf_counter()
        yield
        self.steps.append(Step(stage, name, time.perf_counter() - started, 0))

    def _keep(self, stage: str, name: str, module: ModuleOp) -> None:
        if not self.keep_snapshots and self._dump is None:
            return
        text = print_module(module, locations=self.keep_locations)
        if self.keep_snapshots:
            self.snapshots.append(Snapshot(stage, name, text))
        if self._dump is not None:
            self._dump.mkdir(parents=True, exist_ok=True)
            number = len(list(self._dump.glob("*.mlir")))
            (self._dump / f"{number:03}-{stage}-{name.removeprefix(f'{stage}-')}.mlir").write_text(text)

    def finish(self) -> None:
        """Print the table of times where `TESSERA_TIMING=1` asks for it."""
        if self._timing:
            print(self.timing_table(), file=sys.stderr)

    def timing_table(self) -> str:
        """Milliseconds of every pass, in order, and their sum."""
        rows = [
            f"{step.seconds * 1e3:9.2f} ms  {step.stage:9} {step.name:32} {step.ops or '':>7}" for step in self.steps
        ]
        total = sum(step.seconds for step in self.steps) * 1e3
        return "\n".join([*rows, f"{total:9.2f} ms  in all"])


def check_entry(stage: str, module: ModuleOp) -> None:
    """Verify a module that comes from outside: a failure is the user's, and is shown at its source."""
    try:
        verify(module)
    except OpError as error:
        raise user_error(stage, error) from error


def user_error(stage: str, error: OpError) -> CompilationError:
    """A verifier's failure as an error of the user's."""
    kind = _USER_ERRORS.get(stage, codes.GraphVerifyError)
    return kind(error.message, span=error.span, fix=error.advice or None)


def _reproducer_header(name: str, message: str, passes: Sequence[str]) -> str:
    versions = f"tessera {_version('tessera')}, xdsl {_version('xdsl')}, llvmlite {_version('llvmlite')}"
    lines = [
        f"Failed in {name}: {message}",
        f"Pipeline: {','.join(passes)}",
        f"Versions: {versions}, python {platform.python_version()}, {platform.machine()}",
    ]
    return "\n".join(f"// {line}" for text in lines for line in text.splitlines())


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - loads half of `email`

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
