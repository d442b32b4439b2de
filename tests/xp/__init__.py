"""Tests of `tessera.xp`, the array API standard."""
