"""Tessera: frontend."""
