"""The world of a process: its rank, the mesh, how ranks communicate, and the collectives of programs that run."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from math import prod
from threading import Event
from typing import Any, Protocol, Self

from tessera.diagnostics.codes import RankError
from tessera.runtime.private_files import make_folder, open_lock
from tessera.runtime.ranks.algorithms import CURRENT, DIRECT
from tessera.types.dtype import BY_NAME
from tessera.types.frozen import frozen
from tessera.types.settings import cache_location, rank_seconds

# What a rank needs to communicate with others: exchanges of bytes that are started, and waited for later.

CALLS = ("all_gather", "all_to_all")
"""What moves bytes; every other collective is one of these with computing around it."""


@frozen
class Exchange:
    """One collective as memory sees it, among the ranks of `group` in their order.

    `all_gather` puts the `bytes` bytes at `source` of every rank one after the other at `target`. `all_to_all` has a
    part of `bytes` bytes for each rank at `source`, and puts there what each rank has for this one. Both belong
    to the exchange until it was waited for. `what` is how people call it; ranks of one exchange must say the same.
    """

    call: str
    group: Sequence[int]
    source: int
    target: int
    bytes: int
    what: str
    algorithm: str = DIRECT

    @property
    def sent(self) -> int:
        """Bytes that a rank has for the others."""
        return self.bytes * (len(self.group) - 1)


class Handle:
    """An exchange under way; `error` is why it failed, once `done` is set."""

    __slots__ = ("done", "error", "exchange")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.done = Event()
        self.error: BaseException | None = None


class Communicator(Protocol):
    """How one rank reaches the others.

    Ranks of a group must start the exchanges of that group in one order. Nothing waits for ever: where a rank does not
    come in time, leaves, or is at another exchange, waiting raises RankError (T0712), and so does everything after it.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def start(self, exchange: Exchange) -> Handle:
        """Begin an exchange, which goes on while the caller does something else."""
        ...

    def wait(self, handle: Handle) -> None:
        """Come back when the bytes are there; raises what went wrong."""
        ...

    def abandon(self, reason: str) -> None:
        """Communicate with nobody any more, and let the others know; no exchange touches memory afterwards."""
        ...


# The mesh: ranks by their positions along named axes, and the one that is in force where code runs.


