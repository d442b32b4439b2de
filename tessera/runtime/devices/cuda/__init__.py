"""NVIDIA GPUs, through the CUDA driver; `DEVICE` loads with its first use, since compilers read constants here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DEVICE":
        raise AttributeError(name)
    from tessera.runtime.devices.cuda.device import DEVICE  # noqa: PLC0415

    return DEVICE
