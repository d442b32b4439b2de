"""`tessera.graph`: kernels of whole tensors that write to destinations, and streams by name."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.graph_kernel import kernel
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.placement import stream
from tessera.diagnostics.frames import guard_public as _guard

__all__ = ["kernel", "stream"]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
