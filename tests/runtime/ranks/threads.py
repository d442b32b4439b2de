"""Ranks that are threads of one process, for what needs no processes: they meet in the same memory and sockets."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tessera.runtime.ranks import world
from tessera.runtime.ranks.shared_memory import LocalCommunicator, ends_of
from tessera.runtime.ranks.world import MESH, mesh_of


def on_ranks(function: Callable[[int], Any], seconds: float = 20.0, **axes: int) -> list[Any]:
    """What a function gives on each rank of a mesh, or raises there."""
    mesh = mesh_of(tuple(axes.items()))
    world_of = ends_of(mesh.size)
    communicators = [LocalCommunicator(ends, seconds) for ends in world_of]
    os.close(world_of[0].file)

    def one(communicator: LocalCommunicator) -> Any:
        token = MESH.set(mesh)
        try:
            with world.being(communicator):
                return function(communicator.rank)
        except Exception as error:
            communicator.abandon(str(error))
            return error
        finally:
            MESH.reset(token)

    with ThreadPoolExecutor(mesh.size) as pool:
        found = list(pool.map(one, communicators))
    for communicator in communicators:
        communicator.abandon("the end")
    return found
