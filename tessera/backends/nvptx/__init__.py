"""The NVIDIA backend: tile kernels as PTX."""
