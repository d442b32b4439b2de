"""Functions on one element at a time, with NumPy's broadcasting: made from the table of scalar functions.

`scalar.pyi` shows them to type checkers; `scripts/scalar_stubs.py` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.frontend.functions.operands import compute
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, GraphOp


def _make_function(op: GraphOp, arity: int) -> Callable[..., Any]:
    """The public function of a graph op: operands are cast to the dtype of its group, then the op is applied."""

    def unary(x: Any) -> Any:
        return compute(op.name, (x,), group=op.group)

    def binary(x: Any, y: Any) -> Any:
        return compute(op.name, (x, y), group=op.group)

    function = {1: unary, 2: binary}[arity]
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.summary
    return function


_MADE = {
    op.name: _make_function(op, function.arity) for function in SCALAR_FUNCTIONS.values() for op in function.graph_ops
}
globals().update(_MADE)

__all__ = sorted(_MADE)  # pyright: ignore[reportUnsupportedDunderAll] - the table is the list
