"""Measures plans in child processes: a crash, a hang or a broken device costs one plan, and its trial says so.

One child measures, with the safe plan beside each candidate; others compile, as many together as there are workers,
and leave what they made in the disk cache, where the measuring child finds it. A child that failed is ended and a new
one takes its place: after a sticky error a CUDA context answers nothing any more. Children are fresh interpreters and
never import the program that started them, so a script needs no guard of its main module. A job may have several parts
(the groups of a program, say), which share the children: one part at a time has its tensors in memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
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
from typing import IO, Any, Self, TypeAlias

from tessera.diagnostics.codes import SearchError
from tessera.diagnostics.error import TesseraError
from tessera.tuner.protocol import LEAST_ROUNDS, SAME_CODE, InProcess, Protocol, Workload, first_line
from tessera.tuner.records import Plan, Trial
from tessera.types.frozen import frozen
from tessera.types.settings import usable_cpus

TIMEOUT = 30.0
"""Seconds that compiling or measuring one plan may take."""
START_TIMEOUT = 180.0
"""Seconds that a child may take to import, build its workload and compile the safe plan."""
_MOST_WORKERS = 16
LOADING = 5.0
"""Seconds to load a plan that was compiled and to compare its bits, on a busy machine."""
_SLOWEST = 10.0
"""Times the safe plan's time, with which a plan that hangs is told from one that is slow and left after some rounds."""
_OVERRUN = 1.0
"""Seconds after those it is given that a compilation may still take; what began last would else never end."""
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
    _volunteer()
    job: Job = pickle.loads(connection.recv_bytes())
    work = _ChildWork(job, connection.recv())
    while True:
        try:
            kind, part, plan, rounds, seconds = connection.recv()
        except EOFError:
            return
        signal.alarm(int(seconds) + _GRACE)
        try:
            connection.send(("done", work.answer(kind, part, plan, rounds)))
        except Exception as error:  # whatever a plan raises costs this plan alone, and is its reason
            connection.send(("failed", first_line(error)))
        signal.alarm(0)


