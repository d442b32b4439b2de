"""Tessera: api."""
