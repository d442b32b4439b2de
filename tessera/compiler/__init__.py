"""Tessera: compiler."""
