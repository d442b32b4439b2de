"""Trials that rerun an attack or a fuzz campaign: a small part with the tests, the full count by an argument."""
