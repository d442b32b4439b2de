"""`tessera.xp`: functions of the Python array API standard, 2024.12, on Tessera's tensors, eagerly and inside `jit`.

Functions take and give tensors as `tessera.ops` does, under the names and with the arguments of the standard, whose
extensions `linalg` and `fft` are here too. Tensors do not change: `x[0] = 1` raises, and `x += 1` makes a new tensor.
Functions whose result depends on values in its shape (`nonzero`, `unique_values` and its like) take `size=` inside
`jit`.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tessera.api.eager import install as _install
from tessera.diagnostics.frames import guard_public as _guard
from tessera.xp.creation import arange as arange
from tessera.xp.creation import asarray as asarray
from tessera.xp.creation import empty as empty
from tessera.xp.creation import empty_like as empty_like
from tessera.xp.creation import eye as eye
from tessera.xp.creation import from_dlpack as from_dlpack
from tessera.xp.creation import full as full
from tessera.xp.creation import full_like as full_like
from tessera.xp.creation import linspace as linspace
from tessera.xp.creation import meshgrid as meshgrid
from tessera.xp.creation import ones as ones
from tessera.xp.creation import ones_like as ones_like
from tessera.xp.creation import tril as tril
from tessera.xp.creation import triu as triu
from tessera.xp.creation import zeros as zeros
from tessera.xp.creation import zeros_like as zeros_like
from tessera.xp.data_types import *  # noqa: F403
from tessera.xp.data_types import __array_namespace_info__ as __array_namespace_info__
from tessera.xp.elementwise import *  # noqa: F403
from tessera.xp.manipulation import *  # noqa: F403
from tessera.xp.searching import *  # noqa: F403
from tessera.xp.statistical import *  # noqa: F403

__array_api_version__ = "2024.12"

if _TYPE_CHECKING:
    from tessera.xp import fft as fft
    from tessera.xp import linalg as linalg

_EXTENSIONS = ("fft", "linalg")
"""Modules of functions that are loaded when they are first used."""

_OWN = {name for name, item in globals().items() if not (name.startswith("_") or isinstance(item, _ModuleType))}
__all__ = sorted({*_EXTENSIONS, *_OWN} - {"annotations"})  # pyright: ignore[reportUnsupportedDunderAll] - as `ops`

_install()
_guard(globals(), tuple(__all__))


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> _Any:
    if name in _EXTENSIONS:
        return _import_module(f"tessera.xp.{name}")
    raise AttributeError(f"module `tessera.xp` has no attribute `{name}`", name=name)
