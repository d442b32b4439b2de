"""Tessera: types."""
