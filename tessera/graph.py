"""`tessera.graph`: streams by name, whose work runs concurrently."""

from __future__ import annotations

from tessera.api.placement import stream

__all__ = ["stream"]
