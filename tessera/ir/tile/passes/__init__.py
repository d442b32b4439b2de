"""The passes of the tile stage."""
