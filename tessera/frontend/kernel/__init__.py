"""The kernel language: from a Python function's source to a program on tiles, every op with its span."""
