"""Tests of the tile room."""
