"""Measures plans in child processes: a crash, a hang or a broken device costs one plan, and its trial says so.

One child measures, with the safe plan beside each candidate; others compile, as many together as there are workers,
and leave what they made in the disk cache, where the measuring child finds it. A child that failed is ended and a new
one takes its place: after a sticky error a CUDA context answers nothing any more. Children are fresh interpreters and
never import the program that started them, so a script needs no guard of its main module.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias

from tessera.diagnostics.codes import SearchError
from tessera.diagnostics.error import TesseraError
from tessera.tuner.protocol import LEAST_ROUNDS, InProcess, Protocol, Workload, first_line
from tessera.tuner.records import Plan, Trial
from tessera.types.frozen import frozen
from tessera.types.settings import usable_cpus

TIMEOUT = 30.0
"""Seconds that compiling or measuring one plan may take."""
START_TIMEOUT = 180.0
"""Seconds that a child may take to import, build its workload and compile the safe plan."""
_MOST_WORKERS = 16
_GRACE = 5
"""Seconds after its time-out at which a child is ended by its own alarm, should its parent be gone."""
_MAIN = "from tessera.tuner.runner import serve; serve()"

Answer: TypeAlias = tuple[str, Any]
"""`done` with a result, or `failed` with a reason."""


@frozen
class Job:
    """What a child builds: the path of a function, as `package.module:function` or `file.py:function`, and arguments.

    The function gives a `Workload`; arguments must be picklable, as they are sent to each child.
    """

    builder: str
    arguments: tuple[Any, ...] = ()

    def build(self) -> Workload:
        """Import the function and call it."""
        path, _, name = self.builder.rpartition(":")
        module = _load_file(path) if path.endswith(".py") else importlib.import_module(path)
        return getattr(module, name)(*self.arguments)

    def check(self) -> bytes:
        """The job as bytes; raises SearchError (T0810) where it cannot be sent to a child."""
        if not all(self.builder.rpartition(":")[::2]):
            raise SearchError(
                f"`{self.builder}` names no function that builds a workload",
                fix="write `package.module:function`, or the path of a file: `file.py:function`",
            )
        try:
            return pickle.dumps(self)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise SearchError(
                f"the arguments of `{self.builder}` cannot be sent to another process: {first_line(error)}",
                fix="give plain values that the builder makes arrays and functions of, or measure with `InProcess`",
            ) from error


def _load_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tessera_tuned_file", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"`{path}` is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# In a child.


def serve() -> None:
    """Answer requests until the parent closes: the main function of a child, whose connection is its standard input."""
    connection = Connection(os.dup(0))
    # Ctrl-C is for the parent, which ends its children; a hang must end even where the parent is gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    job: Job = pickle.loads(connection.recv_bytes())
    protocol: Protocol = connection.recv()
    measurer: InProcess | None = None
    workload: Workload | None = None
    while True:
        try:
            kind, plan, rounds, seconds = connection.recv()
        except EOFError:
            return
        signal.alarm(int(seconds) + _GRACE)
        try:
            if workload is None:
                workload = job.build()
                measurer = InProcess(workload, protocol)
            assert measurer is not None
            connection.send(("done", _answer(kind, workload, measurer, plan, rounds)))
        except Exception as error:  # whatever a plan raises costs this plan alone, and is its reason
            connection.send(("failed", first_line(error)))
        signal.alarm(0)


def _answer(kind: str, workload: Workload, measurer: InProcess, plan: Plan, rounds: int) -> Any:
    if kind == "start":
        return measurer.safe_bits
    if kind == "prepare":
        try:
            workload.prepare(plan)
        except TesseraError as error:
            return f"not compiled: {first_line(error)}"
        return ""
    return measurer.measure(plan, rounds)


# In the parent.


class _Child:
    """A process that serves, and the connection to it."""

    def __init__(self, job: bytes, protocol: Protocol) -> None:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MAIN],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)},
            start_new_session=True,  # the terminal's Ctrl-C is not for it
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.connection.send_bytes(job)
        self.connection.send(protocol)
        self.deadline = 0.0
        self.plan = Plan()

    def send(self, kind: str, plan: Plan, rounds: int, seconds: float) -> None:
        """Ask for something that may take so many seconds."""
        self.plan, self.deadline = plan, time.monotonic() + seconds
        try:
            self.connection.send((kind, plan, rounds, seconds))
        except OSError:  # it is gone, which whoever receives finds
            self.deadline = time.monotonic()

    def receive(self) -> tuple[Answer, bool]:
        """What it answers, and whether it may be asked more: not after a crash, a hang, or an error of its own."""
        try:
            if self.connection.poll(max(0.0, self.deadline - time.monotonic())):
                answer: Answer = self.connection.recv()
                return answer, answer[0] == "done"
        except (EOFError, OSError):
            return ("failed", self._ending()), False
        if self.process.poll() is not None:
            return ("failed", self._ending()), False
        return ("failed", "it did not end in time"), False

    def _ending(self) -> str:
        """How it ended by itself, with the last line that it wrote."""
        code = self.process.wait()
        how = f"crashed: {_signal_name(-code)}" if code < 0 else f"crashed: exit status {code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1][:200]}" if lines else how

    def close(self) -> None:
        """End it."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        self._errors.close()


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


