"""Finding the plan in a module: its programs, and the fusion groups in them, control flow included."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp


def programs_in(module: ModuleOp) -> Iterator[SpecOp]:
    """The plans of a module."""
    for op in module.ops:
        if op.name == "tsched.module":
            assert isinstance(op, SpecOp)
            yield op


def fusions_in(module: ModuleOp) -> list[SpecOp]:
    """All groups, in the order they stand."""
    return [
        op
        for program in programs_in(module)
        for op in program.walk()
        if isinstance(op, SpecOp) and op.name == "tsched.fuse"
    ]
