"""The passes of the target stage; a file's path is its pass's name."""
