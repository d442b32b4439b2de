"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.eager import install as _install
from tessera.api.other_names import answer_names as _answer_names
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
globals().update({name: _explain(vars(_public)[name], __name__, name) for name in __all__})


if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)


def __dir__() -> list[str]:
    return __all__


_install()
