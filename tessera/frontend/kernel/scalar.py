"""Functions of tiles by element: made from the table of scalar functions.

`scalar.pyi` shows them to type checkers; `scripts/scalar_stubs.py` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.frontend.kernel.tiles import Tile, binary, unary
from tessera.ir.base.scalar_functions import FLOATING, SCALAR_FUNCTIONS, ScalarFunction, evaluate_number


def _make_function(entry: ScalarFunction) -> Callable[..., Any]:
    """The function of the kernel language; of a plain number it is one, as in `tile.rsqrt(64.0)`."""

    def of_one(x: Any) -> Any:
        if entry.group is FLOATING and isinstance(x, int | float) and not isinstance(x, bool):
            return evaluate_number(entry, x)
        return unary(entry.name, x)

    def of_two(a: Any, b: Any) -> Tile:
        return binary(entry.name, a, b)

    function = {1: of_one, 2: of_two}[entry.arity]
    function.__name__ = function.__qualname__ = entry.name
    function.__doc__ = entry.summary
    return function


_MADE = {entry.kernel_name: _make_function(entry) for entry in SCALAR_FUNCTIONS.values() if entry.kernel_name}
globals().update(_MADE)

__all__ = sorted(_MADE)  # pyright: ignore[reportUnsupportedDunderAll] - the table is the list
