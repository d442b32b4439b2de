"""The host program of a plan: what its ops touch, in which order launches may run, and where buffers are."""
