"""Tessera: ir."""
