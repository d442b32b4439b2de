"""Tessera: passes."""
