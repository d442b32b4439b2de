"""What comes with Tessera, written in Tessera: kernels to use as they are, or with `with_schedule` as you like."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera.stdlib.optimizers import fused_adam
    from tessera.stdlib.tile_kernels import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax

__all__ = ["efficient_layernorm", "flash_attention_2", "fused_adam", "rotary_embedding", "stable_softmax"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """A kernel, loaded at its first use: the compiler's own library is in this package too."""
    if name not in __all__:
        raise AttributeError(f"module `tessera.stdlib` has no attribute `{name}`")
    home = "optimizers" if name == "fused_adam" else "tile_kernels"
    return getattr(importlib.import_module(f"tessera.stdlib.{home}"), name)
