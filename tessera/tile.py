"""`tessera.tile`: the kernel language, inside functions with `@kernel`."""

from __future__ import annotations

from tessera.frontend.kernel.language import *  # noqa: F403
from tessera.frontend.kernel.language import __all__ as __all__


def __dir__() -> list[str]:
    return __all__
