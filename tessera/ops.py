"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from tessera.api.eager import install
from tessera.frontend.functions.public import *  # noqa: F403

install()
