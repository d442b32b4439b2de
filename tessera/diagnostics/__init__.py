"""Tessera: diagnostics."""
