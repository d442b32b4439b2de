"""The passes of the schedule stage."""
