"""Tessera: CPUs (x86-64 today), by machine tables."""
