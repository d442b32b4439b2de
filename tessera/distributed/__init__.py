"""Training by many ranks: recipes that divide one training step, and layers, states and checkpoints in parts."""

from __future__ import annotations
