"""The passes of the x86 backend."""
