"""The schedule stage: from Graph IR to fusion groups, tile kernels and the host program that launches them."""
