"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from tessera.api.eager import install as _install
from tessera.frontend.functions.public import *  # noqa: F403

_install()
