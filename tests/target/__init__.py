"""Tests of the target room."""
