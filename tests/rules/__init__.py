"""Rules of the code base that a machine can check."""
