"""Tessera: tile."""
