"""The processes of the code generator, as the compiler uses them: start, ask, restart, and leave none behind."""

from __future__ import annotations

import atexit
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, NoReturn

from tessera.ir.target import worker as protocol
from tessera.types.settings import compile_workers

_ROOT = str(Path(__file__).resolve().parents[3])
_LIMIT = 8
"""More workers than this help no compile that we have seen, and each holds some 60 MB."""
END_SECONDS = 0.5
"""How long workers that are asked to end may take, all together, before they are killed."""
KILL_SECONDS = 0.3
"""How long the process that forked workers may take to see that they were killed."""
START_SECONDS = 30.0
"""How long a worker may take to start: far more than it needs on a machine under load."""


@cache
def _generator_folders() -> tuple[str, ...]:
    """The folders that llvmlite is imported from, found without loading it."""
    spec = find_spec("llvmlite")
    return tuple(map(os.path.dirname, (spec and spec.submodule_search_locations) or ()))


class WorkerDiedError(Exception):
    """The worker ended, or was ended, before it answered; `text` is the last that it printed.

    `is_sudden` is whether somebody else may have ended it: then another worker may well do the same work.
    """

    def __init__(self, reason: str, text: str, *, is_sudden: bool) -> None:
        super().__init__(reason)
        self.reason, self.text, self.is_sudden = reason, text, is_sudden


class RefusedTextError(Exception):
    """The worker is well and will not compile the text; the message says why."""


class PoolClosedError(Exception):
    """The workers were closed before they answered, as they are when the interpreter ends."""


