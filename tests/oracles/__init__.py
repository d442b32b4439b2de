"""Oracles: executors and simulators that only tests use, to check what the compiler makes against what it means."""
