"""Tessera: ops."""
