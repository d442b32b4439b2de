"""`ts.cuda`: tensors on an NVIDIA GPU, its streams, and captures of what was put into them."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.runtime.devices.cuda.driver import driver, is_available, synchronize
from tessera.runtime.devices.cuda.memory import POOL
from tessera.runtime.devices.cuda.metrics import metrics, tensor_map_counts
from tessera.runtime.devices.cuda.race_check import race_check
from tessera.runtime.devices.cuda.streams import Event, Graph, Stream, capture, current_stream, stream
from tessera.runtime.devices.cuda.tensor import CudaTensor

array = CudaTensor.of
write = CudaTensor.write
empty = CudaTensor.empty

__all__ = [
    "POOL",
    "CudaTensor",
    "Event",
    "Graph",
    "Stream",
    "array",
    "capture",
    "current_stream",
    "driver",
    "empty",
    "is_available",
    "metrics",
    "race_check",
    "stream",
    "synchronize",
    "tensor_map_counts",
    "write",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
