"""Tests of what comes with Tessera."""
