"""Tests of ranks: what moves their bytes, and who starts them."""
