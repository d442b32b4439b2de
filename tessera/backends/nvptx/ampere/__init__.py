"""Ampere and later: kernels whose warps copy by cp.async and multiply by mma.sync, lowered and as LLVM text."""
