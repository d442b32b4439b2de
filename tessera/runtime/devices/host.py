"""The host as a device: a call has ended when it returns, so there is nothing to wait for."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable


class HostDevice:
    """Runs native code on the threads of this process."""

    def load(self, executable: Executable, functions: Sequence[Any] = ()) -> LoadedExecutable:
        return LoadedExecutable(executable, functions=functions)

    def features(self) -> tuple[str, ...]:
        """None: the backend reads those of the CPU itself."""
        return ()

    def architecture(self) -> str:
        return platform.machine()

    def synchronize(self) -> None:
        """Nothing is under way."""


DEVICE = HostDevice()