@frozen
class Mesh:
    """Axes with their sizes, in order; the ranks of the last axis are next to each other.

    >>> mesh = mesh_of((("dp", 2), ("tp", 2)))
    >>> mesh.group("dp", 3), mesh.group("tp", 3), mesh.position("tp", 3)
    ((1, 3), (2, 3), 1)
    """

    axes: tuple[tuple[str, int], ...]
    layout: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The axes that dims of annotations are sharded over, by the names of the dims."""

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return prod(size for _, size in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(self.axes)

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """The ranks that differ from one in their position along an axis alone, in order; it is among them."""
        step, count = self._step(axis), self.sizes[axis]
        first = rank - self.position(axis, rank) * step
        return tuple([first + at * step for at in range(count)])

    def position(self, axis: str, rank: int) -> int:
        """The number of a rank along an axis."""
        return rank // self._step(axis) % self.sizes[axis]

    def _step(self, axis: str) -> int:
        """How far apart neighbours along an axis are."""
        names = [name for name, _ in self.axes]
        return prod(size for _, size in self.axes[names.index(axis) + 1 :])

    def axis(self, name: str) -> AbstractContextManager[None]:
        """`with mesh.axis("data"):` in a traced program: see `tessera.dist.mesh`."""
        return OPEN_AXIS[0](self, name)

    def shard(self, x: Any, *dims: Any, **axes: Any) -> Any:
        """`x` sharded over this mesh: `mesh(4).shard(W["d_model"])`. See `tessera.dist.mesh`.

        An annotation, or some dims of one, is that annotation with its sharding; a tensor, or a tree of them, is this
        rank's part. `dims` are cut over the axes that the layout has for them, or over the only axis; `axes` names
        them: `m.shard(W, d_model="tp")`. Without dims, what annotations and the layout say holds.
        """
        return SHARD[0](self, x, dims, axes)

    def shard_report(self, x: Any, *dims: Any, **axes: Any) -> Any:
        """What `shard` of the same does, as a table: whole, sharding, part and bytes of each tensor."""
        return SHARD[1](self, x, dims, axes)

    def __enter__(self) -> Self:
        _OUTER.set((*_OUTER.get(), MESH.get()))
        MESH.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        *others, last = _OUTER.get()
        _OUTER.set(tuple(others))
        MESH.set(last)

    def __str__(self) -> str:
        return f"mesh({', '.join(f'{name}={size}' for name, size in self.axes)})"


OPEN_AXIS: list[Callable[[Mesh, str], AbstractContextManager[None]]] = []
"""What opens the scope of an axis in a traced program; whoever traces programs puts it here."""


SHARD: list[Callable[[Mesh, Any, tuple[Any, ...], dict[str, Any]], Any]] = []
"""What shards values over a mesh, and what reports it; whoever knows annotations puts them here."""


@cache
def mesh_of(axes: tuple[tuple[str, int], ...], layout: tuple[tuple[str, tuple[str, ...]], ...] = ()) -> Mesh:
    """The one mesh of these axes and this layout, so that equal ones are the same object."""
    return Mesh(axes, layout)


NONE = mesh_of(())
MESH: ContextVar[Mesh] = ContextVar("mesh", default=NONE)
_OUTER: ContextVar[tuple[Mesh, ...]] = ContextVar("outer meshes", default=())
"""The meshes that were in force where those around were entered."""


def mesh_in_force(_key: Any = None, _missing: Any = None) -> Mesh:
    """The mesh around the code that runs; what a watched variable is read with."""
    return MESH.get()


_PROCESS: list[Communicator] = []
_HERE: ContextVar[Communicator | None] = ContextVar("world", default=None)


_JOINING = threading.Lock()

_MARKS = (
    "TESSERA_COMMUNICATOR",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)
"""Variables without which nobody has started this process as a rank."""


def join(communicator: Communicator) -> None:
    """From now on, this process is a rank."""
    _PROCESS[:] = [communicator]


def _is_started() -> bool:
    """Whether this process was started as a rank; most were not, which is known without loading anything."""
    if not any(name in os.environ for name in _MARKS):
        return False
    from tessera.runtime.ranks import discovery  # noqa: PLC0415 - it imports this file

    return discovery.is_started()


def _join_started() -> Communicator | None:
    """Join the world that this process was started in, where it was."""
    with _JOINING:
        if not _PROCESS and _is_started():
            from tessera.runtime.ranks import discovery, queued  # noqa: PLC0415 - it imports this file

            communicator = discovery.connect(rank_seconds())
            # Processes that this one starts inherit its variables, and are no ranks.
            os.environ["TESSERA_COMMUNICATOR"] = discovery.NONE
            queued.leave_with_process(communicator)
            join(communicator)
    return _PROCESS[0] if _PROCESS else None


@contextmanager
def being(communicator: Communicator) -> Generator[None]:
    """Within it, this thread is a rank."""
    token = _HERE.set(communicator)
    try:
        yield
    finally:
        _HERE.reset(token)


def current() -> Communicator | None:
    """How the rank that runs this code reaches the others; None in a process that is alone.

    A process that `mpiexec` or another launcher has started as a rank joins its world here, where it has not yet.
    Raises RankError (T0712) where it cannot.
    """
    return _HERE.get() or (_PROCESS[0] if _PROCESS else _join_started())


def rank() -> int:
    """The number of this rank in its world; 0 in a process that is alone."""
    return _standing()[0]


def size() -> int:
    """How many ranks the world has."""
    return _standing()[1]


def _standing() -> tuple[int, int]:
    """Rank and size. What variables say is enough: who only compiles for a world need not join it."""
    found = _HERE.get() or (_PROCESS[0] if _PROCESS else None)
    if found is None and _is_started():
        from tessera.runtime.ranks import discovery  # noqa: PLC0415 - it imports this file

        place = discovery.find_place()
        if place is not None and place.size:
            return place.rank, place.size
        found = current()
    return (0, 1) if found is None else (found.rank, found.size)


def axis_position(axis: str, count: int) -> int:
    """The number of this rank along an axis of the mesh around it, which must have `count` ranks."""
    return 0 if count == 1 else _mesh(axis, count).position(axis, rank())


def start(call: str, axis: str, count: int, memory: tuple[int, int, int], elements: str) -> Handle:
    """Begin a collective along an axis; `memory` is source, target, and the bytes of one rank's part.

    `elements` says what is sent: ranks of one exchange must say the same.
    """
    communicator = current()
    exchange = exchange_along(call, axis, count, memory, elements)
    assert communicator is not None
    return communicator.start(exchange)


def exchange_along(call: str, axis: str, count: int, memory: tuple[int, int, int], elements: str) -> Exchange:
    """A collective along an axis of the mesh around, as memory sees it."""
    mesh = _mesh(axis, count)
    assert call in CALLS, call
    group = mesh.group(axis, rank())
    source, target, part = memory
    algorithm = CURRENT[0].choose(call, len(group), part)
    how = "" if algorithm == DIRECT else f" by {algorithm}"
    what = f"`{call}` of {part} bytes of {elements} along `{axis}`{how}"
    return Exchange(call, group, source, target, part, what, algorithm)


def exchange_of(text: str, source: int, target: int, shape: Sequence[int], dtype: str) -> Exchange:
    """A collective of a program: `text` says which, `shape` is that of what is sent."""
    call, axis, ranks, *purpose = json.loads(text)
    size = math.prod(shape) * BY_NAME[dtype].bytes
    part = size // ranks if call == "all_to_all" else size
    # Its shape tells apart what has as many bytes, and its purpose what is reduced in another way.
    what = " for ".join((f"{dtype} {list(shape)}", *filter(None, purpose)))
    return exchange_along(call, axis, ranks, (source, target, part), what)


def wait(handle: Handle) -> None:
    """Come back when a collective is done."""
    communicator = current()
    assert communicator is not None
    communicator.wait(handle)


def _mesh(axis: str, count: int) -> Mesh:
    """The mesh around, which must be one for a program that was made for `count` ranks along an axis."""
    mesh, world = MESH.get(), size()
    if mesh.size == 1 and count == world:
        return mesh_of(((axis, count),))  # it was written into the program, and has one axis
    if mesh.sizes.get(axis) == count and mesh.size == world:
        return mesh
    raise RankError(
        f"this program was made for {count} ranks along `{axis}`, and runs in a world of {world} as {mesh}",
        fix=f"start it with `tessera.dist.run(function, ranks={max(count, mesh.size)})`, "
        "and call it within the mesh that it was made for",
    )


# Mutual exclusion: what all ranks of a machine want is made by one of them.


@contextmanager
def exclusive(name: str) -> Generator[None]:
    """Within it, this rank alone works on something of that name; a process that is alone need not ask.

    The system lets go of the lock of a process that dies.
    """
    if size() == 1:
        yield
        return
    file = _lock_file(name)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def _lock_file(name: str) -> int | None:
    """The file that is locked for a name; None where none can be made: then nobody waits."""
    import fcntl  # noqa: PLC0415 - ranks alone need it

    folder = os.path.join(cache_location()[0], "locks")
    try:
        make_folder(folder)
        # The names are digests: few files serve all, and two of one file merely wait for each other.
        file = open_lock(os.path.join(folder, name[:2]))
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        os.close(file)
        return None
    return file


# Collectives as native code calls them: what each program of a thread has under way, by number.


class Exchanges(threading.local):
    """The collectives that a program has started and not waited for, in each thread that runs it."""

    def __init__(self) -> None:
        self.in_flight: dict[int, Handle] = {}

    def start(self, number: int, text: str, source: int, target: int, shape: Sequence[int], dtype: str) -> None:
        """Begin a collective: `text` says which, `shape` is that of what is sent.

        Raises RankError (T0712) where a run of the program around this one has it under way.
        """
        if number in self.in_flight:
            what = self.in_flight[number].exchange.what
            raise RankError(
                f"a function that this program calls has called it again, while its {what} is under way",
                notes=("rule: a program with collectives runs once at a time in a thread",),
                fix="call it when the first call is over, or `jit` another function for the inner call",
            )
        exchange, communicator = exchange_of(text, source, target, shape, dtype), current()
        assert communicator is not None
        self.in_flight[number] = communicator.start(exchange)

    def wait(self, number: int) -> None:
        """Come back when it is done; one whose waiting was interrupted is still under way."""
        if number not in self.in_flight:
            raise RankError("a collective was abandoned by a call of the same program within this one")
        wait(self.in_flight[number])
        del self.in_flight[number]

    def abandon(self) -> None:
        """The program ends before its end, and with it its memory: nothing may be written there any more."""
        started, self.in_flight = self.in_flight, {}
        communicator = current()
        if communicator is not None and any(not handle.done.is_set() for handle in started.values()):
            communicator.abandon("a program ended while a collective of it was under way")
