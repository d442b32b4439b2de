"""Compute at compile time what depends on nothing but constants, where the result is small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult

from tessera.ir.base.build import Pattern, Rewriter, is_removable, rewrite
from tessera.ir.base.interpret import Run
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TensorAttr
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

CONSTANT = "tgraph.constant"
FULL = "tgraph.full"


@frozen
class FoldConstants(Pass):
    """Run the `reference` of ops on constants.

    Before: `%1 = tgraph.constant {value = array<f32, [2], [1.0, 2.0]>}`, `%2 = tgraph.neg %1`.
    After: `%2 = tgraph.constant {value = array<f32, [2], [-1.0, -2.0]>}`.
    `limit` is the most elements a result may have: a larger constant costs more to carry than to compute. The
    reference is the meaning of the op, so the bits are those of the compiled code.
    """

    limit: int = 64

    def run(self, module: ModuleOp) -> None:
        def fold(op: SpecOp, rewriter: Rewriter) -> bool:
            return _fold(op, rewriter, self.limit)

        patterns: Sequence[Pattern] = (fold,)
        rewrite(module, lambda op: patterns if len(op.operands) else ())


def _fold(op: SpecOp, rewriter: Rewriter, limit: int) -> bool:
    if op.spec.reference is None or op.regions or not is_removable(op) or not _is_small(op, limit):
        return False
    arrays: list[Any] = []
    for value in op.operands:
        array = _constant(value)
        if array is None:
            return False
        arrays.append(array)
    results = op.spec.reference(*arrays, **op.values())
    build = rewriter.build(op)
    made = [build.emit(CONSTANT, value=array) for array in (results if isinstance(results, tuple) else (results,))]
    if any(new.type != old.type for new, old in zip(made, op.results, strict=True)):
        build.undo()  # an array cannot say every dtype: i4 is kept as i8
        return False
    rewriter.replace(op, made, build.made)
    return True


def _is_small(op: SpecOp, limit: int) -> bool:
    """Whether all sizes are known, and results are few elements of a dtype that arrays can say."""
    for value in (*op.operands, *op.results):
        if not isinstance(value.type, TensorAttr) or value.type.data.size.value is None:
            return False
    types: list[TensorType] = [result.type.data for result in op.results if isinstance(result.type, TensorAttr)]
    if any((type.size.value or 0) > limit or type.dtype is dt.i4 for type in types):
        return False
    return not any(_symbols(value) for value in op.values().values())


def _symbols(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_symbols(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, Dim) and not value.is_static


_OPERAND_LIMIT = 4096
"""Elements of one operand that folding will look at; a `full` may be of any size."""


def _constant(value: Any) -> Any:
    """The array a value is, if an op with no operands says so."""
    op = value.owner if isinstance(value, OpResult) else None
    if not isinstance(op, SpecOp) or op.name not in (CONSTANT, FULL) or op.spec.reference is None:
        return None
    assert isinstance(op.results[0].type, TensorAttr)
    if (op.results[0].type.data.size.value or 0) > _OPERAND_LIMIT:
        return None
    return op.spec.reference(**Run().attributes(op))
