"""Collectives under way, by their names: what begins one, what ends it, and what can be one."""

from __future__ import annotations

from xdsl.ir import Operation

CALLS = ("all_gather", "all_to_all")
"""What moves bytes and nothing else."""

START, WAIT = "tsched.collective_start", "tsched.collective_wait"


def is_placed(op: Operation) -> bool:
    """Whether an op of these works on buffers: it then gives no value of its own."""
    return not op.results
