"""The support code is compiled as the compiler would do it, once, into the cache of the test run."""

from __future__ import annotations

import pytest

from tessera.runtime.native.support import Support, set_object_compiler
from tessera.runtime.tensor import native
from tests.runtime.programs import compile_text


@pytest.fixture(scope="session", autouse=True)
def support() -> Support:
    """The loaded support code."""
    set_object_compiler(compile_text)
    return native()
