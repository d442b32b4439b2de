"""Suggestions for functions that are not part of the kernel language: those of NumPy, `math` and `ops`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from tessera.diagnostics.error import Fix, Span, find_nearest
from tessera.frontend.kernel import scalar
from tessera.frontend.kernel.extents import Context
from tessera.frontend.kernel.indexing import TensorRef
from tessera.frontend.kernel.tiles import Operand

LANGUAGE = "tessera.tile"
SCALAR_NAMES = frozenset({*scalar.__all__, "fma", "where"})
"""Functions of the language with the same arguments as functions of the same name elsewhere."""
REPLACEMENTS: Mapping[str, str] = {
    "absolute": "tile.abs(x)",
    "add": "a + b",
    "amax": "tile.max(x, axis)",
    "amin": "tile.min(x, axis)",
    "arange": "tile.col_index(step)",
    "astype": "tile.cast(x, dtype)",
    "broadcast_to": "tile.broadcast(x, shape)",
    "clamp": "tile.minimum(tile.maximum(x, low), high)",
    "clip": "tile.minimum(tile.maximum(x, low), high)",
    "cosh": "(tile.exp(x) + tile.exp(-x)) / 2.0",
    "cumprod": 'tile.scan(x, "prod", axis)',
    "cumsum": 'tile.scan(x, "sum", axis)',
    "divide": "a / b",
    "dot": "tile.dot(a, b)",
    "einsum": "tile.dot(a, b)",
    "equal": "a == b",
    "expand_dims": "x[:, None]",
    "expm1": "tile.exp(x) - 1.0",
    "fabs": "tile.abs(x)",
    "floor_divide": "a // b",
    "full_like": "tile.full(x.shape, number, dtype)",
    "greater": "a > b",
    "greater_equal": "a >= b",
    "hypot": "tile.sqrt(a * a + b * b)",
    "inner": "tile.dot(a, tile.transpose(b))",
    "less": "a < b",
    "less_equal": "a <= b",
    "log10": "tile.log2(x) * 0.30102999566",
    "log1p": "tile.log(1.0 + x)",
    "logical_and": "a & b",
    "logical_not": "~x",
    "logical_or": "a | b",
    "logical_xor": "a ^ b",
    "matmul": "tile.dot(a, b)",
    "max": "tile.max(x, axis)",
    "mean": "tile.sum(x, axis) / x.shape[axis]",
    "min": "tile.min(x, axis)",
    "mod": "a % b",
    "multiply": "a * b",
    "neg": "-x",
    "negative": "-x",
    "not_equal": "a != b",
    "ones": "tile.full(shape, 1.0)",
    "ones_like": "tile.full(x.shape, 1.0)",
    "pow": "x ** y",
    "power": "x ** y",
    "remainder": "a % b",
    "sinh": "(tile.exp(x) - tile.exp(-x)) / 2.0",
    "softmax": "tile.softmax(x)",
    "square": "x * x",
    "sub": "a - b",
    "subtract": "a - b",
    "sum": "tile.sum(x, axis)",
    "swapaxes": "tile.transpose(x)",
    "tan": "tile.sin(x) / tile.cos(x)",
    "transpose": "tile.transpose(x)",
    "true_divide": "a / b",
    "view": "tile.bitcast(x, dtype)",
    "zeros": "tile.zeros(shape)",
    "zeros_like": "tile.zeros(x.shape)",
}
"""What to write instead, by the last name of the called function."""
BINARY_REPLACEMENTS = {"max": "tile.maximum(a, b)", "min": "tile.minimum(a, b)"}
"""Replacements of functions of two operands."""


def advice_for(name: str, count: int = 1) -> str:
    """What to write in place of a function of this name, given `count` operands."""
    if name in SCALAR_NAMES:
        return f"write `tile.{name}`, which works on tiles"
    if count > 1 and name in BINARY_REPLACEMENTS:
        return f"write `{BINARY_REPLACEMENTS[name]}`"
    if name in REPLACEMENTS:
        return f"write `{REPLACEMENTS[name]}`"
    near = find_nearest(name, _names(), cutoff=0.75)
    if near:
        return f"did you mean `tile.{near[0]}`?"
    return f"`tile` has no `{name}`: write it with other functions, or call it on whole tensors outside of the kernel"


def _names() -> list[str]:
    """The names of the language, which the kernel has imported."""
    return list(getattr(sys.modules.get(LANGUAGE), "__dict__", SCALAR_NAMES))


def is_of_tensors(function: Any) -> bool:
    """Whether a function is of `tessera.ops`: it takes whole tensors, not tiles."""
    return str(getattr(function, "__module__", "")).startswith(("tessera.ops", "tessera.frontend.functions"))


def is_of_library(function: Any) -> bool:
    """Whether a function is Python of a library that computes on arrays of its own."""
    module = str(getattr(function, "__module__", None) or type(function).__module__)
    return module.split(".")[0] in ("numpy", "torch", "jax", "scipy", "math")


def call_refusal(node: ast.Call, span: Span, values: Iterable[Any], scope: Mapping[str, Any]) -> tuple[str, Fix | str]:
    """Why a function that is not of the language cannot take these values, and what to write; `span` is its name's."""
    given = list(values)
    written = ast.unparse(node.func)
    tensor = next((value for value in given if isinstance(value, TensorRef)), None)
    if tensor is not None:
        return (
            f"`{written}` is not part of the kernel language, and `{tensor.name}` is a tensor in memory",
            load_advice(tensor),
        )
    count = sum(isinstance(value, Operand | int | float) for value in given)
    name = written.rsplit(".", 1)[-1]
    message = f"`{written}` is not part of the kernel language and takes no tiles"
    advice = advice_for(name, count)
    called = _language_name(scope)
    if name in SCALAR_NAMES and called and span.end_line == span.line:
        return message, Fix(span, f"{called}.{name}", advice)
    return message, advice


def attribute_refusal(owner: Any, name: str, written: str) -> tuple[str, str] | None:
    """Why a value of the language has no such attribute, and what to write; None without a suggestion."""
    if isinstance(owner, Operand):
        return f"a tile has no `{name}`", advice_for(name)
    if isinstance(owner, TensorRef):
        return f"`{owner.name}` is a tensor in memory, which has `shape` and `dtype` but no `{name}`", load_advice(
            owner
        )
    if isinstance(owner, Context):
        return f"the context of a kernel has no `{name}`", "it has `m`, `n`, `k`, `d`, `vector`, `warps` and `stages`"
    if isinstance(owner, ModuleType) and owner.__name__ == LANGUAGE:
        return f"`{written}` is not part of the kernel language", advice_for(name)
    return None


def tensor_refusal(operands: Iterable[Any]) -> tuple[str, str] | None:
    """Why a tensor cannot be computed with; None where there is none."""
    tensor = next((value for value in operands if isinstance(value, TensorRef)), None)
    if tensor is None:
        return None
    return f"`{tensor.name}` is a tensor in memory, and kernels compute on tiles", load_advice(tensor)


def load_advice(tensor: TensorRef) -> str:
    """How to load a tile of a tensor."""
    indices = "rows=T.m, cols=T.n" if tensor.type.rank > 1 else "T.m"
    if tensor.is_result:
        return f"it is a result: `tile.store({tensor.name}, x, {indices})`"
    return f"load a tile of it: `tile.load({tensor.name}, {indices})`"


def _language_name(scope: Mapping[str, Any]) -> str:
    """The name under which the kernel's file imports the language; empty if none."""
    module = sys.modules.get(LANGUAGE)
    return next((name for name, value in scope.items() if module is not None and value is module), "")
