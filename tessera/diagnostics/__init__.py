"""Diagnostics: what went wrong, where, and what to do about it."""
