"""What every test shares: hypothesis profiles, a private cache, hidden compilers, `--update`, times, markers."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.compilers import hide_compilers
from tests.slow_tests import TABLE, Recorder, mark_slow, read_table

# A test's outcome must not depend on what earlier runs left in the user's cache; set before anything reads it, and
# once for all workers of one run, which share it as concurrent processes of a user would.
OWN_CACHE = None if "TESSERA_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="tessera-test-cache-")
os.environ.setdefault("TESSERA_CACHE_DIR", OWN_CACHE or "")

# Products of references are small, and tests run side by side: threads of NumPy would spend most of their time waiting
# for a core (a third of the processor time of tests/backends/nvptx/test_matrix_attention.py). Read as NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores it for what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

BYTECODE = None if OWN_CACHE is None else f"{OWN_CACHE}-bytecode"

NO_COMPILERS = hide_compilers()

FINISHED: list[int] = []
"""One entry for each test that this process has run."""

settings.register_profile(
    "ci", derandomize=True, max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden texts to what the code now prints")
    parser.addoption("--times", help="append the processor time of each test to this file, for scripts/slow_tests.py")


def pytest_configure(config: pytest.Config) -> None:
    """Let processes that tests start share bytecode, where whoever runs the tests wants none beside the sources.

    Not for the process itself, nor for workers of a parallel run: they have loaded most of what they need already, and
    would compile the libraries once more, each for itself.
    """
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and "BYTECODE_OF_TESTS" not in os.environ and BYTECODE is not None:
        os.environ["BYTECODE_OF_TESTS"] = BYTECODE
    if "BYTECODE_OF_TESTS" in os.environ and not _only_hands_out(config):
        os.environ["PYTHONPYCACHEPREFIX"] = os.environ["BYTECODE_OF_TESTS"]
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if (times := config.getoption("times")) and not _only_hands_out(config):
        file = Path(config.rootpath, times)
        file.parent.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Recorder(file))


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether this is the process of a parallel run that gives tests to others and runs none."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage while tests are found: what is made then, modules and tests, lives as long as the run."""
    if not _only_hands_out(session.config):
        gc.disable()


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of every collection of garbage to come, and let those be few."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    for folder in (NO_COMPILERS, OWN_CACHE, BYTECODE):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def pytest_runtest_logfinish() -> None:
    """Every fifty tests, leave what outlived them out of later collections too.

    Caches and registries grow over a run, and a test that collects garbage itself would go over all of them.
    """
    FINISHED.append(1)
    if len(FINISHED) % 50 == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden texts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow; skip, with the reason, what needs a device that is not here."""
    mark_slow(items, read_table(TABLE.read_text(encoding="utf-8")))
    for item in items:
        for marker in item.iter_markers("device"):
            if not Path("/dev/nvidia0").exists():
                item.add_marker(pytest.mark.skip(reason=f"needs {marker.args[0]}; no NVIDIA GPU here"))
