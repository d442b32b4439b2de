"""Communicators of others: found by the metadata of their package, and held to rules that can be broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import discovery
from tessera.runtime.ranks.conformance import RULES, SCENARIOS, check

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def install(folder: Path, entries: str, name: str = "toy_communicator") -> Path:
    """A package as an installer leaves it: a module, and metadata that names what it has."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[tessera.communicators]\n{entries}\n")
    shutil.copy(HERE / "toy_communicator.py", folder)
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    install(tmp_path, "toy = toy_communicator:connect")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_a_communicator_of_another_package_keeps_the_rules(package: dict[str, str]) -> None:
    assert "toy" in discovery.find_entries()
    found = check("toy", ranks=3, environment=package)
    assert [one.rule for one in found] == list(RULES)
    assert all(one.holds for one in found), "\n".join(map(str, found))


BROKEN = (
    "identity",
    "all_gather",
    "all_to_all",
    "bounds",
    "start",
    "mismatch",
    "untouched",
    "afterwards",
    "absence",
    "departure",
    "death",
)


@pytest.mark.slow
@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_named(rule: str, package: dict[str, str]) -> None:
    wanted = next(shown for shown in SCENARIOS.values() if rule in shown)
    found = check("toy", ranks=3, rules=wanted, environment={**package, "TOY_FAULT": rule}, seconds=15)
    broken = {one.rule: one.detail for one in found if not one.holds}
    assert rule in broken, "\n".join(map(str, found))
    assert broken[rule]


def test_shared_memory_keeps_the_rules() -> None:
    found = check("shared_memory", ranks=3)
    assert all(one.holds for one in found), "\n".join(map(str, found))


def test_the_command_says_which_rules_hold(package: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tessera.runtime.ranks.conformance", "toy", "--ranks", "3", "--rule"]
    done = subprocess.run(
        [*command, "departure"], env=package, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"holds   departure: {RULES['departure']}\n"
    few = subprocess.run([*command[:-1], "--ranks", "2"], env=package, capture_output=True, text=True, check=False)
    assert few.returncode == 2
    assert "at least 3 ranks, got 2" in few.stderr


def test_names_that_cannot_be_joined_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "number = toy_communicator:FAULT\nabsent = no_such_module:connect"
    monkeypatch.setattr(sys, "path", [str(install(tmp_path / "one", entries)), *sys.path])
    with pytest.raises(RankError, match="there is no communicator `to`; there are `shared_memory`, `mpi`") as found:
        discovery.connector_of("to")
    assert "tessera.communicators" in found.value.notes[0]
    with pytest.raises(RankError, match="which is a str"):
        discovery.connector_of("number")
    with pytest.raises(RankError, match="cannot be loaded: No module named 'no_such_module'"):
        discovery.connector_of("absent")
    monkeypatch.setattr(sys, "path", [str(install(tmp_path / "two", "number = other:connect", "other")), *sys.path])
    with pytest.raises(RankError, match=r"communicator `number` of `.*` has the name of `.*`"):
        discovery.find_entries()


def test_a_name_of_ours_is_not_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(install(tmp_path, "mpi = toy_communicator:connect")), *sys.path])
    with pytest.raises(RankError, match="has the name of one of Tessera's own"):
        discovery.find_entries()
