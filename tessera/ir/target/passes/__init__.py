"""The passes of the target room; a file's path is its pass's name."""
