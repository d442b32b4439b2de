"""Tessera: backends."""
