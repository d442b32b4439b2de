"""Hopper: kernels of a producer warp and consumer warp groups, with TMA, mbarriers and WGMMA, as LLVM text."""
