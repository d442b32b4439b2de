"""The NVIDIA backend as a value: kernels as PTX, launched by a native host program."""

from __future__ import annotations

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.types.device import Manifest

MANIFEST = Manifest(
    "cuda",
    device_kind="gpu",
    device="cuda",
    asks_device=True,
    has_launch_schedule=True,
    has_collectives=True,
    machines=tuple(GPUS.values()),
)
