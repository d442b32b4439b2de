"""Tests of `ts.train`: steps, the loop, checkpoints, and that a run continues bit for bit."""
