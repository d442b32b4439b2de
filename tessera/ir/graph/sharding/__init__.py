"""Sharding of Graph IR: how dims of an op belong together, what follows for other values, and one rank's program."""
