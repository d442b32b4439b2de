"""Dims of operands by letters, for functions of the library: equal letters are equal sizes, or the call is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.frontend.functions.operands import as_tensor, dtype_of, promote_operands
from tessera.types.dtype import f64
from tessera.types.promotion import FLOATING


def promote_tensors(op: str, *values: Any, takes_f64: bool = False) -> list[Any]:
    """Operands as tensors of one floating dtype; raises DTypeError (T0102) for f64 where sums are f32."""
    given = [as_tensor(value) for value in values]
    promoted = promote_operands(op, given, FLOATING)
    if not takes_f64 and any(dtype_of(one) is f64 for one in promoted):
        dtypes = ", ".join(str(dtype_of(one)) for one in given)
        raise DTypeError(
            f"`{op}` takes no f64, got {dtypes}",
            notes=("rule: its state and sums are f32, which would lose half of the digits of f64",),
            fix="cast operands to f32, as in `x.cast(tessera.f32)`",
        )
    return promoted


def bind_dims(op: str, operands: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """The size that each letter stands for; raises ShapeError (T0101) where an operand has other dims than it says.

    >>> from tessera.stdlib.operand_dims import bind_dims
    >>> bind_dims("f", {"x": (ts.zeros((2, 3)), "B S"), "w": (ts.zeros((3,)), "S")})
    {'B': 2, 'S': 3}
    """
    sizes: dict[str, Any] = {}
    homes: dict[str, str] = {}
    for name, (value, letters) in operands.items():
        dims, wanted = tuple(value.shape), letters.split()
        form = f"[{', '.join(wanted)}]"
        if len(dims) != len(wanted):
            raise ShapeError(
                f"`{op}` takes `{name}` as {form}, got {len(dims)} dims: {list(dims)}",
                fix=f"reshape `{name}` to {form}",
            )
        for letter, size in zip(wanted, dims, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"`{op}` takes `{name}` as {form}: its `{letter}` is {size}, and that of `{homes[letter]}` is "
                    f"{sizes[letter]}",
                    notes=(f"rule: `{letter}` is one size in all operands",),
                    fix=f"give `{name}` a `{letter}` of {sizes[letter]}",
                )
            homes.setdefault(letter, name)
    return sizes


def check_divides(op: str, part: str, whole: str, sizes: Mapping[str, Any]) -> None:
    """Require that groups share heads evenly; raises ShapeError (T0101)."""
    few, many = sizes[part], sizes[whole]
    if isinstance(few, int) and isinstance(many, int) and (few < 1 or many % few):
        raise ShapeError(
            f"`{op}`: {many} heads (`{whole}`) are not shared evenly by {few} groups (`{part}`)",
            notes=(f"rule: `{part}` divides `{whole}`",),
            fix="repeat the groups until they are as many as the heads",
        )
