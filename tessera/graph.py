"""`tessera.graph`: queues by name, so that work of one goes on beside that of others."""

from __future__ import annotations

from tessera.api.placement import stream

__all__ = ["stream"]
