"""The world of a process: which rank it is, of how many, and how it reaches the others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks.communicator import CALLS, Communicator, Exchange, Handle
from tessera.runtime.ranks.mesh import MESH, Mesh, mesh_of

_PROCESS: list[Communicator] = []
_HERE: ContextVar[Communicator | None] = ContextVar("world", default=None)


def join(communicator: Communicator) -> None:
    """From now on, this process is a rank."""
    _PROCESS[:] = [communicator]


@contextmanager
def being(communicator: Communicator) -> Generator[None]:
    """Within it, this thread is a rank."""
    token = _HERE.set(communicator)
    try:
        yield
    finally:
        _HERE.reset(token)


def current() -> Communicator | None:
    """How the rank that runs this code reaches the others; None in a process that is alone."""
    return _HERE.get() or (_PROCESS[0] if _PROCESS else None)


def rank() -> int:
    """The number of this rank in its world; 0 in a process that is alone."""
    found = current()
    return 0 if found is None else found.rank


def size() -> int:
    """How many ranks the world has."""
    found = current()
    return 1 if found is None else found.size


def place(axis: str, count: int) -> int:
    """The number of this rank along an axis of the mesh around it, which must have `count` ranks."""
    return 0 if count == 1 else _mesh(axis, count).place(axis, rank())


def start(call: str, axis: str, count: int, memory: tuple[int, int, int], elements: str) -> Handle:
    """Begin a collective along an axis; `memory` is source, target, and the bytes of one rank's part.

    `elements` says what is sent: ranks that meet must say the same.
    """
    communicator, mesh = current(), _mesh(axis, count)
    assert communicator is not None
    assert call in CALLS, call
    group = mesh.group(axis, communicator.rank)
    source, target, part = memory
    return communicator.start(
        Exchange(call, group, source, target, part, f"`{call}` of {part} bytes of {elements} along `{axis}`")
    )


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
