"""Tessera: cli."""
