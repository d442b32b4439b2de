"""The functions users call on tensors: each checks and completes its arguments, then asks for one op or a few."""
