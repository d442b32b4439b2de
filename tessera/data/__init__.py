"""`ts.data`: token files, datasets, and loaders that give batches in an order that can be continued at any point."""

from __future__ import annotations

from tessera.data.batches import stack
from tessera.data.datasets import Dataset, RandomWindows, Windows
from tessera.data.loader import Loader
from tessera.data.tokens import TokenFile, append_tokens, write_tokens
from tessera.diagnostics.frames import guard_public as _guard

__all__ = ["Dataset", "Loader", "RandomWindows", "TokenFile", "Windows", "append_tokens", "stack", "write_tokens"]

_guard(globals(), __all__)
