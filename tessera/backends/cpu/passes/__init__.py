"""The passes of the cpu backend."""
