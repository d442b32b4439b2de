"""Rules by which ops are differentiated: `jvp`, linear in the tangents, and `transpose` for linear ops.

A `jvp` rule gets a builder and the op as it was applied (`Applied`), and gives the tangents of its results. A
`transpose` rule gets a builder, the cotangents of the results (None for zero), the operands (`Linear` for those that
depend on tangents) and the attributes, and gives the cotangents of the operands, None for those that are not `Linear`.
"""
