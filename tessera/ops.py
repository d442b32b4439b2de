"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from types import FunctionType as _FunctionType

from tessera.api.eager import install as _install
from tessera.frontend import epilogue as epilogue
from tessera.frontend.called import named as _named
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

# Other arguments than a function has are told here; what calls functions from within has none.
globals().update({name: _named(vars(_public)[name], __name__) for name in __all__})


def __dir__() -> list[str]:
    return __all__


_install()
