"""The reference backend as a value: every op by its reference on NumPy, asked for by name and never a fallback."""

from __future__ import annotations

from tessera.types.device import Manifest

MANIFEST = Manifest("reference", has_collectives=True)
