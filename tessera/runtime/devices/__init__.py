"""The devices that run compiled programs: each module or folder here is one, found by its name."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.runtime.device import Device


@cache
def find_device(name: str) -> Device:
    """The device of a module or folder; what it needs of a driver is loaded with it."""
    return importlib.import_module(f"{__name__}.{name}").DEVICE
