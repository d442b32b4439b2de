"""`import tessera` and first calls are light: counted in modules, processes and texts, never in seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tessera as ts
from scripts import facade_stub
from tests.api.counted import Counts, count_work

HEAVY = ("xdsl", "llvmlite", "islpy", "rich", "typer")
# Each of these takes milliseconds, and none of them is needed to run what is in the cache.
WEIGHTY = (
    "pathlib",
    "urllib",
    "ml_dtypes",
    "subprocess",
    "concurrent",
    "sysconfig",
    "email",
    "secrets",
    "pkg_resources",
)

FUSED = """
import numpy as np
import tessera as ts
@ts.jit
def f(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32], b: ts.Tensor["N", ts.f32]):
    return ts.ops.softmax(ts.ops.gelu(x @ w + b))
arguments = [np.ones(shape, np.float32) for shape in ((3, 4), (4, 5), (5,))]
"""


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def loaded_of(counts: Counts, names: tuple[str, ...]) -> list[str]:
    """Those of the names that a program loaded itself or a part of."""
    return [name for name in names if any(module.split(".", 1)[0] == name for module in counts.modules)]


def test_import_loads_next_to_nothing() -> None:
    loaded = run("import sys, tessera; print(*sorted(m for m in sys.modules if m.startswith('tessera')))")
    assert loaded == "tessera"


def test_decorating_loads_what_tracing_needs_and_no_more(tmp_path: Path) -> None:
    counts = count_work("import numpy", FUSED, tmp_path)
    assert loaded_of(counts, (*HEAVY, *WEIGHTY)) == []
    assert "tessera.frontend.trace" in counts.modules
    assert "tessera.frontend.functions.public" in counts.modules
    assert len(counts.own) < 115  # a module for each family of functions
    # A class that the standard library makes is six texts to compile; `frozen` needs one.
    assert counts.texts < 120
    assert counts.processes == 0


def test_tracing_loads_no_compiler(tmp_path: Path) -> None:
    assert loaded_of(count_work(FUSED, "f.trace(*arguments)", tmp_path), HEAVY) == []


def test_a_first_call_that_is_in_the_cache_loads_little_and_starts_nothing(tmp_path: Path) -> None:
    cold = count_work(FUSED, "f(*arguments)", tmp_path)
    warm = count_work(FUSED, "f(*arguments)\nassert f.cache_info().compiles == 0", tmp_path)
    assert cold.processes > 0
    assert warm.processes == 0
    assert loaded_of(warm, (*HEAVY, *WEIGHTY)) == []
    # Whether an op's module loads with its decorator or with its call is all one: both together are few.
    assert len(count_work("import numpy", FUSED, tmp_path).own) + len(warm.own) < 133
    assert warm.texts < 20
    # What is there already: the program, and the support code of all programs.
    assert warm.reads == 2
    assert warm.writes == 0


def test_workers_start_before_the_compiler_is_loaded_and_nothing_is_collected_meanwhile(tmp_path: Path) -> None:
    cold = count_work(FUSED, "f(*arguments)", tmp_path, environment={"TESSERA_COMPILE_WORKERS": "2"})
    assert cold.processes == 1  # it loads LLVM once and forks two workers
    assert cold.events.index("process") < cold.events.index("xdsl")
    assert "llvmlite" not in cold.events
    assert cold.collections == 0


def test_every_public_name_is_there() -> None:
    for name in ts.__all__:
        assert getattr(ts, name) is not None
    assert set(ts.__all__) <= set(dir(ts))


def test_the_stub_shows_every_public_name() -> None:
    assert facade_stub.STUB.read_text(encoding="utf-8") == facade_stub.render(), "run scripts/facade_stub.py"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ts, "nothing_of_the_kind")
