"""Blackwell: kernels that accumulate in tensor memory by tcgen05, lowered and as LLVM text; never executed."""
