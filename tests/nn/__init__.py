"""Tests of `tessera.nn`."""
