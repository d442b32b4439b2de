"""What every test shares: hypothesis profiles, a private cache, hidden compilers, `--update`, device markers."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.compilers import hide_compilers

# A test's outcome must not depend on what earlier runs left in the user's cache; set before anything reads it, and
# once for all workers of one run, which share it as concurrent processes of a user would.
OWN_CACHE = None if "TESSERA_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="tessera-test-cache-")
os.environ.setdefault("TESSERA_CACHE_DIR", OWN_CACHE or "")

NO_COMPILERS = hide_compilers()

settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden texts to what the code now prints")


def pytest_unconfigure() -> None:
    shutil.rmtree(NO_COMPILERS, ignore_errors=True)
    if OWN_CACHE is not None:
        shutil.rmtree(OWN_CACHE, ignore_errors=True)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden texts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what needs a device that is not here."""
    for item in items:
        for marker in item.iter_markers("device"):
            if not Path("/dev/nvidia0").exists():
                item.add_marker(pytest.mark.skip(reason=f"needs {marker.args[0]}; no NVIDIA GPU here"))
