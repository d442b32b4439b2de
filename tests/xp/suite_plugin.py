"""A plugin that lets the conformance suite of the array API standard load for a library without complex numbers.

The suite takes the widest of the complex dtypes as it is imported, which fails where there is none; its tests of them
are drawn from a list of dtypes, which is empty. So for that one import the largest of an empty list is a real dtype.
"""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from hypothesis import Phase, settings

from tessera.xp import float64

_largest: Any = max


def _largest_or_real(*values: Any, **options: Any) -> Any:
    return (float64, 64) if len(values) == 1 and values[0] == [] else _largest(*values, **options)


builtins.max = _largest_or_real
try:
    import array_api_tests.dtype_helpers  # pyright: ignore[reportMissingImports, reportUnusedImport]  # noqa: F401
finally:
    builtins.max = _largest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: Any) -> None:
    """Failures are counted here: hypothesis need not look for smaller ones."""
    settings.register_profile("conformance", settings(), phases=(Phase.explicit, Phase.generate), deadline=None)
    settings.load_profile("conformance")
