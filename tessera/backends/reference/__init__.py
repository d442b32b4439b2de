"""The oracle as a backend: runs a tape op by op through the reference of each; asked for by name, never a fallback."""
