"""Keys of programs on disk: another program, option, machine, compiler or package below it is another key."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import compilation
from tessera.api.compilation import cache_key, compiler_text
from tessera.compiler.options import Options
from tessera.runtime.cache import package_text


def _double(x: Any) -> Any:
    return x * 2.0


def _no_states(*_: object) -> list[str]:
    return []


TAPE = ts.jit(_double).trace(np.ones(3, np.float32)).tape


@pytest.mark.parametrize("package", ["llvmlite", "xdsl"])
def test_the_versions_of_packages_are_in_the_key(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_states", _no_states)  # of files that somebody may be writing to
    compiler_text.cache_clear()
    assert f"{package}-{version(package)}" in package_text(package)
    assert package_text(package) in compiler_text().splitlines()
    before = cache_key(TAPE, Options())
    made = tmp_path / package
    made.mkdir()
    (made / "__init__.py").touch()
    (tmp_path / f"{package}-99.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    compiler_text.cache_clear()
    try:
        assert f"{package}-99.0" in compiler_text()
        assert cache_key(TAPE, Options()) != before
        monkeypatch.setattr(sys, "path", sys.path[1:])
        compiler_text.cache_clear()
        assert cache_key(TAPE, Options()) == before
    finally:
        compiler_text.cache_clear()


def test_a_code_generator_that_was_built_anew_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "llvmlite" / "binding" / "libllvmlite.so"
    library.parent.mkdir(parents=True)
    (tmp_path / "llvmlite" / "__init__.py").touch()
    library.write_bytes(b"one")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = package_text("llvmlite")
    os.utime(library, (5, 5))
    assert package_text("llvmlite") != before
    assert package_text("nothing_of_that_name") == "no nothing_of_that_name"


def test_machine_and_options_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_key(TAPE, Options())
    assert cache_key(TAPE, Options(debug=True)) != before
    monkeypatch.setattr(compilation, "machine_text", lambda: "another machine")
    assert cache_key(TAPE, Options()) != before


def test_a_debug_build_in_another_folder_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files are shown below the folder one works in, where two of them may read the same."""
    text = "def doubled(x):\n    return x * 2.0\n"
    keys: dict[bool, set[str]] = {True: set(), False: set()}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        names: dict[str, Any] = {}
        exec(compile(text, str(folder / "model.py"), "exec"), names)
        jitted: Any = ts.jit(names["doubled"])
        tape = jitted.trace(np.ones(3, np.float32)).tape
        for debug, found in keys.items():
            found.add(cache_key(tape, Options(debug=debug)))
    assert (len(keys[True]), len(keys[False])) == (2, 1)
