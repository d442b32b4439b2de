"""Ranks as processes: what starts them and collects their answers, and what each of them does."""

from __future__ import annotations

import ctypes
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import IO, Any

from tessera.diagnostics.codes import RankError
from tessera.diagnostics.error import TesseraError, is_ours
from tessera.runtime.ranks import world
from tessera.runtime.ranks.algorithms import CURRENT, Table
from tessera.runtime.ranks.queued import describe_error
from tessera.runtime.ranks.shared_memory import Ends, LocalCommunicator, ends_of
from tessera.types.settings import rank_seconds, usable_cpus

# The process of one rank: it joins the world it was started in, does what it is sent, and answers.

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Run as a rank; the arguments are its number, how many there are, and the files it was given."""
    rank, size, file, control, *sockets = map(int, sys.argv[1:])
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)
    ends = Ends(rank, size, file, tuple(None if one < 0 else socket.socket(fileno=one) for one in sockets))
    connection = Connection(control)
    communicator = LocalCommunicator(ends, rank_seconds())
    world.join(communicator)
    answer = _answer_task(connection.recv_bytes())
    failed = "value" not in answer
    if failed:
        communicator.abandon(answer["summary"])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    connection.send_bytes(_pickle_answer(answer))
    connection.close()
    if failed:
        sys.exit(1)


def _answer_task(payload: bytes) -> dict[str, Any]:
    """What came of a task: its value, or the error it ended with."""
    try:
        return {"value": _run(payload)}
    except SystemExit as error:
        if error.code in (None, 0):
            return {"value": None}
        return {"error": None, "summary": f"it ended with exit code {error.code}"}
    except BaseException as error:
        return {"error": error, "summary": describe_error(error), "sites": call_sites(error)}


def _run(payload: bytes) -> Any:
    # Where modules are found comes first: what is sent beside it may need them.
    head, body = pickle.loads(payload)
    sys.path[:] = head["path"]
    CURRENT[:] = [head["table"]]
    if head["main"] is not None:
        # As a module of another name, so that what a script does when it is started is not done again.
        kind, name = head["main"]
        found = (runpy.run_path if kind == "file" else runpy.run_module)(name, run_name="__mp_main__")
        module = sys.modules["__main__"]
        module.__dict__.update({name: value for name, value in found.items() if name != "__name__"})
    task: dict[str, Any] = pickle.loads(body)
    if "file" in task:
        sys.argv = [task["file"], *task["argv"]]
        sys.path.insert(0, os.path.dirname(os.path.abspath(task["file"])))
        runpy.run_path(task["file"], run_name="__main__")
        return None
    return task["function"](*task["args"], **task["kwargs"])


def call_sites(error: BaseException) -> list[str]:
    """Where it was raised, the last call first: the lines of the user's code that led there, where there are any."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    frames = [frame for frame in frames if not is_ours(frame.filename)] or frames
    return [f"at {frame.filename}:{frame.lineno}, in `{frame.name}`" for frame in reversed(frames[-4:])]


