"""Collectives as native code calls them: what each program of a thread has under way, by number."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import world
from tessera.runtime.ranks.communicator import Handle
from tessera.types.dtype import BY_NAME


class Exchanges(threading.local):
    """The collectives that a program has started and not waited for, in each thread that runs it."""

    def __init__(self) -> None:
        self.under_way: dict[int, Handle] = {}

    def start(self, number: int, text: str, source: int, target: int, shape: Sequence[int], dtype: str) -> None:
        """Begin a collective: `text` says which, `shape` is that of what is sent.

        Raises RankError (T0712) where a run of the program around this one has it under way.
        """
        if number in self.under_way:
            what = self.under_way[number].exchange.what
            raise RankError(
                f"a function that this program calls has called it again, while its {what} is under way",
                notes=("rule: a program with collectives runs once at a time in a thread",),
                fix="call it when the first call is over, or `jit` another function for the inner call",
            )
        call, axis, ranks, *purpose = json.loads(text)
        size = math.prod(shape) * BY_NAME[dtype].bytes
        part = size // ranks if call == "all_to_all" else size
        # Its shape tells apart what has as many bytes, and its purpose what is folded in another way.
        what = " for ".join((f"{dtype} {list(shape)}", *filter(None, purpose)))
        self.under_way[number] = world.start(call, axis, ranks, (source, target, part), what)

    def wait(self, number: int) -> None:
        """Come back when it is done; one whose waiting was interrupted is still under way."""
        if number not in self.under_way:
            raise RankError("a collective was given up by a call of the same program within this one")
        world.wait(self.under_way[number])
        del self.under_way[number]

    def abandon(self) -> None:
        """The program ends before its end, and with it its memory: nothing may be written there any more."""
        started, self.under_way = self.under_way, {}
        communicator = world.current()
        if communicator is not None and any(not handle.done.is_set() for handle in started.values()):
            communicator.abandon("a program ended while a collective of it was under way")
