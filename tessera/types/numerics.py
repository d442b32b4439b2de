"""The numbers of the recipes that say in which order floats are added (docs/guide/numerics.md).

They are part of what a program means: no machine, tile or tuner changes them. `VERSION` goes up with every change of a
recipe, and is part of compiled files and of the keys of caches, so that no code of an older recipe runs unnoticed.
"""

from __future__ import annotations

VERSION = 3
"""Of all recipes together."""

LEAF = 1024
"""Elements of a leaf of a reduction."""

LANES = 256
"""Lanes of a leaf: element `i` of it goes to lane `i % LANES`."""
