"""Backends are found by folder: by name, by kind of device, and one that is not LLVM's leaves by the same exit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tessera as ts
import tessera.backends
from tessera.compiler import backend
from tessera.compiler.backend import backend_for_kind, backend_of, manifest_of, manifests
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OverrideError

COMPILE = """
import sys
import numpy as np
import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
x = np.ones((8, 8), np.float32)
traced = ts.jit(lambda x, w: ts.ops.softmax(x @ w, axis=-1)).trace(x, x)
compile_tape(traced.tape, Options.of(backend="{name}"))
print(*sorted(name for name in sys.modules if name.startswith("tessera.backends.{other}")))
"""
WORDS = '''
"""A backend whose kernels leave as words."""
from dataclasses import dataclass
from tessera.ir.base.passes import Pass
from tessera.types.machine import Machine

@dataclass
class Code:
    targets: tuple
    texts: tuple
    host: str = ""
    language: str = "words"

    def objects(self):
        return [text.encode() for text in (self.host, *self.texts)]

    def metadata(self, program):
        return {}

    facts = approximations = lambda self: {}

class Leave(Pass):
    """Kernels leave by another exit than Target IR."""

    def run(self, module):
        for op in list(module.ops):
            if op.name == "ttile.kernel":
                op.detach()

class Compilation:
    machine = Machine("words", lanes=4)

    def tile_passes(self):
        return ()

    def target_passes(self):
        return (Leave(),)

    def check_target(self, kernel):
        pass

    def emit(self, program, kernels, targets, begin):
        return Code(tuple(targets), tuple(f"compute {kernel.value('symbol')}" for kernel in kernels))

class Backend:
    models = {}

    def compilation(self, options, chooser):
        return Compilation()

BACKEND = Backend()
'''


def _forget() -> None:
    for one in vars(backend).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder beside those of the package."""
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Words."""\n')
    (folder / "manifest.py").write_text(
        "from tessera.types.device import Manifest\n"
        'MANIFEST = Manifest("speech", device_kind="speaker", device="host")\n'
    )
    (folder / "compile.py").write_text(WORDS)
    monkeypatch.setattr(tessera.backends, "__path__", [*tessera.backends.__path__, str(tmp_path)])
    _forget()
    yield
    _forget()
    for name in [name for name in sys.modules if name.startswith("tessera.backends.words")]:
        del sys.modules[name]


def test_backends_are_the_folders() -> None:
    assert {one.name for one in manifests()} == {"cpu", "cuda", "reference"}
    assert backend_for_kind("gpu").name == "cuda"
    assert backend_for_kind("cpu") is manifest_of("cpu")


def test_a_name_that_no_folder_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(OverrideError, match="there is no backend `nvptx`") as found:
        manifest_of("nvptx")
    assert "cpu, cuda, reference" in found.value.render()


def test_a_backend_that_interprets_compiles_nothing() -> None:
    with pytest.raises(OverrideError, match="interprets programs and compiles none"):
        backend_of("reference")


@pytest.mark.usefixtures("words")
def test_a_new_folder_is_a_backend_whose_text_need_not_be_llvm() -> None:
    assert {one.name for one in manifests()} == {"cpu", "cuda", "reference", "speech"}
    assert backend_for_kind("speaker").name == "speech"
    tape = ts.jit(ts.ops.exp).trace(ts.ones((4,))).tape
    code = lower(tape, Options.of(backend="speech")).code
    assert code.language == "words"
    assert compile_tape(tape, Options.of(backend="speech")).objects[1].startswith(b"compute ")


@pytest.mark.parametrize(("name", "other"), [("cpu", "nvptx"), ("cuda", "cpu")])
def test_a_compilation_loads_one_backend(name: str, other: str) -> None:
    program = COMPILE.format(name=name, other=other)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # To know what a backend is called its manifest is read, and nothing more.
    allowed = {f"tessera.backends.{other}", f"tessera.backends.{other}.manifest"} if name == "cuda" else set[str]()
    assert set(done.stdout.split()) <= allowed
