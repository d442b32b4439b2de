"""Programs run where NumPy, xDSL and llvmlite cannot be imported, and are compiled where there is no C compiler."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import tessera as ts
from tessera.runtime.launch import LoadedExecutable
from tessera.runtime.native.support import support_object
from tessera.runtime.tensor import Tensor
from tests.determinism.programs import CASES, bits

ROOT = Path(__file__).parents[2]

RUN = """
    import hashlib, json, pickle, sys

    class Block:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("numpy", "xdsl", "llvmlite", "ml_dtypes"):
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Block())

    from pathlib import Path
    from tessera.runtime.executable import Executable
    from tessera.runtime.launch import LoadedExecutable

    found = {}
    for file in sorted(Path(sys.argv[1]).glob("*.tessera")):
        program = LoadedExecutable(Executable.from_bytes(file.read_bytes()))
        for number, inputs in enumerate(pickle.loads(file.with_suffix(".inputs").read_bytes())):
            result = program.call(*inputs)
            if result is NotImplemented:
                result = program.run(inputs)
            digest = hashlib.sha256(result.tobytes()).hexdigest()
            found[f"{file.stem} {number}"] = [list(result.shape), str(result.dtype), digest]
    heavy = [name for name in sys.modules if name.split(".")[0] in ("numpy", "xdsl", "llvmlite", "ml_dtypes")]
    print(json.dumps([found, heavy]))
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=120, check=False)


def exported(folder: Path, name: str) -> dict[str, list[Any]]:
    """Write a program and inputs of several sizes into a folder; what it gives for each here."""
    case = CASES[name]
    jitted, arrays = case.jitted(), case.arrays()
    batches = [[array[:size] for array in arrays[: case.batched]] + arrays[case.batched :] for size in (1, 5, 67)]
    wanted = [jitted(*batch) for batch in batches]
    (made,) = jitted.specializations
    assert isinstance(made.loaded, LoadedExecutable)
    stem = name.replace(" ", "_")
    file = folder / f"{stem}.tessera"
    file.write_bytes(made.loaded.executable.with_support(support_object()).to_bytes())
    inputs = [[Tensor.of(array) for array in batch] for batch in batches]
    file.with_suffix(".inputs").write_bytes(pickle.dumps(inputs))
    return {f"{stem} {number}": _shown(result) for number, result in enumerate(wanted)}


def _shown(result: Tensor) -> list[Any]:
    return [list(result.shape), str(result.dtype), hashlib.sha256(result.tobytes()).hexdigest()]


@pytest.mark.slow
def test_exported_programs_run_without_numpy_xdsl_and_llvmlite(tmp_path: Path) -> None:
    wanted: dict[str, list[Any]] = {}
    for name in CASES:
        wanted |= exported(tmp_path, name)
    result = run(RUN, str(tmp_path), TESSERA_CACHE_DIR=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stderr
    found, heavy = json.loads(result.stdout)
    assert found == wanted
    assert heavy == []


NO_COMPILER = """
    import shutil
    assert not any(shutil.which(tool) for tool in ("cc", "gcc", "clang", "g++", "c++", "ld", "as", "ldconfig"))
    from tests.determinism import programs
    programs.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_nothing_needs_a_c_compiler(path: str, tmp_path: Path) -> None:
    result = run(NO_COMPILER, PATH=path, TESSERA_CACHE_DIR=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stderr
    found: dict[str, list[str]] = json.loads(result.stdout)
    for name, case in CASES.items():
        assert found[name] == [bits(case.jitted()(*case.arrays())), "compiled"], name


def test_a_second_process_runs_from_the_cache_without_the_compiler(tmp_path: Path) -> None:
    """What is in the cache runs with xDSL and llvmlite never loaded; NumPy is there, as the user's arrays are."""
    program = """
        import sys
        import numpy as np
        import tessera as ts
        double = ts.jit(lambda x: ts.ops.softmax(x * 2.0), dynamic=True)
        double(np.ones((3, 5), np.float32))
        loaded = [name for name in ("xdsl", "llvmlite") if name in sys.modules]
        print(double.specializations[0].origin.source, loaded)
    """
    first, second = (run(program, TESSERA_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2))
    assert first.stdout.startswith("compiled"), first.stderr
    assert second.stdout == "disk cache []\n", second.stdout + second.stderr


def test_declarations_of_all_ops_load_no_compiler() -> None:
    """A trace reads them until it finds the ops that it asks for, and what is in the cache runs after it."""
    program = """
        import sys
        from tessera.ir.graph.ops import REGISTRY
        print(len(list(REGISTRY)) > 100, [name for name in ("xdsl", "llvmlite") if name in sys.modules])
    """
    result = run(program)
    assert result.stdout == "True []\n", result.stdout + result.stderr


def test_references_are_never_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled program gives its result with every NumPy function of the oracle taken away."""

    def gone(*_: Any, **__: Any) -> Any:
        raise AssertionError("the oracle was asked")

    case = CASES["mlp"]
    wanted = bits(case.jitted()(*case.arrays()))
    monkeypatch.setattr("tessera.backends.reference.compile.run_tape", gone)
    assert bits(ts.jit(case.function, dynamic=True)(*case.arrays())) == wanted
