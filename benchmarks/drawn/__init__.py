"""Programs drawn from the list of ops at random sizes, against the best peer: `python -m benchmarks.drawn`."""
