"""Complex tensors: pairs of real ones, and what functions of `tessera.ops` do with them."""
