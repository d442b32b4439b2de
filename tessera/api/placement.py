"""`with device(gpu[0]):` says where ops run: those called at once, jitted functions and kernels, and what is traced."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from tessera.api.state import KVCache
from tessera.compiler.options import Options, at_place
from tessera.diagnostics.codes import ArgumentError, DeviceError, TracingError
from tessera.frontend.policies import PolicyScope
from tessera.ir.base import dispatch
from tessera.ir.graph.policy_rules import static_bits
from tessera.types.device import DEVICE, Device, Gpus
from tessera.types.policy import SILENT


@contextmanager
def device(where: Device | Gpus, /, *, otherwise: Device | Gpus | None = None) -> Generator[Device]:
    """Within it, ops run on a device: `gpu[n]`, or `cpu`. Of nested scopes the inner one has its way.

    Ops called at once, jitted functions and kernels take tensors from anywhere and give them where they ran. Inside a
    jitted function it says where the function runs, which is one place: its program has `tessera.device`. A function
    with a `backend` of its own keeps it. `otherwise` is where to go on a machine that lacks the device.

    Raises: DeviceError (T0720) where there is no such device and no `otherwise`; inside `jit`, when the function runs.

    >>> with ts.device(ts.gpu[0], otherwise=ts.cpu) as place:
    ...     y = ts.array([1.0, 2.0]) * 2.0
    >>> place.kind in ("cpu", "gpu"), y.tolist()
    (True, [2.0, 4.0])
    """
    wanted = _named("device", where)
    otherwise = None if otherwise is None else _named("otherwise", otherwise)
    active: Any = dispatch.active()
    is_traced = active is not None and not getattr(active, "is_scope", False)
    # What is traced may be meant for another machine: only one that runs it must have the device.
    place = wanted if is_traced and otherwise is None else _found(wanted, otherwise)
    if is_traced:
        _note(active, place)
        yield place
        return
    policy, bits = (SILENT, static_bits()) if active is None else (active.policy, active.bits)
    with dispatch.recording(PolicyScope(policy, bits, place)):
        yield place


SPACES = {"smem": "shared", "shared": "shared"}
"""Memories that something is brought into ahead of its use."""
OVERLAPS = ("compute",)


@contextmanager
def prefetch(cache: KVCache, /, *, into: str = "smem", overlap: str = "compute") -> Generator[KVCache]:
    """Within it, keys and values of a cache are on their way to where they are read: `smem`, beside `compute`.

    The movement is an op of the program (`tgraph.kv_prefetch`), which gives the cache as it is then. On a GPU kernels
    that read it copy block after block ahead of their products; on a machine of one memory nothing moves. Results are
    the same.

    Raises: ArgumentError (T0202) for what is no cache, or another memory.

    >>> @ts.jit
    ... def attend(q: ts.Tensor[1, 2, 3, 8, ts.f32], cache: ts.KVCache):
    ...     with ts.prefetch(cache, into="smem", overlap="compute") as near:
    ...         return ts.ops.attention(q, near.K, near.V)
    >>> cache = ts.KVCache.empty(1, 2, 4, 8)
    >>> attend(ts.ones((1, 2, 3, 8)), cache).shape
    (1, 2, 3, 8)
    """
    if not isinstance(cache, KVCache):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`prefetch` takes a KVCache, got {type(cache).__name__}", fix="give it the cache itself")
    if into not in tuple(SPACES):
        raise ArgumentError(f"`into` is one of {', '.join(SPACES)}, got {into!r}", fix='write `into="smem"`')
    if overlap not in OVERLAPS:
        raise ArgumentError(f"`overlap` is `compute`, got {overlap!r}", fix='write `overlap="compute"`')
    yield cache.prefetch(SPACES[into])


def _named(what: str, where: Any) -> Device:
    """The device that is meant; raises for what is none."""
    wanted = where[0] if isinstance(where, Gpus) else where
    if not isinstance(wanted, Device):
        raise ArgumentError(f"`{what}` takes `gpu[n]` or `cpu`, got {where!r}", fix="write `device(gpu[0])`")
    return wanted


def _found(wanted: Device, otherwise: Device | None) -> Device:
    """The device, or the one to go to instead."""
    if wanted.kind == "cpu" and wanted.index == 0:
        return wanted
    missing = _missing(wanted)
    if missing is None:
        return wanted
    if otherwise is not None:
        return _found(otherwise, None)
    raise DeviceError(
        f"there is no {wanted!r} here: {missing}", fix=f"write `device({wanted!r}, otherwise=cpu)` to go on without one"
    )


def _missing(wanted: Device) -> str | None:
    """Why there is no such device; None where there is."""
    if wanted.kind != "gpu":
        return "a machine has one `cpu`"
    from tessera.runtime.devices.cuda_driver import driver  # noqa: PLC0415 - only where a GPU is asked for

    try:
        found = driver()
    except DeviceError as error:
        return error.message
    if found.ordinal != wanted.index:
        return f"this process works on gpu[{found.ordinal}], which TESSERA_CUDA_DEVICE says"
    return None


def _note(trace: Any, place: Device) -> None:
    """Write down where the function that is traced runs."""
    while trace.parent is not None:
        trace = trace.parent
    said = trace.tape.promises.setdefault(DEVICE, str(place))
    if said != str(place):
        raise TracingError(
            f"this function is placed on {Device.parse(said)!r} and on {place!r}, and a function runs in one place",
            fix="make two jitted functions of it, one for each device",
        )


@cache
def _options_at(place: Device) -> Options:
    return at_place(Options(), place)


def run_at(place: Device, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Run one op on a device."""
    from tessera.api.eager import run_op  # noqa: PLC0415 - which is loaded by then

    return run_op(op, operands, attributes, _options_at(place))


dispatch.install_placed(run_at)
