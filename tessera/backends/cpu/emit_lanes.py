"""Shuffles and votes of segments of lanes on a processor: all lanes of a program are in registers of one thread."""

from __future__ import annotations

from typing import Any

from tessera.backends.cpu.blocks import Vectors
from tessera.ir.base.op import SpecOp
from tessera.ir.target.lanes import partner
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText


def _elements(emitter: Any, op: SpecOp) -> list[list[Value]]:
    """The elements of a block, row by row, each as a scalar."""
    f: FunctionText = emitter.f
    source = emitter.blocks[op.operands[0]]
    layout = source.layout
    vectors = [source[number] for number in range(layout.count)]
    rows = [vectors[start : start + layout.chunks] for start in range(0, len(vectors), layout.chunks)]
    return [[f.extract(vector, lane) for vector in row for lane in range(layout.lanes)] for row in rows]


def _keep(emitter: Any, op: SpecOp, rows: list[list[Value]]) -> None:
    """Elements as the block that the op gives; code generation turns takes and puts of lanes into shuffles."""
    f: FunctionText = emitter.f
    layout, dtype = emitter.layout(op.result)
    found: list[Value] = []
    for row in rows:
        for start in range(0, len(row), layout.lanes):
            part = row[start : start + layout.lanes]
            whole = part[0]
            if layout.lanes > 1:
                whole = Value(f"<{layout.lanes} x {part[0].type}>", "poison")
                for lane, value in enumerate(part):
                    whole = f.insert(whole, value, lane)
            found.append(whole)
    emitter.blocks[op.result] = Vectors.of(layout, dtype, found)


def emit_shuffle(emitter: Any, op: SpecOp) -> None:
    """Each element from another lane of its segment."""
    way, by, width = op.value("mode"), op.value("by"), op.value("width")
    rows = [[row[partner(way, by, width, place)] for place in range(len(row))] for row in _elements(emitter, op)]
    _keep(emitter, op, rows)


def emit_vote(emitter: Any, op: SpecOp) -> None:
    """A ballot of each segment, and what its bits say."""
    width = op.value("width")
    found: list[list[Value]] = []
    for row in _elements(emitter, op):
        said: list[Value] = []
        for start in range(0, len(row), width):
            said += [_said(emitter.f, row[start : start + width], op.value("kind"))] * width
        found.append(said)
    _keep(emitter, op, found)


def _said(f: FunctionText, bools: list[Value], kind: str) -> Value:
    if kind in ("any", "all"):
        whole = bools[0]
        for value in bools[1:]:
            whole = f.op("or" if kind == "any" else "and", whole, value)
        return whole
    total = Value("i32", "0")
    for lane, value in enumerate(bools):
        wide = f.cast("zext", value, "i32")
        if kind == "ballot":
            wide = f.op("shl", wide, Value("i32", str(lane)))
        total = f.op("or" if kind == "ballot" else "add", total, wide)
    return total
