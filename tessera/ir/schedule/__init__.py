"""Tessera: schedule."""
