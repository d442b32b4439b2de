"""Devices that run compiled programs, each found by its name; `Device` is their protocol, and this its contract.

A module or folder here that exports `DEVICE` is a device: the host, CUDA, and whatever else is put here.
`tests/runtime/devices/conformance.py` is the test suite of this contract, which any implementation can run.

**Addresses.** Memory and streams are integers that only their device can read: an address on CUDA and HIP, the handle
of a buffer where a device has no addresses (WebGPU). An address may be added to only inside one allocation, and only
where `has_addresses`. Streams are handles, too; 0 is the default stream, which always exists.

**Order.** Work of one stream (copies, launches) runs in the order in which it was given. Work of two streams has no
order unless `wait` makes one. A call that gives work to a stream may return before the work is done; then
`is_asynchronous` is true, and `synchronize` is how the host waits. `copy_in` may return early, but not before the host
memory that it reads may be written again; `copy_out` returns when host memory has the bytes.

**Memory.** `allocate` gives memory aligned to 64 bytes at least, with no meaning in it; 0 bytes are an address too.
`free` may be called while work that was given to `stream` still uses the memory: it is given to others only after that.
All memory of a device that fails to be had raises OutOfMemoryError (T0707); all else that fails, DeviceError (T0720),
and it may do so late, at the next call that waits.

**Threads.** Any thread may call any method. Several devices of one kind are told apart by `index`; `at` gives another.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tessera.runtime.executable import Executable


@cache
def find_device(name: str) -> Device:
    """The device of a module or folder; what it needs of a driver is loaded with it."""
    return importlib.import_module(f"{__name__}.{name}").DEVICE


class Program(Protocol):
    """A compiled program loaded onto a device; `calls` is how often it ran."""

    @property
    def calls(self) -> int: ...

    def call(self, *tensors: Any) -> Any:
        """The result of one output, or a tuple; NotImplemented when the tensors are not what this path takes."""
        ...

    def run(self, arguments: Sequence[Any]) -> Any:
        """As `call`, for all that can be made to fit; says what is wrong with the rest."""
        ...


class Device(Protocol):
    """One device of this process; see the contract above."""

    name: str
    """Its module or folder."""
    is_asynchronous: bool
    """Whether work may still run when the call that gave it has returned."""
    has_addresses: bool
    """Whether memory has addresses that can be added to."""

    @property
    def index(self) -> int:
        """Its number among the devices of its kind."""
        ...

    def at(self, index: int) -> Device:
        """Another device of the kind; raises DeviceError (T0720) where there is none, or this process has another."""
        ...

    def architecture(self) -> str:
        """The name of what it is, by which measurements are kept; raises DeviceError (T0720) where there is none."""
        ...

    def features(self) -> tuple[str, ...]:
        """What code for this very device is compiled for; raises DeviceError (T0720) where there is none."""
        ...

    def allocate(self, size: int, stream: int = 0) -> int:
        """Memory for work of a stream."""
        ...

    def free(self, address: int, stream: int = 0) -> None:
        """Give memory back that `allocate` gave for the same stream."""
        ...

    def copy_in(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """From an address of host memory to the device."""
        ...

    def copy_out(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """From the device to an address of host memory, after the work before it in the stream."""
        ...

    def copy_within(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """From one address of the device to another."""
        ...

    def load_kernel(self, code: bytes, name: str, shared: int = 0) -> Any:
        """A kernel of machine code, or of text that the driver compiles, with `shared` bytes of shared memory.

        Raises LoadError (T0704) or DeviceError (T0720) for code that is not for this device.
        """
        ...

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
        stream: int = 0,
    ) -> None:
        """Run a kernel of `load_kernel` on a grid of blocks; arguments are addresses and 64-bit integers."""
        ...

    def create_stream(self) -> int:
        """A stream whose work runs beside that of others; it lives as long as the process."""
        ...

    def wait(self, stream: int, other: int) -> None:
        """Let what comes next in `stream` begin after what is in `other` now; the host does not wait."""
        ...

    def synchronize(self, stream: int | None = None) -> None:
        """Wait on the host until the work of a stream, or of all of them, is done."""
        ...

    def load(self, executable: Executable, functions: Sequence[Callable[..., Any]] = ()) -> Program:
        """A compiled program, ready to be called; `functions` are those of Python that it calls, by slot."""
        ...
