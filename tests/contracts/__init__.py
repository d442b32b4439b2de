"""Tests of the table of contracts, and of the gate for new constructs."""
