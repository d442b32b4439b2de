"""The content hash of IR: the same in every process, blind to spans, names of values and the order of attributes."""

from __future__ import annotations

import hashlib
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.op import SpecOp, value_text
from tessera.ir.base.types import type_text_of


def content_hash(op: Operation) -> str:
    """A SHA-256 that two ops share exactly when their texts are equal but for names and spans."""
    return hashlib.sha256(canonical_text(op).encode()).hexdigest()


def canonical_text(op: Operation) -> str:
    """What is hashed: one op a line, values numbered in the order they are defined."""
    lines: list[str] = []
    _write_op(op, {}, lines, 0)
    return "\n".join(lines)


def _write_op(op: Operation, numbers: dict[SSAValue, int], lines: list[str], level: int) -> None:
    operands = ",".join([str(numbers[value]) if value in numbers else "free" for value in op.operands])
    types = ",".join([type_text_of(result.type) for result in op.results])
    lines.append(f"{level} {op.name}({operands}){_attributes(op)}:{types}")
    for result in op.results:
        numbers[result] = len(numbers)
    for region in op.regions:
        for block in region.blocks:
            _write_block(block, numbers, lines, level + 1)


def _write_block(block: Block, numbers: dict[SSAValue, int], lines: list[str], level: int) -> None:
    for argument in block.args:
        numbers[argument] = len(numbers)
    lines.append(f"{level} block({','.join([type_text_of(argument.type) for argument in block.args])})")
    for op in block.ops:
        _write_op(op, numbers, lines, level)


def _attributes(op: Operation) -> str:
    properties: dict[str, Any] = dict(op.properties)
    if isinstance(op, SpecOp) and op.defaults.keys() - properties.keys():
        properties = {**op.defaults, **properties}
    parts = [f"{name}={value_text(value)}" for name, value in sorted(properties.items())]
    parts += [f"+{name}={value_text(value)}" for name, value in sorted(op.attributes.items())]
    return "{" + ",".join(parts) + "}" if parts else ""
