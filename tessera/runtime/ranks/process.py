"""The process of one rank: it joins the world it was started in, does what it is told, and answers."""

from __future__ import annotations

import ctypes
import os
import pickle
import runpy
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from tessera.diagnostics.codes import RankError
from tessera.diagnostics.error import TesseraError
from tessera.diagnostics.span import is_ours
from tessera.runtime.ranks import world
from tessera.runtime.ranks.shared_memory import Ends, LocalCommunicator
from tessera.types.settings import rank_seconds

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Run as a rank; the arguments are its number, how many there are, and the files it was given."""
    rank, size, file, control, *sockets = map(int, sys.argv[1:])
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)
    ends = Ends(rank, size, file, tuple(None if one < 0 else socket.socket(fileno=one) for one in sockets))
    connection = Connection(control)
    communicator = LocalCommunicator(ends, rank_seconds())
    world.join(communicator)
    answer = _answer(connection.recv_bytes())
    failed = "value" not in answer
    if failed:
        communicator.abandon(answer["summary"])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    connection.send_bytes(_pickled(answer))
    connection.close()
    if failed:
        sys.exit(1)


def _answer(payload: bytes) -> dict[str, Any]:
    """What came of a task: its value, or the error it ended with."""
    try:
        return {"value": _run(payload)}
    except SystemExit as error:
        if error.code in (None, 0):
            return {"value": None}
        return {"error": None, "summary": f"it ended with exit code {error.code}"}
    except BaseException as error:
        return {"error": error, "summary": _summary(error), "places": places_of(error)}


def _run(payload: bytes) -> Any:
    # Where modules are found comes first: what is sent beside it may need them.
    task: dict[str, Any] = _Task(payload).read()
    if "file" in task:
        sys.argv = [task["file"], *task["argv"]]
        sys.path.insert(0, os.path.dirname(os.path.abspath(task["file"])))
        runpy.run_path(task["file"], run_name="__main__")
        return None
    return task["function"](*task["args"], **task["kwargs"])


class _Task:
    """A task as it came: the head says where modules are, the body is what to do."""

    def __init__(self, payload: bytes) -> None:
        self.head, self.body = pickle.loads(payload)

    def read(self) -> dict[str, Any]:
        """What to do, with the modules of the one who sent it."""
        sys.path[:] = self.head["path"]
        if self.head["main"] is not None:
            # As a module of another name, so that what a script does when it is started is not done again.
            kind, name = self.head["main"]
            found = (runpy.run_path if kind == "file" else runpy.run_module)(name, run_name="__mp_main__")
            module = sys.modules["__main__"]
            module.__dict__.update({name: value for name, value in found.items() if name != "__name__"})
        return pickle.loads(self.body)


def _summary(error: BaseException) -> str:
    if isinstance(error, TesseraError):
        return f"{error.code}: {error.message}"
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def places_of(error: BaseException) -> list[str]:
    """Where it was raised, the last call first: the lines of the user's code that led there, where there are any."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    frames = [frame for frame in frames if not is_ours(frame.filename)] or frames
    return [f"at {frame.filename}:{frame.lineno}, in `{frame.name}`" for frame in reversed(frames[-4:])]


def _pickled(answer: dict[str, Any]) -> bytes:
    """An answer as bytes; what cannot be sent is said."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)  # some errors can be sent, and not be made again
    except Exception as error:
        if "value" in answer:
            reason = RankError(f"a rank cannot send what its function gave: {error}", span=None)
            return pickle.dumps({"error": reason, "summary": reason.message, "places": []})
        return pickle.dumps({**answer, "error": None})
    return data
