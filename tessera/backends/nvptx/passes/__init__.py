"""The passes of the NVIDIA backend."""
