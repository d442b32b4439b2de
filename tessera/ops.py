"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

import sys as _sys
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tessera.api.eager import install as _install
from tessera.frontend import epilogue as epilogue
from tessera.frontend.arguments import explain_wrong_calls as _explain
from tessera.frontend.functions import public as _public
from tessera.frontend.functions.public import *  # noqa: F403

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll] - the functions' own files are the list
    name
    for name, item in vars(_public).items()
    if isinstance(item, _FunctionType)
    and item.__module__.startswith("tessera.frontend.functions.")
    and (name == "cast" or not item.__module__.endswith(".operands"))
    and not name.startswith("_")
)

# Missing and unexpected arguments are explained here alone; functions call each other without the wrapper.
globals().update({name: _explain(vars(_public)[name], __name__) for name in __all__})


_OTHER_NAMES = {
    **dict.fromkeys(("bmm", "mm", "dot"), "matmul(a, b)"),
    **dict.fromkeys(("cat", "hstack", "vstack"), "concat([a, b], axis)"),
    **dict.fromkeys(("clip", "clamp_min", "clamp_max"), "clamp(x, low, high)"),
    **dict.fromkeys(("divide", "true_divide"), "div(a, b)"),
    **dict.fromkeys(("scaled_dot_product_attention", "dot_product_attention"), "attention(q, k, v)"),
    "absolute": "abs(x)",
    "multiply": "mul(a, b)",
    "negative": "neg(x)",
    "power": "pow(a, b)",
    "subtract": "sub(a, b)",
    "cumulative_sum": "cumsum(x, axis)",
    "index_select": "take(x, indices, axis)",
    "layer_norm": "layernorm(x, weight, bias)",
    "remainder": "mod(a, b)",
    "rms_norm": "rmsnorm(x, weight)",
    "swish": "silu(x)",
}
"""What other libraries call functions that are here by another name."""


if not _TYPE_CHECKING:  # a type checker is to see that a name is not here

    def __getattr__(name: str) -> _Any:
        """A name that is not here: what to write instead, where that is known."""
        other = _OTHER_NAMES.get(name)
        hint = f": write `tessera.ops.{other}`" if other else ""
        raise AttributeError(
            f"module `tessera.ops` has no attribute `{name}`{hint}", name=name, obj=_sys.modules[__name__]
        )


def __dir__() -> list[str]:
    return __all__


_install()
