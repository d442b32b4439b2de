"""Tests of the x86 backend."""
