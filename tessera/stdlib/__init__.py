"""What comes with Tessera, written in Tessera: kernels to use as they are, or with `with_schedule` as you like."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera.stdlib.attention import flash_attention_2, rotary_embedding
    from tessera.stdlib.rows import efficient_layernorm, stable_softmax

_HOME = {
    "flash_attention_2": "attention",
    "rotary_embedding": "attention",
    "efficient_layernorm": "rows",
    "stable_softmax": "rows",
}

__all__ = ["efficient_layernorm", "flash_attention_2", "rotary_embedding", "stable_softmax"]


def __getattr__(name: str) -> Any:
    """A kernel, loaded when it is first asked for: the compiler's own library stands here too."""
    if name not in _HOME:
        raise AttributeError(f"module `tessera.stdlib` has no attribute `{name}`")
    return getattr(importlib.import_module(f"tessera.stdlib.{_HOME[name]}"), name)
