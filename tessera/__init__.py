"""Tessera: tessera."""
