"""The passes of the schedule room."""
