"""CPU architectures are tables: a made-up one lowers, prints and compiles as its table says, with no code added."""

from __future__ import annotations

from io import StringIO

import pytest

from tessera.api import compilation
from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.target import architectures as tables
from tessera.ir.target import limits
from tessera.ir.target.architectures import CpuArchitecture, CpuLevel, architectures, host_machine, level_of, machine_of
from tessera.ir.target.machine_code import compile_text
from tessera.runtime import loader
from tests.target.samples import NAMES, tile_kernels

X86 = architectures()["x86_64"]
# A CPU that is in no table; AArch64's code generator stands in for its own.
MADE_UP = CpuArchitecture(
    name="made_up",
    triple="aarch64-unknown-linux-gnu",
    levels=(CpuLevel("generic", "neon", lanes=4, registers=32, features=("neon",)),),
    features={"neon": ""},
    first_levels={"made-up-v1": ("neon",)},
    support_cpu="plain",
    flags_field="Features",
)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> CpuArchitecture:
    known = {**architectures(), MADE_UP.name: MADE_UP}
    monkeypatch.setattr(tables, "architectures", lambda: known)
    monkeypatch.setattr(limits, "WIDTHS", (*limits.WIDTHS, limits.Width(4, "neon", 32)))
    monkeypatch.setitem(limits.FEATURES, "neon", "")
    return MADE_UP


def test_the_host_is_a_level_of_its_architecture() -> None:
    assert level_of(host_machine())[1] in X86.levels
    for level in X86.levels:
        assert machine_of(frozenset(level.features), X86) == level.machine
        assert set(level.features) <= X86.features.keys()
        assert level.width in level.features


def test_the_widest_level_whose_features_are_there_is_taken() -> None:
    with_tiles, widest, middle, baseline = X86.levels
    assert X86.level_for(frozenset(with_tiles.features)) is with_tiles
    assert X86.level_for(frozenset(with_tiles.features) - {"amx-int8"}) is widest
    assert X86.level_for(frozenset(widest.features) - {"avx512bw"}) is middle
    assert X86.level_for(frozenset()) is baseline


@pytest.mark.parametrize("is_permitted", [True, False])
def test_tiles_are_a_feature_where_linux_permits_them(is_permitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may not use tiles has a machine without them, and loads no code for them: nothing is tried."""
    levels = {level.name: level for level in X86.levels}
    linux = {llvm: name for name, llvm in (X86.flag_names or {}).items()}
    flags = " ".join(linux.get(name, name) for name in levels["x86-64-v4-amx"].features)

    def read(*_: str, **__: str) -> StringIO:
        return StringIO(f"flags : {flags}\n")

    monkeypatch.setattr(loader, "open", read, raising=False)
    monkeypatch.setattr(loader, "can_use_tiles", lambda: is_permitted)
    monkeypatch.setattr(tables, "host_architecture", lambda: X86)
    monkeypatch.setattr(loader, "host_features", loader.host_features.__wrapped__)
    found = tables.host_features.__wrapped__()
    assert machine_of(found, X86).name == ("x86-64-v4-amx" if is_permitted else "x86-64-v4")
    missing = loader.missing_features(levels["x86-64-v4-amx"].features)
    assert missing == ([] if is_permitted else ["amx-tile", "amx-int8", "amx-bf16"])


@pytest.mark.parametrize(("flags", "asked"), [("fpu avx512f", 0), ("fpu amx_tile amx_int8", 1)])
def test_linux_is_asked_for_tiles_only_where_they_are(flags: str, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def read(*_: str, **__: str) -> StringIO:
        return StringIO(f"model name : one\nflags : {flags}\n\nflags : of another\n")

    def can_use_tiles() -> bool:
        calls.append(1)
        return False

    for module in (loader, compilation):
        monkeypatch.setattr(module, "open", read, raising=False)
    monkeypatch.setattr(loader, "can_use_tiles", can_use_tiles)
    assert loader.usable_flags("flags") == [flag for flag in flags.split() if not flag.startswith("amx")]
    assert len(calls) == asked
    lines = compilation.machine_text.__wrapped__().splitlines()
    assert len(calls) == 2 * asked
    assert lines[1:] == ["model name : one", f"flags : {flags}", *["tiles: False"] * asked]


@pytest.mark.parametrize("name", NAMES)
def test_a_made_up_architecture_lowers_and_prints_as_its_table_says(name: str, made_up: CpuArchitecture) -> None:
    machine = machine_of(frozenset(["neon"]), made_up)
    backend = CpuBackend(machine)
    for tile in tile_kernels(name, machine):
        kernel = backend.lower(tile)
        assert (kernel.value("lanes"), kernel.value("features")) == (4, ("neon",))
        text = backend.text(kernel)
        assert '"target-cpu"="generic" "target-features"="+neon" "prefer-vector-width"="128"' in text
        assert "x86" not in text


def test_its_code_is_made_for_its_triple(made_up: CpuArchitecture) -> None:
    machine = machine_of(frozenset(["neon"]), made_up)
    backend = CpuBackend(machine)
    assert backend.code_target.triple == made_up.triple
    (tile,) = tile_kernels("softmax", machine)
    code = compile_text(backend.text(backend.lower(tile)), backend.code_target)
    assert code[18] == 183  # EM_AARCH64, e_machine of ELF
