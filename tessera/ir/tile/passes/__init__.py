"""The passes of the tile room."""
