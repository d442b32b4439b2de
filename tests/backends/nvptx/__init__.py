"""Tests of the NVIDIA backend that need no GPU."""
