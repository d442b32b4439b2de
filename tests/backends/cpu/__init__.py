"""Tests of the cpu backend."""
