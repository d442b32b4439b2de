"""`Manifest`: what is known of a backend before any of its code is loaded, as a plain value."""

from __future__ import annotations

from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class Manifest:
    """A backend as its folder declares it (`backends/<folder>/manifest.py`: `MANIFEST`).

    `name` is what users write (`backend="cpu"`). `device_kind` is the kind of `Device` whose tensors select it; "" if
    only its name does. `device` is the folder of `runtime/devices` that runs its executables; "" for a backend that
    interprets traces itself and compiles nothing, so that nothing of it is on disk either.
    """

    name: str
    device_kind: str = ""
    device: str = ""
    has_collectives: bool = False
    """Whether its programs can communicate with other ranks."""
    runs_in_host_memory: bool = False
    """Whether arguments that are on a device are copied to host memory for it."""
    asks_device: bool = False
    """Whether code is for the very device that is found, which must be asked before a cache key is known."""
    has_launch_schedule: bool = False
    """Whether warps, stages and vectors of a schedule change its code, and not blocks alone."""
    machines: tuple[Machine, ...] = ()
    """The machines that users can name to compile for."""

    @property
    def compiles(self) -> bool:
        """Whether it makes executables; else it interprets traces op by op."""
        return bool(self.device)
