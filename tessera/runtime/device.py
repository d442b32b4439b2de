"""`Device`: the protocol of what runs compiled programs; each module or folder of `runtime/devices` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tessera.runtime.executable import Executable


class Device(Protocol):
    """What `runtime/devices/<name>` exports as `DEVICE`."""

    def load(self, executable: Executable, functions: Sequence[Any] = ()) -> Any:
        """A compiled program, ready to run; `functions` are those of Python that it calls."""
        ...

    def features(self) -> tuple[str, ...]:
        """What code for the very device that is here is compiled for; raises DeviceError (T0720) where none is."""
        ...

    def architecture(self) -> str:
        """The name of the device's architecture, as measurements are kept by; raises DeviceError where none is."""
        ...

    def synchronize(self) -> None:
        """Wait until all work that was given to the device is done."""
        ...
