"""`tessera.tile`: the kernel language, inside functions with `@kernel`."""

from __future__ import annotations

from tessera.frontend.kernel.language import *  # noqa: F403
