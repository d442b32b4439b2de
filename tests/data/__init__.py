"""Tests of `ts.data`: token files, datasets and loaders."""
