"""Tessera: runtime."""
