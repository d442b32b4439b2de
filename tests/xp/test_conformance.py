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
VARIABLE = "ARRAY_API_TESTS"
"""Names the folder of the suite; without it the suite is looked for beside the checkout."""
PAGE = ROOT / "docs" / "guide" / "array-api.md"
EXPECTED = Path(__file__).with_name("expected_failures.tsv")
EXAMPLES = 3
RARE = "(more examples)"
"""Begins the reason for a failure that so few examples may not find; of fifty each, which take 9 minutes, all are."""


def checkouts(root: Path) -> list[Path]:
    """The checkout, and that which it is a worktree of, if it is one: its `.git` is a file then, `gitdir: ...`."""
    link = root / ".git"
    if not link.is_file():
        return [root]
    own = Path(link.read_text(encoding="utf-8").removeprefix("gitdir:").strip())
    return [root, (root / own).parents[2]]


def find_suite(root: Path, named: str | None) -> Path | None:
    """The folder of the suite: that which is named, else the one beside the checkout; None where it is not there."""
    beside = [checkout.parent / "shared" / "suites" / "array-api-tests" for checkout in checkouts(root)]
    places = [Path(named)] if named else beside
    return next((place for place in places if (place / "array_api_tests").is_dir()), None)


SUITE = find_suite(ROOT, os.environ.get(VARIABLE))


def expected_failures() -> dict[str, str]:
    """The parts of names of tests that fail, and why."""
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def missing_pieces() -> str:
    """Why the suite cannot run here; empty where it can."""
    if SUITE is None:
        named = os.environ.get(VARIABLE)
        where = f"in `{VARIABLE}={named}`" if named else f"beside the checkout, and `{VARIABLE}` is not set"
        return f"there is no array-api-tests {where}"
    absent = [name for name in ("ndindex", "pytest_jsonreport") if importlib.util.find_spec(name) is None]
    return f"the suite needs {' and '.join(absent)}" if absent else ""


def run_suite(storage: Path) -> str:
    """What the suite prints."""
    assert SUITE is not None
    paths = [str(ROOT), str(SUITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "ARRAY_API_TESTS_MODULE": "tessera.xp",
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
    always = [part for part, reason in known.items() if not reason.startswith(RARE)]
    gone = [part for part in always if not any(part in name for name in failed)]
    assert gone == [], "these pass now: take them off the list"
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|skipped)", printed)}
    stated = f"{counts['passed']} of {sum(counts.values())} tests pass, {counts['skipped']} are skipped"
    assert stated in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_suite_is_found_beside_a_checkout_and_a_worktree(tmp_path: Path) -> None:
    main, worktree, suite = (tmp_path / name for name in ("main", "trees/other", "shared/suites/array-api-tests"))
    for folder in (main / ".git" / "worktrees" / "other", worktree, suite):
        folder.mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {main / '.git' / 'worktrees' / 'other'}\n")
    assert find_suite(main, None) is None
    (suite / "array_api_tests").mkdir()
    assert find_suite(main, None) == find_suite(worktree, None) == suite
    assert find_suite(tmp_path / "elsewhere" / "main", str(suite)) == suite
    assert find_suite(main, str(tmp_path)) is None


def test_every_expected_failure_has_a_reason() -> None:
    assert all(reason.strip() for reason in expected_failures().values())
    page = PAGE.read_text(encoding="utf-8")
    names = {part.partition("(")[0] for part in expected_failures()}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
