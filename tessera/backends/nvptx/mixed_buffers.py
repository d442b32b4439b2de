"""Memory of a kernel that threads must wait for each other over: what some write there, others read."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp


def mixed_buffers(kernel: SpecOp) -> set[SSAValue]:
    """Memory that is in order, is read and written, and not always by the same threads."""
    seen: dict[SSAValue, set[Any]] = {}
    stored: set[SSAValue] = set()
    loaded: set[SSAValue] = set()
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttile.fetch" and not _is_waited_for(op):
            # All threads read the one element, and who wrote it is one of them.
            seen.setdefault(op.operands[0], set()).add(op)
            loaded.add(op.operands[0])
        if not isinstance(op, SpecOp) or op.name not in ("ttile.load", "ttile.store"):
            continue
        is_store = op.name == "ttile.store"
        buffer, tile = op.operands[is_store], op.operands[0] if is_store else op.results[0]
        seen.setdefault(buffer, set()).add((tile.type, *_reach(op)))
        (stored if is_store else loaded).add(buffer)
    shared = {op.results[0] for op in kernel.walk() if isinstance(op, SpecOp) and _is_shared(op)}
    return {buffer for buffer in stored & loaded if len(seen[buffer]) > 1} - shared


def _is_waited_for(fetch: SpecOp) -> bool:
    """Whether a barrier stands between an index in memory and what was last written there, by its author."""
    at = fetch.prev_op
    while at is not None and at.name != "ttile.barrier":
        if at.regions or (at.name == "ttile.store" and at.operands[1] is fetch.operands[0]):
            return False
        at = at.prev_op
    return at is not None


def _reach(op: SpecOp) -> tuple[Any, ...]:
    """How the elements of an access find their cells: alike for two accesses whose equal places are equal cells."""
    axes, map_ = set(op.value("axes")), op.value("map")
    found = (op.value("axes"), *(str(part) for part in map_ if part.symbols & axes))
    indices = {f"t{number}" for number in range(len(op.operands))}
    # An element that is found by an index may be anybody's.
    return (*found, op) if any(part.symbols & indices for part in map_) else found


def _is_shared(op: SpecOp) -> bool:
    return op.name == "ttile.scratch" and op.value("space") == "shared"
