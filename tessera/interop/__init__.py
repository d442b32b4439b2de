"""Functions of Tessera inside other frameworks: `tessera.interop.torch`."""
