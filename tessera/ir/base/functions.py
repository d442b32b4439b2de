"""The elementwise functions that tiles are computed with: names, arities, and what each one means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.ir.base.op import SpecOp


@frozen
class Function:
    """A scalar function; a predicate gives bool, all others the dtype they take."""

    name: str
    arity: int
    is_predicate: bool = False


_UNARY = (
    "neg abs sign exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sin cos tan tanh sigmoid erf relu gelu_erf "
    "gelu_tanh silu softplus floor ceil round trunc not"
)
_BINARY = "add sub mul div floordiv mod pow atan2 max min and or xor shl shr"
_PREDICATES = "eq ne lt le gt ge"

FUNCTIONS: dict[str, Function] = {
    **{name: Function(name, 1) for name in _UNARY.split()},
    **{name: Function(name, 2) for name in _BINARY.split()},
    **{name: Function(name, 2, True) for name in _PREDICATES.split()},
    **{name: Function(name, 1, True) for name in ("isnan", "isinf")},
    "fma": Function("fma", 3),
}


def function_of(op: SpecOp, what: str) -> Function:
    """The function that an op names and has the operands for; `what` those are. Fails the op where it does not."""
    name = op.value("fn")
    function = FUNCTIONS.get(name)
    if function is None:
        op.fail(f"there is no elementwise function `{name}`")
    if len(op.operands) != function.arity:
        op.fail(f"`{name}` takes {function.arity} {what}, got {len(op.operands)}")
    return function