def _volunteer() -> None:
    """Be the process that Linux ends where memory is used up: a plan that takes all of it costs a child."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:  # another system, or one that does not let it be said: then memory decides
        return


class _ChildWork:
    """What a child does: the workload of its job, and the measurer of the part that was asked about last."""

    def __init__(self, job: Job, protocol: Protocol) -> None:
        self._job, self._protocol = job, protocol
        self._whole: Any = None
        self._part: str | None = None
        self._measurer: InProcess | None = None

    def answer(self, kind: str, part: str, plan: Plan, rounds: int) -> Any:
        """What a request is answered with."""
        if self._whole is None:
            self._whole = self._job.build()
        if kind == "prepare":
            return self._prepare(self._whole.part(part) if part else self._whole, plan)
        if self._measurer is None or self._part != part:
            if self._measurer is not None:
                self._measurer.close()
            workload = self._whole.part(part) if part else self._whole
            self._part, self._measurer = part, InProcess(workload, self._protocol)
        if kind == "start":
            return self._measurer.safe_bits, self._measurer.time_safe()
        return self._measurer.measure(plan, rounds)

    def _prepare(self, workload: Workload, plan: Plan) -> tuple[str, str]:
        """Why a plan cannot be compiled, and else a digest of its code, where the workload knows one."""
        try:
            return "", workload.prepare(plan) or ""
        except TesseraError as error:
            return f"not compiled: {first_line(error)}", ""


# In the parent.


def start_child(main: str, files: Sequence[int] = ()) -> tuple[subprocess.Popen[bytes], Connection, IO[bytes]]:
    """A process that runs a line of Python with our modules, the connection to it, and the file of its errors.

    The connection is its standard input; it keeps open `files`, which are numbers of ours.
    """
    ours, theirs = socket.socketpair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    process = subprocess.Popen(
        [sys.executable, "-c", main],
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)},
        pass_fds=files,
        start_new_session=True,  # the terminal's Ctrl-C is not for it
    )
    theirs.close()
    return process, Connection(ours.detach()), errors


class _Child:
    """A process that serves, and the connection to it."""

    def __init__(self, job: bytes, protocol: Protocol) -> None:
        self.process, self.connection, self._errors = start_child(_MAIN)
        self.connection.send_bytes(job)
        self.connection.send(protocol)
        self.deadline = 0.0
        self.part = ""
        self.plan = Plan()

    def send(self, kind: str, part: str, plan: Plan, rounds: int, seconds: float) -> None:
        """Ask for something that may take so many seconds."""
        self.part, self.plan, self.deadline = part, plan, time.monotonic() + seconds
        try:
            self.connection.send((kind, part, plan, rounds, seconds))
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

    A plan that crashes, hangs for `timeout` seconds, raises, or breaks the device gives a trial with the reason. Where
    a job has parts, each call names one.
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
        self._prepared: dict[tuple[str, Plan], tuple[str, str]] = {}
        """Of each part and plan, why it cannot be compiled, and a digest of its code."""
        self._codes: dict[tuple[str, str], Plan] = {}
        """The first plan of each part and code."""
        self._safe: dict[str, tuple[str, float]] = {}
        """Of each part, the hash of what its safe plan gives, and the seconds of a run of that."""
        self.restarts = 0
        """Children that were replaced."""

    @property
    def safe_bits(self) -> str:
        """The hash of what the safe plan gives; a child is started for it where none runs."""
        return self.bits_of("")

    def bits_of(self, part: str) -> str:
        """The hash of what the safe plan of a part gives."""
        if part not in self._safe:
            self._start(part)
        return self._safe[part][0]

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None, part: str = "") -> Mapping[Plan, str]:
        """Compile plans in parallel, beginning none after so many seconds; the reasons of those that failed."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        waiting = [plan for plan in dict.fromkeys(plans) if (part, plan) not in self._prepared]
        idle, busy = self._workers, list[_Child]()
        self._workers = []
        try:
            while waiting or busy:
                while waiting and time.monotonic() < end and len(busy) < self._count:
                    # A fresh one builds its workload first, which takes longer than any plan.
                    limit = min(self._timeout if idle else self._start_timeout, end - time.monotonic() + _OVERRUN)
                    busy.append(idle.pop() if idle else _Child(self._job, self._protocol))
                    busy[-1].send("prepare", part, waiting.pop(0), 0, limit)
                if not busy:
                    break
                self._collect(busy, idle)
        finally:
            for child in busy:
                child.close()
            self._workers = idle
        found = {plan: self._prepared.get((part, plan), ("", ""))[0] for plan in plans}
        return {plan: reason for plan, reason in found.items() if reason}

    def _collect(self, busy: list[_Child], idle: list[_Child]) -> None:
        """Take the answers of those that are done, or whose time is over."""
        until = max(0.0, min(child.deadline for child in busy) - time.monotonic())
        ready = wait([child.connection for child in busy], until)
        for child in list(busy):
            if child.connection not in ready and child.deadline > time.monotonic():
                continue
            busy.remove(child)
            answer, is_usable = child.receive()
            found: tuple[str, str] = answer[1] if is_usable else (f"not compiled: {answer[1]}", "")
            self._prepared[child.part, child.plan] = found
            if is_usable:
                idle.append(child)
            else:
                self.restarts += 1
                child.close()

    def _first_of_code(self, plan: Plan, part: str) -> Plan:
        """The first plan of a part that has the code of this one, of those that were measured; the safe one is first.

        It is known of plans that were prepared, by a workload that knows a digest of code.
        """
        for one in (Plan(), plan):
            _, code = self._prepared.get((part, one), ("", ""))
            if code:
                self._codes.setdefault((part, code), one)
        code = self._prepared.get((part, plan), ("", ""))[1]
        return self._codes.get((part, code), plan)

    def measure(self, plan: Plan, rounds: int = LEAST_ROUNDS, part: str = "", *, timeout: float | None = None) -> Trial:
        """Measure a plan in the child; raises SearchError (T0810) only where the safe plan cannot run.

        One with the code of a plan before it is not: the two would differ by noise alone.
        """
        first = self._first_of_code(plan, part)
        if first != plan:
            return Trial(plan, reason=f"{SAME_CODE} {first}")
        child = self._start(part)
        limit = self._limit(part, rounds)
        child.send("measure", part, plan, rounds, limit if timeout is None else min(limit, timeout))
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

    def _start(self, part: str) -> _Child:
        """The child that measures, with the safe plan of a part compiled."""
        child = self._measuring or _Child(self._job, self._protocol)
        if self._measuring is None or child.part != part:
            self._measuring = child
            child.send("start", part, Plan(), 0, self._start_timeout)
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
            self._safe[part] = answer[1]
        return child

    def _limit(self, part: str, rounds: int) -> float:
        """Seconds that measuring a plan may take: enough for one that is much slower than the safe plan."""
        runs = self._protocol.warmups + rounds
        return min(self._timeout, LOADING + _SLOWEST * runs * self._safe[part][1])

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
