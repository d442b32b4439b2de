"""Tile kernels from fusion groups: grids, loops and accesses from the facets of the ops in a group."""
