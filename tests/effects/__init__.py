"""Effects: the lattice, inference, scopes, order, and callbacks."""
