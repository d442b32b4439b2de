"""`QueuedCommunicator`: exchanges in the order they were started, moved by a thread while kernels run beside it.

What is common to communicators that move bytes themselves. One of them says how an exchange is performed (`perform`),
how the others hear that this rank leaves (`leave`), and how its thread is woken from waiting (`interrupt`); what order
exchanges have, who waits for which, and that a failure is the end of all of them, is here.

Waking a thread takes longer than a small exchange. So where nothing else is under way, `begin` sends all of a small one
from where it is started, and who waits for it reads what comes; a thread is only asked when another is started before.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType

from tessera.diagnostics.codes import RankError
from tessera.diagnostics.error import TesseraError
from tessera.runtime import timeline
from tessera.runtime.ranks.algorithms import steps_of
from tessera.runtime.ranks.world import Communicator, Exchange, Handle
from tessera.types.frozen import frozen

LONGEST = 1024
"""Bytes of a message between ranks: its first is its kind, the rest a count or a text."""

ENDED = "its program has ended"
"""Why a rank leaves that has nothing more to do."""

Finish = Callable[[], None]
"""What is left of an exchange that has begun."""


class QueuedCommunicator(ABC):
    """A `Communicator` whose exchanges are performed one after the other in a thread."""

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        """`seconds` is how long an exchange may go without hearing from a rank that it needs."""
        self._rank, self._size, self._seconds = rank, size, seconds
        self._queue: SimpleQueue[tuple[Handle, Finish | None] | None] = SimpleQueue()
        self._begun: tuple[Handle, Finish] | None = None
        self._unfinished = 0  # exchanges that the thread has, or that somebody performs who waits for it
        self._performing = Lock()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._failure: RankError | None = None
        self._is_abandoned = False
        self._has_left = False

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks the world has."""
        return self._size

    def start(self, exchange: Exchange) -> Handle:
        """Begin an exchange, after those that were started before it."""
        handle = Handle(exchange)
        with self._lock:
            if self._is_abandoned:
                handle.error = self._failure
                handle.done.set()
                return handle
            is_first = not self._unfinished and self._begun is None and self._failure is None
            # A timeline shows when bytes move, which a thread does beside the program.
            finish = self.begin(exchange) if is_first and not timeline.is_open() else None
            if finish is not None:
                self._begun = (handle, finish)
                return handle
            if self._begun is not None:
                begun, self._begun = self._begun, None
                self._put(*begun)
            self._put(handle, None)
        return handle

    def _put(self, handle: Handle, finish: Finish | None) -> None:
        """Give an exchange to the thread, after those that it has."""
        if self._thread is None:
            # A daemon: a program that ends without waiting must not stay because of it.
            self._thread = Thread(target=self._run, name="tessera-ranks", daemon=True)
            self._thread.start()
        self._unfinished += 1
        self._queue.put((handle, finish))

    def wait(self, handle: Handle) -> None:
        """Come back when the bytes are there; whoever brings them keeps the time limit."""
        if not handle.done.is_set():
            finish = self._take(handle)
            with timeline.span("wait", handle.exchange.what):
                if finish is not None:
                    self._finish_one(handle, finish)
                else:
                    handle.done.wait()
        error = handle.error
        if isinstance(error, RankError):
            # Made again here, so that it shows the line of the user who waits.
            raise RankError(error.message, notes=error.notes, fix=error.fix) from error
        if error is not None:
            raise error

    def _take(self, handle: Handle) -> Finish | None:
        """What is left of an exchange that no thread has; None where one has it."""
        with self._lock:
            begun = self._begun
            if begun is None or begun[0] is not handle:
                return None
            self._begun, self._unfinished = None, self._unfinished + 1
            return begun[1]

    def abandon(self, reason: str) -> None:
        """Leave the world: what is under way ends here, and the others hear of it."""
        with self._lock:
            if self._is_abandoned:
                return
            self._is_abandoned = True
            self._failure = self._failure or RankError(f"rank {self.rank} has left: {reason}", span=None)
            begun, self._begun = self._begun, None
        if begun is not None:
            begun[0].error = self._failure
            begun[0].done.set()
        self.interrupt()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        with self._performing:  # whoever waits has seen it
            self._leave_once(self._failure)
        self.close()

    def _leave_once(self, error: RankError) -> None:
        """Tell the others; the first reason is the one that counts."""
        if not self._has_left:
            self._has_left = True
            # With what it was told itself: whoever hears of it learns where it began.
            said = [note for note in error.notes if " said: " in note]
            self.leave("; ".join((error.message, *said)))

    # ---- What a communicator defines. All but `interrupt` and `begin` run one at a time, in the thread mostly.

    @abstractmethod
    def perform(self, exchange: Exchange) -> None:
        """Move the bytes of an exchange; raises RankError (T0712) where that cannot be."""

    def begin(self, exchange: Exchange) -> Finish | None:
        """Send all of a small exchange, and say what is left to do: to read, so that no other rank waits for it.

        None where it is not small, or not so simple; then nothing is sent.
        """
        return None

    @abstractmethod
    def leave(self, reason: str) -> None:
        """Tell the others why this rank goes; it is called once."""

    def withdraw(self) -> None:
        """Let go of the memory of an exchange that has failed; the others have been told that this rank leaves."""
        return

    def interrupt(self) -> None:
        """Wake the thread where it waits for others, so that it finds that this rank has left."""
        return

    def close(self) -> None:
        """Let go of what no thread uses any more."""
        return

    # ---- In the thread.

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            handle, finish = given
            with timeline.span("collective", handle.exchange.what, handle.exchange.sent):
                self._finish_one(handle, finish or (lambda exchange=handle.exchange: self.perform(exchange)))

    def _finish_one(self, handle: Handle, finish: Finish) -> None:
        """Perform an exchange, or what is left of it; nobody performs another at the same time."""
        try:
            with self._performing:
                self._perform_or_leave(handle, finish)
        finally:
            with self._lock:
                self._unfinished -= 1
            handle.done.set()

    def _perform_or_leave(self, handle: Handle, finish: Finish) -> None:
        try:
            if self._failure is not None:
                raise self._failure
            finish()
        except BaseException as error:  # whatever it is, somebody waits for it
            failed = error if isinstance(error, RankError) else RankError(f"rank {self.rank}: {error}", span=None)
            handle.error, self._failure = error, self._failure or failed
            self._leave_once(failed)
            self.withdraw()

    def check_abandoned(self) -> None:
        """Raise where this rank has left while an exchange is under way."""
        if self._is_abandoned:
            raise self._failure or RankError(f"rank {self.rank} has left", span=None)


