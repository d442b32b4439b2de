"""The processes of the code generator, as the compiler uses them: start, ask, restart, and leave none behind."""

from __future__ import annotations

import atexit
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
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


class Worker:
    """One process; one request at a time."""

    def __init__(self) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        paths = [_ROOT, *_generator_folders(), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            # Without `site`, which reads every `.pth` file of the environment; what a worker needs is in its path.
            [sys.executable, "-S", "-c", "from tessera.ir.target.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self._process.stdin, self._process.stdout) if pipe is not None]

    def ask(self, header: dict[str, Any], body: bytes, timeout: float) -> tuple[dict[str, Any], bytes]:
        """The worker's answer; raises WorkerDiedError after which this worker must not be asked again."""
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None
        assert replies is not None
        deadline = time.monotonic() + timeout
        try:
            protocol.write_frame(requests, header, body)  # pyright: ignore[reportArgumentType]
            (size,) = protocol.LENGTH.unpack(self._read(replies.fileno(), protocol.LENGTH.size, deadline))
            payload = self._read(replies.fileno(), size, deadline)
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
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def _end_early(self, reason: str) -> NoReturn:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        self._close_files()
        raise WorkerDiedError(reason, text)

    def ask_to_end(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def end(self) -> None:
        """Close the pipe, which the worker reads as the end, and reap it; kill it where it does not listen."""
        self.ask_to_end()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_files()

    def _close_files(self) -> None:
        self.ask_to_end_quietly()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def ask_to_end_quietly(self) -> None:
        try:
            self.ask_to_end()
        except BrokenPipeError:
            return  # unsent bytes of a request to a worker that is gone


class WorkerPool:
    """`size` workers, which all start together; requests wait for an idle one."""

    def __init__(self, size: int) -> None:
        self.size = size
        # Last in, first out: a worker that has answered is surely ready, one that was never asked may be starting.
        self._idle: LifoQueue[Worker] = LifoQueue()
        self._all: set[Worker] = set()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tessera-codegen")
        for _ in range(size):
            self._start_one()

    def _start_one(self) -> None:
        worker = Worker()
        with self._lock:
            self._all.add(worker)
        self._idle.put(worker)

    def submit(self, header: dict[str, Any], text: str, timeout: float) -> Future[tuple[bytes, dict[str, float]]]:
        """The object bytes and the seconds of each step, later; fails with one of this file's errors."""
        return self._threads.submit(self._run, header, text, timeout)

    def _run(self, header: dict[str, Any], text: str, timeout: float) -> tuple[bytes, dict[str, float]]:
        worker = self._idle.get()
        try:
            answer, body = worker.ask(header, text.encode(), timeout)
        except BaseException:
            with self._lock:
                self._all.discard(worker)
            self._start_one()
            raise
        self._idle.put(worker)
        if not answer["ok"]:
            raise RefusedTextError(body.decode(errors="replace"))
        return body, answer["seconds"]

    def descriptors(self) -> list[int]:
        """The numbers of all open pipes to workers."""
        return [pipe.fileno() for worker in self._all for pipe in worker.pipes() if not pipe.closed]

    def process_ids(self) -> list[int]:
        return [worker.process_id for worker in self._all]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            workers, self._all = list(self._all), set()
        for worker in workers:
            worker.ask_to_end_quietly()
        for worker in workers:
            worker.end()


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
