"""Rules by which ops are batched: each gets a builder and an op, and gives its results with a new first axis.

Operands that are batched have that axis too; the others are the same for all of the batch. An op without a rule is
batched through its `decompose`, and one without that is run for one element of the batch after the other.
"""
