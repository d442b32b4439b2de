"""The cpu backend as a value: native code for the CPU of this process."""

from __future__ import annotations

from tessera.types.device import Manifest

MANIFEST = Manifest(
    "cpu",
    device_kind="cpu",
    device="host",
    has_collectives=True,
    runs_in_host_memory=True,
    keeps_rows_in_registers=True,
)
