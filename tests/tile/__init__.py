"""Tests of the tile stage."""
