"""Tessera: base."""
