"""A plugin for the conformance suite of the array API standard: how its examples are drawn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings


@pytest.hookimpl(trylast=True)
def pytest_configure(config: Any) -> None:
    """Failures are counted here: hypothesis need not look for smaller ones."""
    settings.register_profile("conformance", settings(), phases=(Phase.explicit, Phase.generate), deadline=None)
    settings.load_profile("conformance")