def _pickle_answer(answer: dict[str, Any]) -> bytes:
    """An answer as bytes; what cannot be sent is reported."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)  # some errors can be sent, and not be made again
    except Exception as error:
        if "value" in answer:
            reason = RankError(f"a rank cannot send what its function gave: {error}", span=None)
            return pickle.dumps({"error": reason, "summary": reason.message, "sites": []})
        return pickle.dumps({**answer, "error": None})
    return data


# Starting ranks: one process for each on this machine, their results and errors by rank, their output labelled.

MOST = 64
"""Ranks of one machine: each pair of them has a socket."""

_GRACE = 5.0  # seconds that the others have to end by themselves once one has failed
_CHILD = "from tessera.runtime.ranks.processes import main; main()"


def launch(
    task: Mapping[str, Any],
    ranks: int,
    *,
    seconds: float | None = None,
    labelled: bool = True,
    table: Table | None = None,
) -> list[Any]:
    """What a task gives on each rank of a new world, in order.

    A task is `{"function": f, "args": ..., "kwargs": ...}`, or `{"file": path, "argv": ...}`. `seconds` is how long a
    collective waits for a rank, `table` which algorithms they have: one for all of them.
    Raises RankError (T0712) where a rank fails, with its error as the cause.
    """
    body = _pickle_task(task)
    payload = pickle.dumps(({"path": sys.path, "main": main_of(body), "table": table or Table()}, body))
    all_ends = ends_of(ranks)
    running: list[_Rank] = []
    try:
        try:
            for ends in all_ends:
                running.append(_Rank(ends, seconds, labelled))
        finally:
            for ends in all_ends:
                ends.close()  # from here on a rank that dies is the only one to hold its ends
            os.close(all_ends[0].file)
        for one in running:
            one.send(payload)
        _collect(running)
    finally:
        for one in running:
            one.end()
    return _results(running)


class _Rank:
    """One process: `answer` is what it sent, None where it has not, or ended without a word."""

    def __init__(self, ends: Ends, seconds: float | None, labelled: bool) -> None:
        self.rank, self.answer = ends.rank, None
        mine, theirs = socket.socketpair()
        files = [ends.file, theirs.fileno(), *(-1 if one is None else one.fileno() for one in ends.sockets)]
        given = [str(ends.rank), str(ends.size), *map(str, files)]
        pipe = subprocess.PIPE if labelled else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *given],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=_environment(ends.size, seconds),
            pass_fds=[file for file in files if file >= 0],
            start_new_session=True,
        )
        theirs.close()
        self.control = Connection(mine.detach())
        self._relays: list[tuple[Thread, IO[bytes]]] = []
        for source, target in ((self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr)):
            if source is not None:
                thread = Thread(target=_relay, args=(self.rank, source, target), daemon=True)
                self._relays.append((thread, source))
                thread.start()

    def send(self, payload: bytes) -> None:
        """Tell it what to do; one that has died already is found when its answer is awaited."""
        try:
            self.control.send_bytes(payload)
        except OSError:
            return

    def receive(self) -> None:
        """Take its answer."""
        try:
            self.answer = pickle.loads(self.control.recv_bytes())
        except (EOFError, OSError):
            self.answer = {"died": True}

    def end(self) -> None:
        """Let it come to its end, and help where it does not."""
        self.control.close()
        if self.answer is None:
            self.process.terminate()
        try:
            self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread, stream in self._relays:
            thread.join(_GRACE)  # what a rank has started may still hold its output
            if not thread.is_alive():
                stream.close()


def _collect(running: Sequence[_Rank]) -> None:
    """Wait for the answers of all; once one has failed, the others have little time left."""
    waiting = {one.control: one for one in running}
    deadline: float | None = None
    while waiting:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        for control in wait(list(waiting), left):
            assert isinstance(control, Connection)
            one = waiting.pop(control)
            one.receive()
            if deadline is None and "value" not in (one.answer or {}):
                deadline = time.monotonic() + _GRACE


def _results(running: Sequence[_Rank]) -> list[Any]:
    failed = [one for one in running if "value" not in (one.answer or {})]
    if not failed:
        return [(one.answer or {})["value"] for one in running]
    # A rank that failed by itself comes before those that failed because it left.
    own = [one for one in failed if not isinstance((one.answer or {}).get("error"), RankError)]
    first = next((one for one in own if one.answer is not None), failed[0])
    others = [f"rank {one.rank}: {_describe_end(one)}" for one in failed if one is not first]
    answer: dict[str, Any] = first.answer or {}
    error = answer.get("error")
    raise RankError(
        f"rank {first.rank} of {len(running)} failed: {_describe_end(first)}",
        notes=(*answer.get("sites", ()), *others),
        fix=error.fix.message if isinstance(error, TesseraError) and error.fix is not None else None,
    ) from error


def _describe_end(one: _Rank) -> str:
    answer: dict[str, Any] = one.answer or {}
    if "summary" in answer:
        return answer["summary"]
    code = one.process.returncode
    if not answer:
        return "it was ended while it still ran"
    return f"it ended with exit code {code}" if code >= 0 else f"signal {-code} ended it"


def _pickle_task(task: Mapping[str, Any]) -> bytes:
    try:
        return pickle.dumps(dict(task))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise RankError(
            f"what ranks run is sent to other processes, which cannot find it: {error}",
            fix="give a function that stands at the top of a module, and arguments that `pickle` takes",
        ) from None


def main_of(body: bytes) -> tuple[str, str] | None:
    """The program that is running, a `module` or a `file` by name, where ranks must read it to find what they run."""
    if not any(name in body for name in (b"__main__", b"__mp_main__")):  # the latter where a rank starts others
        return None
    main: Any = sys.modules["__main__"]
    name: str | None = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return "module", name
    file: str | None = getattr(main, "__file__", None)
    if file is None and sys.modules.get("__mp_main__", main) is not main:  # only while a rank reads the program
        raise RankError(
            "ranks read the program to find what they run, and reading it starts ranks again",
            fix='put the call under `if __name__ == "__main__":`',
        )
    if file is None:
        raise RankError(
            "what ranks run was typed in, and stands in no file that other processes could read",
            fix="put it into a module, and import it from there",
        )
    return "file", os.path.abspath(file)


def _environment(ranks: int, seconds: float | None) -> dict[str, str]:
    """The variables of a rank: the CPUs of the machine are divided among all."""
    values = dict(os.environ)
    values.setdefault("TESSERA_NUM_THREADS", str(max(1, usable_cpus() // ranks)))
    values["TESSERA_COMMUNICATOR"] = "none"  # it joins the world it is given, and what it starts is no rank
    values["PYTHONUNBUFFERED"] = "1"  # lines are shown when they are printed
    values["TESSERA_RANK_SECONDS"] = f"{rank_seconds() if seconds is None else seconds:g}"
    return values


def _relay(rank: int, source: IO[bytes], target: IO[str]) -> None:
    """Lines of a rank, each with its number in front."""
    for line in source:
        target.write(f"[rank {rank}] {line.decode(errors='replace')}")
        target.flush()
