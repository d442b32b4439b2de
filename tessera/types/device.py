"""Devices as values (`cpu`, `gpu[n]`), the backends that compile for them, and the memory spaces that they have."""

from __future__ import annotations

from tessera.diagnostics.codes import ArgumentError
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

# `Manifest`: what is known of a backend before any of its code is loaded, as a plain value.


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
    keeps_rows_in_registers: bool = False
    """Whether rows of tiles are vector registers of one thread: padded to whole ones, and no wider than those."""
    has_launch_schedule: bool = False
    """Whether warps, stages and vectors of a schedule change its code, and not blocks alone."""
    machines: tuple[Machine, ...] = ()
    """The machines that users can name to compile for."""

    @property
    def compiles(self) -> bool:
        """Whether it makes executables; else it interprets traces op by op."""
        return bool(self.device)


# Memory spaces: who sees each, what moves between which two, and the route where nothing does directly.

SCOPES = ("thread", "block", "device", "machine")
"""Scopes: who sees a space, smallest first."""


@frozen
class Space:
    """A kind of memory: who sees it, and the feature that a machine has it with, if not all have it."""

    name: str
    scope: str
    feature: str = ""


SPACES: dict[str, Space] = {
    space.name: space
    for space in (
        Space("register", "thread"),
        Space("shared", "block"),
        Space("tmem", "block", "tcgen05"),
        Space("global", "device"),
        Space("managed", "machine"),
        Space("host", "machine"),
    )
}

TRANSFERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("register", "shared"): ("",),
    ("shared", "register"): ("", "ldmatrix"),
    ("register", "global"): ("",),
    ("global", "register"): ("",),
    ("register", "managed"): ("",),
    ("managed", "register"): ("",),
    ("global", "shared"): ("tma", "cp.async"),
    ("shared", "global"): ("tma",),
    ("shared", "tmem"): ("tcgen05",),
    ("register", "tmem"): ("tcgen05",),
    ("tmem", "register"): ("tcgen05",),
    ("global", "managed"): ("",),
    ("managed", "global"): ("",),
    ("global", "host"): ("",),
    ("host", "global"): ("",),
    ("managed", "host"): ("",),
    ("host", "managed"): ("",),
}
"""Direct transfers between spaces, by the machine features that do them; "" is what every machine has.

Within one space things are copied by whoever sees it: `register` and `shared`, `global`, `managed` and `host` alone.
"""

_WITHIN = ("register", "shared", "global", "managed", "host")


def is_seen_by(space: str, scope: str) -> bool:
    """Whether a space is visible in a whole scope: a device sees global memory, and not the registers of a thread.

    >>> is_seen_by("global", "block"), is_seen_by("shared", "device")
    (True, False)
    """
    return SCOPES.index(SPACES[space].scope) >= SCOPES.index(scope) and (space != "host" or scope == "machine")


def join(first: str, second: str) -> str:
    """The smallest space that all who see either of two see as well.

    >>> join("register", "shared"), join("tmem", "shared"), join("global", "host")
    ('shared', 'global', 'managed')
    """
    if first == second:
        return first
    scopes = [SCOPES.index(SPACES[space].scope) for space in (first, second)]
    if {first, second} == {"shared", "tmem"}:
        return "global"
    if "host" in (first, second):
        return "managed"
    return (first, second)[scopes.index(max(scopes))]


def moves(source: str, target: str) -> tuple[str, ...]:
    """The features that transfer directly between two spaces; none where nothing does."""
    if source == target:
        return ("",) if source in _WITHIN else ()
    return TRANSFERS.get((source, target), ())


def route(source: str, target: str) -> tuple[str, ...]:
    """The spaces that something is copied through, both ends included; empty where there is no route.

    >>> route("host", "shared")
    ('host', 'global', 'shared')
    """
    routes: list[tuple[str, ...]] = [(source,)]
    while routes:
        found = routes.pop(0)
        if found[-1] == target:
            return found
        routes += [(*found, space) for space in SPACES if space not in found and moves(found[-1], space)]
    return ()


def problem(source: str, target: str, features: tuple[str, ...] | None = None) -> str:
    """Why a machine has no direct transfer between two spaces; empty where it has one."""
    for space in (source, target):
        if space not in SPACES:
            return f"there is no memory `{space}`; there are {', '.join(SPACES)}"
    transfers = moves(source, target)
    if not transfers:
        steps = " to ".join(route(source, target))
        return f"there is no direct transfer from {source} to {target} memory" + (f": go from {steps}" if steps else "")
    if features is not None and not any(one == "" or one in features for one in transfers):
        return f"moving from {source} to {target} memory takes {' or '.join(transfers)}, and the machine has neither"
    return ""


DEVICE = "tessera.device"
"""The attribute of a function, or of an op in a scope, that says where it runs: `cpu:0`, `gpu:1`."""


@frozen
class Device:
    """A CPU (`cpu`) or a GPU (`gpu`), by number.

    >>> gpu[1]
    gpu[1]
    >>> Device.parse(str(gpu[1])) == gpu[1]
    True
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"gpu[{self.index}]" if self.kind == "gpu" else self.kind

    @staticmethod
    def parse(text: str) -> Device:
        """The device that a string such as `gpu:1` names."""
        kind, _, index = text.partition(":")
        return Device(kind, int(index or 0))


class Gpus:
    """The GPUs of this machine: `gpu[0]`; `gpu` alone is the first."""

    def __getitem__(self, index: int) -> Device:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"`gpu` is indexed by a number from 0 on, got {index!r}", fix="write `gpu[0]`")
        return Device("gpu", index)

    def __repr__(self) -> str:
        return "gpu"


gpu = Gpus()
cpu = Device("cpu")
