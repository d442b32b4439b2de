"""Tests of the target stage."""
