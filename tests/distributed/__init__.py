"""Tests of what ranks do together: parts of arrays, training recipes, and checkpoints on other meshes."""
