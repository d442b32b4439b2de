"""Tests of tuning whole programs."""
