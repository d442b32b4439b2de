"""Same bits: whatever the threads, tiles, caches and batches."""
