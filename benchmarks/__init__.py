"""Benchmarks: workloads, the libraries they are timed in, and the harness that times them fairly."""
