"""Tests of planning over ranks."""
