"""Tessera: x86."""