class Isolated:
    """Measures plans of a job in children; `workers` of them compile, one measures. It is a context manager.

    A plan that crashes, hangs for `timeout` seconds, raises, or breaks the device gives a trial with the reason.
    """

    def __init__(
        self,
        job: Job,
        protocol: Protocol | None = None,
        *,
        workers: int = 0,
        timeout: float = TIMEOUT,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self._job, self._protocol = job.check(), protocol or Protocol()
        self._count = workers or min(_MOST_WORKERS, usable_cpus())
        self._timeout, self._start_timeout = timeout, start_timeout
        self._measuring: _Child | None = None
        self._workers: list[_Child] = []
        self._prepared: dict[Plan, str] = {}
        self._bits = ""
        self.restarts = 0
        """Children that were replaced."""

    @property
    def safe_bits(self) -> str:
        """The hash of what the safe plan gives; a child is started for it where none runs."""
        self._start()
        return self._bits

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Compile plans in parallel, beginning none after so many seconds; the reasons of those that failed."""
        end = None if seconds is None else time.monotonic() + seconds
        waiting = [plan for plan in dict.fromkeys(plans) if plan not in self._prepared]
        idle, busy = self._workers, list[_Child]()
        self._workers = []
        try:
            while waiting or busy:
                is_over = end is not None and time.monotonic() >= end
                while waiting and not is_over and len(busy) < self._count:
                    # A fresh one builds its workload first, which takes longer than any plan.
                    limit = self._timeout if idle else self._start_timeout
                    busy.append(idle.pop() if idle else _Child(self._job, self._protocol))
                    busy[-1].send("prepare", waiting.pop(0), 0, limit)
                if not busy:
                    break
                self._collect(busy, idle)
        finally:
            for child in busy:
                child.close()
            self._workers = idle
        return {plan: self._prepared[plan] for plan in plans if self._prepared.get(plan)}

    def _collect(self, busy: list[_Child], idle: list[_Child]) -> None:
        """Take the answers of those that are done, or whose time is over."""
        until = max(0.0, min(child.deadline for child in busy) - time.monotonic())
        ready = wait([child.connection for child in busy], until)
        for child in list(busy):
            if child.connection not in ready and child.deadline > time.monotonic():
                continue
            busy.remove(child)
            answer, is_usable = child.receive()
            self._prepared[child.plan] = answer[1] if is_usable else f"not compiled: {answer[1]}"
            if is_usable:
                idle.append(child)
            else:
                self.restarts += 1
                child.close()

    def measure(self, plan: Plan, rounds: int = LEAST_ROUNDS) -> Trial:
        """Measure a plan in the child; raises SearchError (T0810) only where the safe plan cannot run."""
        child = self._start()
        child.send("measure", plan, rounds, self._timeout)
        try:
            answer, is_usable = child.receive()
        except BaseException:  # Ctrl-C while it ran: what it answers later is of no use
            self._drop()
            raise
        trial: Trial = answer[1] if is_usable else Trial(plan, reason=answer[1])
        # After an error of the device its context may be broken for all that comes.
        if not is_usable or trial.reason.startswith("failed"):
            self.restarts += 1
            self._drop()
        return trial

    def _start(self) -> _Child:
        if self._measuring is None:
            child = self._measuring = _Child(self._job, self._protocol)
            child.send("start", Plan(), 0, self._start_timeout)
            try:
                answer, is_usable = child.receive()
            except BaseException:
                self._drop()
                raise
            if not is_usable:
                self._drop()
                raise SearchError(
                    f"the safe plan cannot be measured: {answer[1]}",
                    fix="run the function once without tuning; what fails there fails here",
                )
            self._bits = answer[1]
        return self._measuring

    def _drop(self) -> None:
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None

    def close(self) -> None:
        """End all children."""
        self._drop()
        for child in self._workers:
            child.close()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
