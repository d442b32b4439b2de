"""The extras of the package: those that are promised exist, and each package in them is one that something uses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
WHERE = {"interop": ("tests/device",), "bench": ("benchmarks",), "test": ("tests", "Makefile", "pyproject.toml")}
CALLED = {
    "import-linter": "lint-imports",
    "pyright": "$(BIN)/pyright",
    "ruff": "$(BIN)/ruff",
    "z3-solver": "z3",
    "pytest-xdist": "-n $(WORKERS)",
}
"""How a package is used where that is not by its own name."""


def texts(places: tuple[str, ...]) -> str:
    files = [
        file
        for place in places
        for file in ((ROOT / place).rglob("*.py") if (ROOT / place).is_dir() else [ROOT / place])
    ]
    own = Path(__file__).resolve()
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file != own)


def bare(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_-]+", requirement)
    assert found is not None
    return found[0]


def test_the_extras_are_those_that_the_readme_tells_of() -> None:
    assert sorted(EXTRAS) == ["bench", "cuda", "interop", "mpi", "test"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in EXTRAS if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_package_of_an_extra_is_used(extra: str) -> None:
    names = [bare(requirement) for requirement in EXTRAS[extra]]
    text = re.sub(r"(?s)\[project\.optional-dependencies\].*?\n\n", "", texts(WHERE[extra])) if names else ""
    unused = [name for name in names if not re.search(rf"{re.escape(CALLED.get(name, name))}(?![\w-])", text)]
    assert unused == []