class WorkerGroup:
    """Some workers forked by one process, which loads LLVM once for them all and says how each one ended."""

    def __init__(self, size: int) -> None:
        requests, replies = ([os.pipe() for _ in range(size)] for _ in range(2))
        printed: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(size)]  # noqa: SIM115 - workers close them
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the group
        ends = [(r[0], w[1], file.fileno()) for r, w, file in zip(requests, replies, printed, strict=True)]
        # Copies above 2, which the child uses otherwise: a process without standard files has pipes there.
        theirs = [tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in three) for three in ends]
        try:
            self._process = self._launch(theirs)
        except BaseException:
            for descriptor in (one for pair in (*requests, *replies) for one in pair):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (one for three in theirs for one in three):
                os.close(descriptor)
        self._lock = threading.Lock()
        self._received = b""
        self._process_ids: list[int] = []
        self._exit_codes: dict[int, int] = {}
        for request, reply, _ in ends:
            os.close(request)
            os.close(reply)
        self.workers = [
            Worker(self, index, os.fdopen(r[1], "wb"), os.fdopen(w[0], "rb"), file)
            for index, (r, w, file) in enumerate(zip(requests, replies, printed, strict=True))
        ]
        self._running = size

    def _launch(self, theirs: Sequence[tuple[int, ...]]) -> subprocess.Popen[bytes]:
        paths = [_ROOT, *_generator_folders(), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            # Without `site`, which reads every `.pth` file of the environment; what a worker needs is in its path.
            [sys.executable, "-S", "-c", f"from tessera.ir.target.worker import main; main({theirs})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[one for three in theirs for one in three],
        )

    @property
    def own_id(self) -> int:
        """The id of the process that forked the workers."""
        return self._process.pid

    def pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self._process.stdin, self._process.stdout) if pipe is not None]

    def process_id(self, index: int) -> int | None:
        """The id of a worker, once it is forked; None where the group ended before."""
        self._receive(lambda: bool(self._process_ids), START_SECONDS)
        return self._process_ids[index] if self._process_ids else None

    def exit_code(self, index: int, timeout: float) -> int | None:
        """How a worker ended, minus a signal's number where one ended it; None where it runs, or nobody knows."""
        self._receive(lambda: index in self._exit_codes, timeout)
        return self._exit_codes.get(index)

    def kill(self, index: int) -> None:
        """End a worker that does not listen, or all of them where none is forked yet; it is gone a little later."""
        # Not one that is known to have ended: another process may have its number by now.
        if self.exit_code(index, timeout=0) is not None:
            return
        if not self._process_ids:
            self._process.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self._process_ids[index], signal.SIGKILL)
        self.wake()

    def wake(self) -> None:
        """Let the process that forked the workers go on where somebody stopped it: it has to see how they end."""
        self._process.send_signal(signal.SIGCONT)

    def read_printed(self) -> str:
        """What the group printed: why it could not start."""
        return _read_printed(self._printed)

    def _receive(self, is_known: Callable[[], bool], timeout: float) -> None:
        """Read what the group reports until something is known, or the time is over, or the group has ended."""
        deadline = time.monotonic() + timeout
        while True:
            rest = deadline - time.monotonic()
            with self._lock:  # not for long: others ask too, and one of them may close the group
                if is_known() or not self._receive_some(min(max(0.0, rest), 0.02)) or rest <= 0:
                    return

    def _receive_some(self, timeout: float) -> bool:
        """Whether there may be more to read."""
        reports = self._process.stdout
        if reports is None or reports.closed:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(reports, selectors.EVENT_READ)
            if not selector.select(timeout):
                return True
        chunk = os.read(reports.fileno(), 1 << 12)
        self._parse(chunk)
        return bool(chunk)

    def _parse(self, chunk: bytes) -> None:
        """The ids of all workers come first, then an id and an exit code for each that ends."""
        self._received += chunk
        length, ended = protocol.LENGTH, protocol.ENDED
        start = len(self.workers) * length.size
        if not self._process_ids and len(self._received) >= start:
            self._process_ids = [number for (number,) in length.iter_unpack(self._received[:start])]
            self._received = self._received[start:]
        while self._process_ids and len(self._received) >= ended.size:
            process_id, code = ended.unpack_from(self._received)
            self._exit_codes[self._process_ids.index(process_id)] = code
            self._received = self._received[ended.size :]

    def end_one(self) -> None:
        """Count a worker that has ended; with the last one the group ends."""
        with self._lock:
            self._running -= 1
            if self._running:
                return
            for pipe in self.pipes():
                pipe.close()
        self.wake()
        try:
            self._process.wait(timeout=KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._printed.close()


def _read_printed(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


class Worker:
    """One process; one request at a time."""

    def __init__(
        self, group: WorkerGroup, index: int, requests: IO[bytes], replies: IO[bytes], printed: IO[bytes]
    ) -> None:
        self.group, self._index = group, index
        self._requests, self._replies, self._printed = requests, replies, printed

    @property
    def process_id(self) -> int | None:
        return self.group.process_id(self._index)

    def pipes(self) -> list[IO[bytes]]:
        return [self._requests, self._replies]

    def ask(self, header: dict[str, Any], body: bytes, timeout: float) -> tuple[dict[str, Any], bytes]:
        """The worker's answer; raises WorkerDiedError after which this worker must not be asked again."""
        deadline = time.monotonic() + timeout
        try:
            self._write(protocol.to_frame(header, body), deadline)
            (size,) = protocol.LENGTH.unpack(self._read(self._replies.fileno(), protocol.LENGTH.size, deadline))
            payload = self._read(self._replies.fileno(), size, deadline)
        except BrokenPipeError:
            self._end_early(self._how_it_ended())
        head, _, body = payload.partition(b"\n")
        return protocol.json.loads(head), body

    def has_ended(self) -> bool:
        """Whether an idle worker's pipe is at its end; there is nothing else to read from one that was not asked."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies.fileno(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def _write(self, frame: bytes, deadline: float) -> None:
        """Send a frame; a worker that was stopped reads none, and the pipe is full soon."""
        descriptor, rest = self._requests.fileno(), memoryview(frame)
        os.set_blocking(descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_WRITE)
            while rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._end_early("took too long and was ended", is_sudden=False)
                rest = rest[os.write(descriptor, rest[: 1 << 16]) :]

    def _read(self, descriptor: int, size: int, deadline: float) -> bytes:
        parts = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while len(parts) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._end_early("took too long and was ended", is_sudden=False)
                chunk = os.read(descriptor, min(size - len(parts), 1 << 20))
                if not chunk:
                    self._end_early(self._how_it_ended())
                parts += chunk
        return bytes(parts)

    def _how_it_ended(self) -> str:
        code = self.group.exit_code(self._index, timeout=1)
        if code is None:
            return "closed its pipe"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def _end_early(self, reason: str, *, is_sudden: bool = True) -> NoReturn:
        self.kill()
        text = _read_printed(self._printed) or self.group.read_printed()
        self._wait(time.monotonic() + KILL_SECONDS)
        self._close_files()
        raise WorkerDiedError(reason, text, is_sudden=is_sudden)

    def kill(self) -> None:
        """End a worker that does not listen, or that is not to answer any more."""
        self.group.kill(self._index)

    def _wait(self, deadline: float) -> bool:
        """Whether the worker has ended by then."""
        return self.group.exit_code(self._index, timeout=max(0.0, deadline - time.monotonic())) is not None

    def ask_to_end(self) -> None:
        """Close the pipe, which the worker reads as the end."""
        try:
            self._requests.close()
        except BrokenPipeError:
            return  # unsent bytes of a request to a worker that is gone

    def end(self, deadline: float) -> None:
        """Ask the worker to end and wait for it; kill it where it does not listen."""
        self.ask_to_end()
        if not self._wait(deadline):
            self.kill()
            self._wait(deadline + KILL_SECONDS)
        self._close_files()

    def _close_files(self) -> None:
        self.ask_to_end()
        self._replies.close()
        self._printed.close()
        self.group.end_one()


@dataclass(frozen=True, slots=True)
class _Job:
    """A text that waits for a worker, and who waits for its bytes."""

    future: Future[tuple[bytes, dict[str, float]]]
    header: dict[str, Any]
    text: str
    timeout: float


class WorkerPool:
    """`size` workers, which all start together; requests wait for an idle one.

    The threads that talk to workers are daemons: the interpreter waits for others before it runs what is registered
    for its end, and so for a worker that was stopped, which only `close` ends.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # Last in, first out: a worker that has answered is surely ready, one that was never asked may be starting.
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._start(size)

    def _start(self, count: int) -> None:
        workers = WorkerGroup(count).workers
        with self._lock:
            if not self._is_closed:
                self._all.update(workers)
                self._idle += workers
                return
        for worker in workers:  # closed meanwhile
            worker.end(time.monotonic())

    def submit(self, header: dict[str, Any], text: str, timeout: float) -> Future[tuple[bytes, dict[str, float]]]:
        """The object bytes and the seconds of each step, later; fails with one of this file's errors."""
        job = _Job(Future(), header, text, timeout)
        with self._lock:
            if self._is_closed:
                job.future.set_exception(PoolClosedError())
                return job.future
            is_served = self._add_thread() or bool(self._threads)
            if is_served:
                self._jobs.put(job)
        if not is_served:
            self._answer(job)
        return job.future

    def _add_thread(self) -> bool:
        """Start one more thread, up to `size`; False where none starts: none does while the interpreter ends."""
        if len(self._threads) >= self.size:
            return False
        thread = threading.Thread(target=self._serve, name=f"tessera-codegen-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _serve(self) -> None:
        """One of `size` threads: each talks to one worker at a time."""
        while (job := self._jobs.get()) is not None:
            self._answer(job)

    def _answer(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            answer = self._run(job)
        except BaseException as error:
            job.future.set_exception(PoolClosedError() if self._is_closed else error)
        else:
            job.future.set_result(answer)

    def _run(self, job: _Job) -> tuple[bytes, dict[str, float]]:
        body = job.text.encode()
        try:
            answer, body = self._ask(job.header, body, job.timeout)
        except WorkerDiedError as error:
            # Somebody may have ended it, a user or the system for want of memory, and all that were idle with it: one
            # that is new answers. What ends two was the text.
            if not error.is_sudden or self._is_closed:
                raise
            self._end_idle()
            answer, body = self._ask(job.header, body, job.timeout)
        if not answer["ok"]:
            raise RefusedTextError(body.decode(errors="replace"))
        return body, answer["seconds"]

    def _ask(self, header: dict[str, Any], body: bytes, timeout: float) -> tuple[dict[str, Any], bytes]:
        worker = self._take()
        try:
            answer = worker.ask(header, body, timeout)
        except BaseException as error:
            with self._lock:
                self._all.discard(worker)
            if not isinstance(error, WorkerDiedError):  # which has closed it
                worker.end(time.monotonic())
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
                return answer
        worker.end(time.monotonic() + KILL_SECONDS)
        return answer

    def _take(self) -> Worker:
        """An idle worker; a new one where there is none, as some have died: there are as many threads as workers."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise PoolClosedError
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                self._start(1)
            elif not worker.has_ended():
                return worker
            else:  # it was ended while it was idle
                with self._lock:
                    self._all.discard(worker)
                worker.end(time.monotonic() + KILL_SECONDS)

    def _end_idle(self) -> None:
        """Let go of the workers that were there when one died: some may have been ended and not be gone yet."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._all.difference_update(idle)
        for worker in idle:
            worker.end(time.monotonic() + KILL_SECONDS)

    def descriptors(self) -> list[int]:
        """The numbers of all open pipes to workers."""
        pipes = [pipe for worker in self._all for pipe in (*worker.pipes(), *worker.group.pipes())]
        return list({pipe.fileno() for pipe in pipes if not pipe.closed})

    def process_ids(self) -> list[int]:
        """The ids of all workers that are forked, and of the processes that forked them."""
        workers = [process_id for worker in self._all if (process_id := worker.process_id) is not None]
        return [*workers, *{worker.group.own_id for worker in self._all}]

    def close(self) -> None:
        """End all workers, those that work as well: their requests, and those that wait, fail with PoolClosedError."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy, self._all = self._all - set(idle), set()
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job.future.cancel()
        for worker in idle:
            worker.ask_to_end()
        for worker in busy:
            worker.kill()  # its thread reads the end of the pipe, and closes the files
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + END_SECONDS
        for worker in idle:
            worker.end(deadline)
        for thread in self._threads:
            thread.join(max(0.0, deadline + KILL_SECONDS - time.monotonic()))


_pool: WorkerPool | None = None
_pool_lock = threading.Lock()


def default_size() -> int:
    """`TESSERA_COMPILE_WORKERS`, or one worker for each core we may use."""
    return compile_workers(min(_LIMIT, len(os.sched_getaffinity(0))))


def pool() -> WorkerPool:
    """The workers of this process, starting in the background at the first call."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = WorkerPool(default_size())
        return _pool


def close_pool() -> None:
    """End the workers; the next `pool()` starts new ones."""
    global _pool
    with _pool_lock:
        closing, _pool = _pool, None
    if closing is not None:
        closing.close()


_abandoned: list[WorkerPool] = []
"""Pools of a parent process, kept so that their files are not closed a second time."""


def _forget_after_fork() -> None:
    # The pipes belong to the parent: a child that used them would read the parent's answers, and one that held them
    # open would keep the workers alive after the parent. Closed by number, as a lock of a file may be held for ever.
    global _pool, _pool_lock
    if _pool is not None:
        for descriptor in _pool.descriptors():
            os.close(descriptor)
        _abandoned.append(_pool)
    _pool, _pool_lock = None, threading.Lock()


atexit.register(close_pool)
os.register_at_fork(after_in_child=_forget_after_fork)
