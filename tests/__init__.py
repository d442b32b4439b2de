"""Tests of the package, one folder per stage."""
