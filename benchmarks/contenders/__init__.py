"""The libraries a workload is timed in; one file each, all with the same two functions."""
