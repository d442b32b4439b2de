"""Tests written as IR, with what to expect in comments."""
