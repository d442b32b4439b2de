"""`with device(gpu[0]):`, `with stream("compute"):` and `prefetch`: where ops run, eager or traced."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.api.kv_cache import KVCache
from tessera.compiler.backend import backend_for_kind
from tessera.diagnostics.codes import ArgumentError, DeviceError, TracingError
from tessera.frontend.functions.operands import is_tensor
from tessera.frontend.pytree import flatten, unflatten
from tessera.frontend.scopes import PolicyScope
from tessera.ir.base import dispatch
from tessera.ir.graph.policy_casts import static_bits
from tessera.types.device import DEVICE, Device, Gpus, cpu
from tessera.types.policy import SILENT

# `with stream("compute"):` says which stream of a device work goes to, by a name that this process shares.


@contextmanager
def stream(name: str, /) -> Generator[None]:
    """Within it, what is called on a GPU goes to the CUDA stream of this name, beside the work of other streams.

    Tensors know the stream that made them: a function that takes one of another stream begins when that work is done,
    and nothing else waits. On a CPU a call is done when it returns, and inside a jitted function the program has
    one stream, that of its call: there the name changes nothing. Results are the same everywhere.

    Raises: ArgumentError (T0202) for what is no name.

    >>> with ts.graph.stream("compute"):
    ...     y = ts.array([1.0, 2.0]) * 2.0
    >>> y.tolist()
    [2.0, 4.0]
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`stream` takes the name of a stream, got {name!r}", fix='write `stream("compute")`')
    if dispatch.tracing() is not None:
        yield
        return
    from tessera.runtime.devices.cuda import driver, streams  # noqa: PLC0415 - only where streams are asked for

    if not driver.is_available():
        yield
        return
    with streams.stream(streams.stream_named(name)):
        yield


@contextmanager
def device(where: Device | Gpus, /, *, otherwise: Device | Gpus | None = None) -> Generator[Device]:
    """Within it, ops run on a device: `gpu[n]`, or `cpu`. An inner scope overrides an outer one.

    Ops called eagerly, jitted functions and kernels take tensors from anywhere and return them where they ran. Inside
    a jitted function each op in the scope has `tessera.device` in Graph IR, and so has the function: it runs on one
    device, and ops outside of any scope run there too. A function with a `backend` of its own keeps it.
    `otherwise` is where to go on a machine that lacks the device.

    Raises: DeviceError (T0720) where there is no such device and no `otherwise`; inside `jit`, when the function runs.

    >>> with ts.device(ts.gpu[0], otherwise=ts.cpu) as target:
    ...     y = ts.array([1.0, 2.0]) * 2.0
    >>> target.kind in ("cpu", "gpu"), y.tolist()
    (True, [2.0, 4.0])
    """
    wanted = _device_named("device", where)
    otherwise = None if otherwise is None else _device_named("otherwise", otherwise)
    active: Any = dispatch.active()
    is_traced = not getattr(active, "is_scope", active is None)
    # What is traced may be meant for another machine: only one that runs it must have the device.
    target = wanted if is_traced and otherwise is None else _resolve(wanted, otherwise)
    if is_traced:
        _note(active, target)
        outer, active.placed = active.placed, str(target)
        try:
            yield target
        finally:
            active.placed = outer
        return
    policy, bits = (SILENT, static_bits()) if active is None else (active.policy, active.bits)
    # As `record_on` does it, without what entering it costs.
    stack = dispatch.TRACES.stack
    stack.append(PolicyScope(policy, bits, target))
    try:
        yield target
    finally:
        stack.pop()


SPACES = {"smem": "shared", "shared": "shared"}
"""Memories that something is prefetched into."""
OVERLAPS = ("compute",)


