"""Runs executables: links their objects, binds their dims, launches them, and holds the tensors they work on."""
