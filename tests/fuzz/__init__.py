"""Random programs, compiled and interpreted."""
