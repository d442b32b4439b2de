"""The public conformance suite of the array API standard, run on `tessera.xp` where it is present."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = Path(os.environ.get("TESSERA_ARRAY_API_TESTS") or ROOT.parent / "shared" / "suites" / "array-api-tests")
EXPECTED = Path(__file__).with_name("expected_failures.tsv")
EXAMPLES = 3
LEAST = 1100
"""Tests of the suite that pass, at least: one that is skipped, or not collected, is seen here."""


def expected_failures() -> dict[str, str]:
    """The parts of names of tests that fail, and why."""
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def missing_pieces() -> str:
    """Why the suite cannot run here; empty where it can."""
    if not (SUITE / "array_api_tests").is_dir():
        return "there is no array-api-tests beside the repository, and `TESSERA_ARRAY_API_TESTS` names none"
    absent = [name for name in ("ndindex", "pytest_jsonreport") if importlib.util.find_spec(name) is None]
    return f"the suite needs {' and '.join(absent)}" if absent else ""


def run_suite(storage: Path) -> str:
    """What the suite prints."""
    paths = [str(ROOT), str(SUITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "ARRAY_API_TESTS_MODULE": "tessera.xp",
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(storage),
        "COLUMNS": "400",
    }
    options = ["-q", "-rf", "--tb=no", "-p", "tests.xp.suite_plugin", "-p", "no:cacheprovider", "-W", "ignore"]
    examples = ["--max-examples", str(EXAMPLES), "--disable-deadline", "--derandomize"]
    command = [sys.executable, "-B", "-m", "pytest", *options, *examples, "array_api_tests"]
    done = subprocess.run(command, cwd=SUITE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_pieces()), reason=missing_pieces())
def test_the_suite_passes_but_for_what_is_listed(tmp_path: Path) -> None:
    printed = run_suite(tmp_path)
    failed = re.findall(r"^FAILED (\S+::.*)$", printed, re.MULTILINE)
    known = expected_failures()
    unexpected = [name for name in failed if not any(part in name for part in known)]
    assert unexpected == []
    gone = [part for part in known if not any(part in name for name in failed)]
    assert gone == [], "these pass now: take them off the list"
    counted = re.search(r"(\d+) passed", printed)
    assert counted is not None
    assert int(counted[1]) >= LEAST


def test_every_expected_failure_has_a_reason() -> None:
    assert all(reason.strip() for reason in expected_failures().values())
    assert len(expected_failures()) > 5
