"""The worker process of a loader: `python -m tessera.data REQUESTS REPLIES` makes the batches that it is asked for.

It imports what the dataset is made of and nothing else: the program that started it is not run again.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from typing import Any

from tessera.data.batches import BatchPlan, receive, send
from tessera.diagnostics.error import TesseraError


def main() -> None:
    """Answer requests, an epoch and a number each, until there are no more."""
    requests, replies = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the loader's business, and reaches the whole group
    try:
        settings: dict[str, Any] = receive(requests)
        sys.path[:] = settings["path"]
        plan: Any = None
        while True:
            wanted = receive(requests)
            try:
                plan = plan or BatchPlan(**pickle.loads(settings["plan"]))
                answer: dict[str, Any] = {"batch": plan.make(*wanted)}
            except Exception as error:
                answer = describe(error)
            send(replies, answer)
    except (EOFError, BrokenPipeError):
        return  # the loader is gone, or wants no more


def describe(error: Exception) -> dict[str, Any]:
    """An error as what can be sent: itself where it can, what it says, and where it was raised."""
    reason = error.message if isinstance(error, TesseraError) else f"{type(error).__name__}: {error}"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as refused:
        return {"error": None, "reason": reason, "trace": f"{traceback.format_exc()}\n(not sent itself: {refused})"}
    return {"error": error, "reason": reason, "trace": traceback.format_exc()}


if __name__ == "__main__":
    main()
