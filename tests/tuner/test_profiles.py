"""Shipped profiles: valid files in the package, found where nothing was measured, whatever the driver is."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tessera.diagnostics.codes import TuningFileError
from tessera.tuner import profiles
from tessera.tuner.database import Database
from tessera.tuner.exchange import write_entries
from tessera.tuner.profiles import profile_files, read_profiles
from tessera.tuner.records import Entry, Plan
from tests.tuner.samples import BLOCK, MATMUL, signature, timed

ROOT = Path(__file__).parents[2]


def test_the_profiles_of_the_package_are_valid_and_go_into_the_wheel() -> None:
    files = profile_files()
    assert [Path(file).name for file in files], "there is at least one"
    for entry in read_profiles().values():
        assert entry.source == "profile"
        assert entry.signature.arch, "a profile is of a machine"
        assert entry.trials, "a plan of a profile was measured"
    others = {entry.signature.op_kind for entry in read_profiles().values() if entry.plan.choices}
    listed = (Path(profiles.__file__).parent / "programs.txt").read_text(encoding="utf-8").split()
    assert set(listed) == {name for name in others if name.startswith("program_")}, "run benchmarks/tuned_profile.py"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "tessera" in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert "json" not in ignored, "the build leaves out what git ignores"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of profiles in the place of the package's."""
    (tmp_path / "profiles").mkdir()
    write_entries(tmp_path / "profiles" / "avx512.json", [Entry(MATMUL, BLOCK, (timed([1.2] * 10),))])
    found = read_profiles(str(tmp_path / "profiles"))
    monkeypatch.setattr(profiles, "_load_shipped", lambda: found)
    return tmp_path / "profiles"


def test_a_profile_is_found_with_any_driver_and_after_own_measurements(shipped: Path) -> None:
    database = Database(None)
    for runtime in ("r1", "another driver"):
        found = database.lookup(signature(runtime=runtime))
        assert found is not None
        assert (found.plan, found.source, found.signature.runtime) == (BLOCK, "profile", runtime)
    for part in ("op_kind", "shape_sig", "dtype", "mesh_sig", "arch", "policy_hash"):
        assert database.lookup(signature(**{part: "other"})) is None
    database.store(MATMUL, Plan())
    found = database.lookup(MATMUL)
    assert found is not None
    assert (found.plan, found.source) == (Plan(), "measured")
    assert Database(None, profiles=False).lookup(MATMUL) is None


def test_a_profile_of_a_family_serves_its_machines(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Entry(signature(arch="cpu", shape_sig="8x8x8"), BLOCK, (timed([1.2] * 10),))
    other = Plan.of({"map.tile": 1})
    own = Entry(signature(arch="cpu-own", shape_sig="8x8x8"), other, (timed([1.2] * 10),))
    write_entries(shipped / "cpu.json", [family, own])
    found = read_profiles(str(shipped))
    monkeypatch.setattr(profiles, "_load_shipped", lambda: found)
    database = Database(None)
    for arch, plan in (("cpu", BLOCK), ("cpu-1a2b", BLOCK), ("cpu-own", other), ("cp", None), ("", None)):
        entry = database.lookup(signature(arch=arch, shape_sig="8x8x8"))
        assert (entry and entry.plan) == plan, arch
    near = database.neighbours(signature(arch="cpu-1a2b", shape_sig="8x8x16"))
    assert [(entry.plan, entry.signature.arch) for entry in near] == [(BLOCK, "cpu-1a2b")]


def test_the_nearest_family_counts(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = {"cpu": 1, "cpu-avx512": 2, "cpu-avx512-own": 3}
    entries = [
        Entry(signature(arch=arch, shape_sig="8x8x8"), Plan.of({"map.tile": tile}), (timed([1.2] * 10),))
        for arch, tile in plans.items()
    ]
    write_entries(shipped / "cpu.json", entries)
    found = read_profiles(str(shipped))
    monkeypatch.setattr(profiles, "_load_shipped", lambda: found)
    for arch, tile in (("cpu-avx512-own", 3), ("cpu-avx512-1a2b", 2), ("cpu-avx2-1a2b", 1), ("cpu-avx5120-1a", 1)):
        entry = Database(None).lookup(signature(arch=arch, shape_sig="8x8x8"))
        assert entry is not None
        assert entry.plan == Plan.of({"map.tile": tile}), arch


def test_a_search_begins_with_neighbours_of_a_profile(shipped: Path) -> None:
    found = Database(None).neighbours(signature(shape_sig="64x64x128"))
    assert [(entry.plan, entry.source) for entry in found] == [(BLOCK, "profile")]


def test_profiles_are_not_exported_as_measurements(shipped: Path) -> None:
    assert Database(None).entries() == []


def test_a_bad_profile_is_named(shipped: Path) -> None:
    (shipped / "bad.json").write_text(json.dumps({"format": "tessera-tuning", "version": 1, "entries": [{}]}))
    with pytest.raises(TuningFileError, match=r"bad.json, entry 0: `dtype` is missing"):
        read_profiles(str(shipped))