@contextmanager
def prefetch(obj: Any, /, *, into: str = "smem", overlap: str = "compute") -> Generator[Any]:
    """Within it, a tensor, a cache, or a container of them is prefetched to where it is read: `smem`, beside `compute`.

    Inside a jitted function the movement is an op of the program (`tgraph.prefetch`, of caches `tgraph.kv_prefetch`),
    and whatever reads the object in the block reads it there; so does what reads the one that is given. The loops that
    load it prefetch it, and `explain` lists it with its kernels, and by what. On a GPU blocks are prefetched ahead of
    their dots, into two buffers at least; on a CPU contiguous loads ask for cache lines ahead, by prefetch
    instructions. Where that changes nothing, `explain` says so. Results are the same.

    Raises: ArgumentError (T0202) for what holds no tensors, for another memory, or for other work to go on beside.

    >>> @ts.jit
    ... def attend(q: ts.Tensor[1, 2, 3, 8, ts.f32], cache: ts.KVCache):
    ...     with ts.prefetch(cache, into="smem", overlap="compute"):
    ...         return ts.ops.attention(q, cache.K, cache.V)
    >>> cache = ts.KVCache.empty(1, 2, 4, 8)
    >>> attend(ts.ones((1, 2, 3, 8)), cache).shape
    (1, 2, 3, 8)
    """
    if not isinstance(into, str) or into not in SPACES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`into` is one of {', '.join(SPACES)}, got {into!r}", fix='write `into="smem"`')
    if not isinstance(overlap, str) or overlap not in OVERLAPS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`overlap` is `compute`, got {overlap!r}", fix='write `overlap="compute"`')
    leaves, tree = flatten(obj)
    if not leaves or not all(is_tensor(leaf) for leaf in leaves):
        raise ArgumentError(
            f"`prefetch` takes a tensor, a KVCache or a container of tensors, got {type(obj).__name__}",
            fix="give it what is about to be read",
        )
    trace: Any = dispatch.tracing()
    if trace is None:
        yield obj  # ops run eagerly, one after the other: there is nothing to go on beside
        return
    near = _near(obj, leaves, tree, SPACES[into], overlap)
    # Whatever reads the object in the block reads it where it is then.
    read = [(found, found.value) for leaf in leaves if (found := _read_as(trace, leaf)) is not None]
    for leaf, there in zip(leaves, flatten(near)[0], strict=True):
        found = _read_as(trace, leaf)
        if found is not None:
            found.value = there.value
    try:
        yield near
    finally:
        for found, value in read:
            found.value = value


def _near(obj: Any, leaves: Sequence[Any], tree: Any, space: str, overlap: str) -> Any:
    """The object as it is prefetched."""
    if isinstance(obj, KVCache):
        return obj.prefetch(space)
    given = {"space": space, "overlap": overlap}
    return unflatten(tree, [dispatch.apply("prefetch", (leaf,), given) for leaf in leaves])


def _read_as(trace: Any, leaf: Any) -> Any:
    """Where a trace keeps the value that a tensor is read as; None for one of a trace around it."""
    return leaf if getattr(leaf, "recorder", None) is trace else trace.lifted.get(id(leaf))


def _device_named(what: str, where: Any) -> Device:
    """The device that is meant; raises for what is none."""
    wanted = where[0] if isinstance(where, Gpus) else where
    if not isinstance(wanted, Device):
        raise ArgumentError(f"`{what}` takes `gpu[n]` or `cpu`, got {where!r}", fix="write `device(gpu[0])`")
    return wanted


def _resolve(wanted: Device, otherwise: Device | None) -> Device:
    """The device, or the one to go to instead."""
    if wanted == cpu or wanted in _FOUND:
        return wanted
    from tessera.runtime.devices import find_device  # noqa: PLC0415 - only where another device is asked for

    try:
        find_device(backend_for_kind(wanted.kind).device).at(wanted.index)
    except DeviceError as error:
        if otherwise is not None:
            return _resolve(otherwise, None)
        raise DeviceError(
            f"there is no {wanted!r} here: {error.message}",
            fix=f"write `device({wanted!r}, otherwise=cpu)` to go on without one",
        ) from None
    _FOUND.add(wanted)
    return wanted


_FOUND: set[Device] = set()
"""Devices that this process has: a process that has one keeps it."""


def _note(trace: Any, target: Device) -> None:
    """Write down where the function that is traced runs."""
    while trace.parent is not None:
        trace = trace.parent
    named = trace.tape.promises.setdefault(DEVICE, str(target))
    if named != str(target):
        raise TracingError(
            f"this function is placed on {Device.parse(named)!r} and on {target!r}, and a function runs on one device",
            fix="make two jitted functions of it, one for each device",
        )
