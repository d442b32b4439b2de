"""Tests of the runtime: loading, launching, memory, threads, tensors and the cache."""
