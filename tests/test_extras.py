"""The extras of the package: those that are promised exist, and each package in them is one that something uses."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler, find_tool

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
WHERE = {
    "interop": ("tests/device",),
    "mpi": ("tessera/runtime",),
    "bench": ("benchmarks",),
    "test": ("tests", "Makefile", "pyproject.toml"),
}
CALLED = {
    "import-linter": "lint-imports",
    "pyright": "$(BIN)/pyright",
    "ruff": "$(BIN)/ruff",
    "z3-solver": "z3",
    "pytest-json-report": "pytest_jsonreport",
    "pytest-xdist": "-n $(WORKERS)",
    "mpich": "mpiexec",
    "nvidia-cuda-nvcc": "ptxas",
    "nvidia-cuda-nvdisasm": "nvdisasm",
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


HAS_WHEELS = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")


@pytest.fixture
def no_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is on PATH, and nothing is remembered of what was found there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TESSERA_PTXAS", raising=False)
    find_tool.cache_clear()
    yield
    find_tool.cache_clear()


@pytest.mark.skipif(not HAS_WHEELS, reason="NVIDIA has no wheels of its tools for this machine")
@pytest.mark.usefixtures("no_path")
@pytest.mark.parametrize(("tool", "package"), [("ptxas", "nvidia-cuda-nvcc"), ("nvdisasm", "nvidia-cuda-nvdisasm")])
def test_tools_of_nvidia_come_with_the_test_extra(tool: str, package: str) -> None:
    path = find_tool(tool)
    assert path is not None
    (pinned,) = re.findall(rf"{package}==([\d.]+)", " ".join(EXTRAS["test"]))
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"V{pinned}" in said


@pytest.mark.skipif(not HAS_WHEELS, reason="NVIDIA has no wheels of its tools for this machine")
@pytest.mark.usefixtures("no_path")
def test_an_installed_assembler_is_the_one_that_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = assembler()
    assert path is not None
    assert "site-packages" in path
    ptx = b".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry f() { ret; }\n"
    code, said = assemble_with_words(ptx, "sm_90a")
    assert code.startswith(b"\x7fELF")
    assert "registers" in said
    monkeypatch.setenv("TESSERA_PTXAS", str(tmp_path / "own"))
    assert assembler() == str(tmp_path / "own")


def test_pytorch_comes_with_the_test_extra_and_is_loaded_where_it_is_used_alone() -> None:
    assert importlib.util.find_spec("torch") is not None
    first = re.compile(r"^(import torch|from torch)", re.MULTILINE)
    loads = [file for file in (ROOT / "tests").rglob("*.py") if first.search(file.read_text(encoding="utf-8"))]
    assert loads == []
