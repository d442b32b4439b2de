"""`tessera.ops`: every function on tensors, inside `jit` and outside."""

from __future__ import annotations

from importlib import import_module as _import_module
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tessera.api.eager import install as _install
from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard as _guard
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


if _TYPE_CHECKING:
    from tessera.stdlib import dropout_residual_layernorm as dropout_residual_layernorm
    from tessera.stdlib import fft as fft
    from tessera.stdlib import fft_conv1d as fft_conv1d
    from tessera.stdlib import gated_delta_rule as gated_delta_rule
    from tessera.stdlib import ifft as ifft
    from tessera.stdlib import irfft as irfft
    from tessera.stdlib import linear_attention as linear_attention
    from tessera.stdlib import rfft as rfft
    from tessera.stdlib import selective_scan as selective_scan
    from tessera.stdlib import ssd as ssd

_LIBRARY = (
    "dropout_residual_layernorm",
    "fft",
    "fft_conv1d",
    "gated_delta_rule",
    "ifft",
    "irfft",
    "linear_attention",
    "rfft",
    "selective_scan",
    "ssd",
)
"""Functions of `tessera.stdlib` that are made of kernels: found here too, and loaded when they are first used."""


if not _TYPE_CHECKING:  # a type checker is to see that a name is not here

    @_guard
    def __getattr__(name: str) -> _Any:
        if name in _LIBRARY:
            return getattr(_import_module("tessera.stdlib"), name)
        return _answer_names(__name__)(name)


def __dir__() -> list[str]:
    return __all__


_install()
