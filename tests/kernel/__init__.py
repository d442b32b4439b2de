"""Tests of the kernel language."""