# ---- What an exchange has to move.


@frozen
class Transfer:
    """What goes to one other rank in a step, and what comes from it: addresses with bytes, None where nothing does."""

    peer: int
    sends: tuple[int, int] | None
    reads: tuple[int, int] | None


def transfers_of(exchange: Exchange, rank: int) -> Iterator[list[Transfer]]:
    """The steps of an exchange for a rank, whose own part is copied before the first."""
    part, group = exchange.bytes, exchange.group
    at, is_scattered = list(group).index(rank), exchange.call == "all_to_all"
    ctypes.memmove(exchange.target + at * part, exchange.source + (at * part if is_scattered else 0), part)
    begin = exchange.source if is_scattered else exchange.target
    for step in steps_of(exchange.call, exchange.algorithm, at, len(group)):
        found: list[Transfer] = []
        for move in step:
            (sent, count), (read, other) = move.sends, move.reads
            sends = (begin + sent * part, count * part) if count else None
            reads = (exchange.target + read * part, other * part) if other else None
            found.append(Transfer(group[move.peer], sends, reads))
        yield found


# ---- What is wrong, in the words of all communicators.


def mismatch(other: int, theirs: str, mine: str) -> RankError:
    """Two ranks of a group are at different exchanges."""
    return RankError(
        f"rank {other} is at {theirs}, and this rank is at {mine}",
        span=None,
        fix="let all ranks call the same programs, with arguments of the same shapes, in the same order",
    )


def departure(exchange: Exchange, rank: int, other: int, reason: str) -> RankError:
    """A rank that an exchange needs has left."""
    return RankError(
        f"rank {other} left while rank {rank} was at {exchange.what}",
        span=None,
        notes=(f"rank {other} said: {reason}",) if reason else (),
        fix="see what that rank says: it ended, or failed, before it came here",
    )


def absence(exchange: Exchange, rank: int, absent: Sequence[int], seconds: float) -> RankError:
    """Ranks that an exchange needs do not come."""
    ranks = f"rank {absent[0]}" if len(absent) == 1 else f"ranks {', '.join(map(str, absent))}"
    return RankError(
        f"{ranks} did not come to {exchange.what} within {seconds:g} s, where rank {rank} waits",
        span=None,
        notes=(f"its group is {list(exchange.group)}",),
        fix="let all ranks of an axis call the same programs; `TESSERA_RANK_SECONDS` is how long they wait",
    )


# ---- How a process that joined a world by itself leaves it. Nobody is around it to say how it ended, so it says it
# itself: an error that ends the program is what the others are told.


def describe_error(error: BaseException) -> str:
    """An error in a line."""
    if isinstance(error, TesseraError):
        return f"{error.code}: {error.message}"
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def leave_with_process(communicator: Communicator) -> None:
    """Let a communicator be abandoned when the process ends, with the reason."""
    usual = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usual(kind, error, trace)
        sys.stderr.flush()
        communicator.abandon(describe_error(error))

    def end() -> None:
        sys.excepthook = usual
        communicator.abandon(ENDED)

    sys.excepthook = show
    atexit.register(end)
