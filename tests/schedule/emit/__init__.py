"""Tests of kernels written from bodies."""
