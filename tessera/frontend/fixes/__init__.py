"""Fixes that cure: for an error, the edit of the user's source that makes the program right; loaded by errors alone."""
