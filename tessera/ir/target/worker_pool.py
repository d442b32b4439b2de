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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import LifoQueue
from typing import IO, Any, NoReturn

from tessera.ir.target import worker as protocol
from tessera.types.settings import compile_workers

_ROOT = str(Path(__file__).resolve().parents[3])
_LIMIT = 8
"""More workers than this help no compile that we have seen, and each holds some 60 MB."""
END_SECONDS = 0.5
"""How long workers that are asked to end may take, all together, before they are killed."""
START_SECONDS = 30.0
"""How long a worker may take to start: far more than it needs on a machine under load."""


@cache
def _generator_folders() -> tuple[str, ...]:
    """The folders that llvmlite is imported from, found without loading it."""
    spec = find_spec("llvmlite")
    return tuple(map(os.path.dirname, (spec and spec.submodule_search_locations) or ()))


class WorkerDiedError(Exception):
    """The worker ended, or was ended, before it answered; `text` is the last that it printed."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.reason, self.text = reason, text


class RefusedTextError(Exception):
    """The worker is well and will not compile the text; the message says why."""


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
        """End a worker that does not listen, or all of them where none is forked yet."""
        # Not one that is known to have ended: another process may have its number by now.
        if self.exit_code(index, timeout=0) is not None:
            return
        if not self._process_ids:
            self._process.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self._process_ids[index], signal.SIGKILL)
        self.exit_code(index, timeout=0.2)

    def read_printed(self) -> str:
        """What the group printed: why it could not start."""
        return _read_printed(self._printed)

    def _receive(self, is_known: Callable[[], bool], timeout: float) -> None:
        """Read what the group reports until something is known, or the time is over, or the group has ended."""
        deadline = time.monotonic() + timeout
        reports = self._process.stdout
        with self._lock, selectors.DefaultSelector() as selector:
            if reports is None or reports.closed:
                return
            selector.register(reports, selectors.EVENT_READ)
            while not is_known() and selector.select(max(0.0, deadline - time.monotonic())):
                chunk = os.read(reports.fileno(), 1 << 12)
                if not chunk:
                    return
                self._parse(chunk)

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
        try:
            self._process.wait(timeout=END_SECONDS)
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
            protocol.write_frame(self._requests, header, body)  # pyright: ignore[reportArgumentType]
            (size,) = protocol.LENGTH.unpack(self._read(self._replies.fileno(), protocol.LENGTH.size, deadline))
            payload = self._read(self._replies.fileno(), size, deadline)
        except BrokenPipeError:
            self._end_early(self._how_it_ended())
        head, _, body = payload.partition(b"\n")
        return protocol.json.loads(head), body

    def _read(self, descriptor: int, size: int, deadline: float) -> bytes:
        parts = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while len(parts) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._end_early("took too long and was ended")
                chunk = os.read(descriptor, min(size - len(parts), 1 << 20))
                if not chunk:
                    self._end_early(self._how_it_ended())
                parts += chunk
        return bytes(parts)

    def _how_it_ended(self) -> str:
        code = self.group.exit_code(self._index, timeout=2)
        if code is None:
            return "closed its pipe"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def _end_early(self, reason: str) -> NoReturn:
        self.group.kill(self._index)
        text = _read_printed(self._printed) or self.group.read_printed()
        self._close_files()
        raise WorkerDiedError(reason, text)

    def ask_to_end(self) -> None:
        """Close the pipe, which the worker reads as the end."""
        try:
            self._requests.close()
        except BrokenPipeError:
            return  # unsent bytes of a request to a worker that is gone

    def end(self, deadline: float) -> None:
        """Ask the worker to end and wait for it; kill it where it does not listen."""
        self.ask_to_end()
        if self.group.exit_code(self._index, timeout=max(0.0, deadline - time.monotonic())) is None:
            self.group.kill(self._index)
        self._close_files()

    def _close_files(self) -> None:
        self.ask_to_end()
        self._replies.close()
        self._printed.close()
        self.group.end_one()


class WorkerPool:
    """`size` workers, which all start together; requests wait for an idle one."""

    def __init__(self, size: int) -> None:
        self.size = size
        # Last in, first out: a worker that has answered is surely ready, one that was never asked may be starting.
        self._idle: LifoQueue[Worker] = LifoQueue()
        self._all: set[Worker] = set()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tessera-codegen")
        self._start(size)

    def _start(self, count: int) -> None:
        workers = WorkerGroup(count).workers
        with self._lock:
            self._all.update(workers)
        for worker in workers:
            self._idle.put(worker)

    def submit(self, header: dict[str, Any], text: str, timeout: float) -> Future[tuple[bytes, dict[str, float]]]:
        """The object bytes and the seconds of each step, later; fails with one of this file's errors."""
        return self._threads.submit(self._run, header, text, timeout)

    def _run(self, header: dict[str, Any], text: str, timeout: float) -> tuple[bytes, dict[str, float]]:
        body = text.encode()
        worker = self._take()
        try:
            answer, body = worker.ask(header, body, timeout)
        except BaseException as error:
            with self._lock:
                self._all.discard(worker)
            if not isinstance(error, WorkerDiedError):  # which has closed it
                worker.end(time.monotonic())
            raise
        self._idle.put(worker)
        if not answer["ok"]:
            raise RefusedTextError(body.decode(errors="replace"))
        return body, answer["seconds"]

    def _take(self) -> Worker:
        """An idle worker; a new one where some have died. There are as many threads as workers, so nobody waits."""
        with self._lock:
            is_short = len(self._all) < self.size
        if is_short and self._idle.empty():
            self._start(1)
        return self._idle.get()

    def descriptors(self) -> list[int]:
        """The numbers of all open pipes to workers."""
        pipes = [pipe for worker in self._all for pipe in (*worker.pipes(), *worker.group.pipes())]
        return list({pipe.fileno() for pipe in pipes if not pipe.closed})

    def process_ids(self) -> list[int]:
        """The ids of all workers that are forked, and of the processes that forked them."""
        workers = [process_id for worker in self._all if (process_id := worker.process_id) is not None]
        return [*workers, *{worker.group.own_id for worker in self._all}]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            workers, self._all = list(self._all), set()
        for worker in workers:
            worker.ask_to_end()
        deadline = time.monotonic() + END_SECONDS
        for worker in workers:
            worker.end(deadline)


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
