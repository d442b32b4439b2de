"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from tessera.api import eager as _eager  # noqa: F401 - lets these functions run outside `jit`
from tessera.frontend.functions.public import *  # noqa: F403
