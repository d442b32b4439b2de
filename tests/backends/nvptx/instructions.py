"""Instructions for NVIDIA built one by one, outside of any kernel: what tests of their rules are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.ir import Attribute, Block, SSAValue

from tessera.backends.nvptx import typed_ops as ops
from tessera.backends.nvptx.types import CURSOR, RING, TENSOR_MAP, TYPES, FragmentAttr, SharedAttr
from tessera.ir.base.op import SpecOp, complete
from tessera.ir.base.types import INDEX, BufferAttr, ShapedAttr, VectorAttr, attribute_of
from tessera.types.dtype import DType, bf16, f32
from tessera.types.shape import TensorType

KINDS: tuple[type[ShapedAttr], ...] = (
    BufferAttr,
    VectorAttr,
    *(kind for kind in TYPES if issubclass(kind, ShapedAttr)),
)
MARKS: tuple[Attribute, ...] = (CURSOR, RING, TENSOR_MAP, INDEX)
"""Types that say what a value is, and have no shape."""


def of(kind: type[ShapedAttr], *sizes: int, dtype: DType = bf16) -> ShapedAttr:
    """A type of some kind."""
    return kind.of(TensorType.of(sizes, dtype))


def others(type: Attribute) -> list[Attribute]:
    """Types of every other kind, of the same shape and dtype where they have one."""
    data = type.data if isinstance(type, ShapedAttr) else TensorType.of((64, 64), f32)
    return [other for other in (*(kind.of(data) for kind in KINDS), *MARKS) if other != type]


def value_of(type: Attribute) -> SSAValue:
    """A value that nobody makes."""
    return Block(arg_types=[type]).args[0]


@dataclass(frozen=True)
class Instruction:
    """An op with its operands, types of values that nobody makes or values, the types of its results, attributes."""

    op: type[SpecOp]
    operands: tuple[Attribute | SSAValue, ...] = ()
    results: tuple[Attribute, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def change(self, changes: Mapping[str | int, Any]) -> Instruction:
        """Another operand for each number, `operands`, `result`, or attributes by name."""
        operands = list(changes.get("operands", self.operands))
        for at, operand in changes.items():
            if isinstance(at, int):
                operands[at] = operand
        results = (changes["result"],) if "result" in changes else changes.get("results", self.results)
        named = {name: value for name, value in changes.items() if name in self.op.kinds}
        return replace(self, operands=tuple(operands), results=tuple(results), values={**self.values, **named})

    def build(self) -> SpecOp:
        """The op itself."""
        given = {name: attribute_of(self.op.kinds[name], value) for name, value in self.values.items()}
        return self.op.create(
            operands=[one if isinstance(one, SSAValue) else value_of(one) for one in self.operands],
            result_types=self.results,
            properties=complete(self.op, given),
        )

    def check(self) -> None:
        """Raises OpError where it breaks a rule."""
        self.build().verify_()


def shared(*sizes: int, dtype: DType = bf16, **values: Any) -> SSAValue:
    """A shared tile."""
    return Instruction(ops.SharedTileOp, (), (of(SharedAttr, *sizes, dtype=dtype),), values).build().results[0]


def ring(*tiles: SSAValue, **values: Any) -> SSAValue:
    """A ring of shared tiles."""
    return Instruction(ops.RingOp, tiles, (RING,), {"stages": 1, **values}).build().results[0]


def descriptor(buffer: SSAValue, box: tuple[int, ...], **values: Any) -> SSAValue:
    """A TMA descriptor of a buffer."""
    return Instruction(ops.TensorMapOp, (buffer,), (TENSOR_MAP,), {"box": box, **values}).build().results[0]


def fragment(*sizes: int, dtype: DType = f32) -> ShapedAttr:
    return of(FragmentAttr, *sizes, dtype=dtype)
