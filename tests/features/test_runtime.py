"""Caches, state, collectives, debugging and installation, as promised."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import RaceError
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.tile.interpret import Breakpoint, run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.passes.check_races import CheckRaces
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, f32
from tessera.types.shape import TensorType
from tests.compilers import COMPILERS
from tests.graph.eager import RuleDTypeError, infer, reference, registry
from tests.stdlib.running import run_library, typed
from tests.tile import kernels

ROOT = Path(__file__).parents[2]
F32 = np.float32


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


def test_T1_the_second_call_neither_traces_nor_compiles() -> None:
    traces: list[int] = []

    @ts.jit
    def f(x: Any) -> Any:
        traces.append(1)
        return x * 4.125 + 1

    for _ in range(3):
        f(ones(3))
    assert (len(traces), f.cache_info().misses, f.cache_info().hits) == (1, 1, 2)


def test_E1_effects_are_part_of_the_signature() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", ts.f32], key: ts.Tensor[2, ts.u64]) -> Any:
        return ts.random.dropout(x, key, 0.25)

    f(ones(3), ts.random.key(0))
    assert f.effects == {"random"}
    assert repr(f).splitlines()[0].endswith("effects {random}")


PROGRAM = """
import numpy as np
import tessera as ts

@ts.jit{options}
def f(x: ts.Tensor["B", 5, ts.f32], w: ts.Tensor[5, 7, ts.f32]):
    return ts.ops.softmax(x @ w * {factor})

x, w = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5), np.ones((5, 7), np.float32)
print({shown})
"""
KEY, RESULT = "f.explain(x, w).key", "np.asarray(f(x, w)).tolist()"


def run(program: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_I3_the_same_source_has_the_same_hash_in_every_process() -> None:
    plain = PROGRAM.format(options="", factor=0.5, shown=KEY)
    keys = [run(plain, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert keys[0] == keys[1]
    changes: list[dict[str, Any]] = [
        {"options": "", "factor": 0.25},
        {"options": "(fusion=False)", "factor": 0.5},
        {"options": "(features=('sse2',))", "factor": 0.5},
    ]
    changed = "\n".join(PROGRAM.format(**change, shown=KEY) for change in changes)
    assert len({keys[0], *run(changed).split()}) == 4


def test_R7_every_test_runs_with_the_compilers_hidden() -> None:
    for name in COMPILERS:
        called = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
        assert (called.returncode, called.stderr) == (127, f"{name} was called, and Tessera needs no compiler of C\n")
    assert not {"CC", "CXX"} & os.environ.keys()


def test_R7_no_compiler_of_c_is_needed(tmp_path: Path) -> None:
    empty, cache = tmp_path / "bin", tmp_path / "cache"
    empty.mkdir()
    program = PROGRAM.format(options="", factor=0.75, shown=RESULT)
    given = run(program, PATH=str(empty), CC="/nowhere", TESSERA_CACHE_DIR=str(cache))
    # Columns of w are alike, so a row of the product is constant and its softmax even.
    np.testing.assert_allclose(eval(given), np.full((3, 7), 1 / 7), rtol=1e-6)
    assert any(cache.rglob("*")), "it was compiled, not found"


def test_O7_explain_names_fusions_choices_and_what_a_key_changed() -> None:
    def program(x: Any, w: Any) -> Any:
        return ops.gelu(x @ w) * 5.125

    first = ts.jit(program, dynamic=True)
    first(ones(2, 3), ones(3, 4))
    text = str(first.explain(ones(2, 3), ones(3, 4)))
    assert "matmul_gelu" in text, "which ops became one kernel"
    assert "contraction.block@" in text
    assert "fusion at" in text
    other = ts.jit(program, dynamic=True, overrides={"contraction.block": (32, 64, 64)})
    other(ones(2, 3), ones(3, 4))
    text = str(other.explain(ones(2, 3), ones(3, 4)))
    assert "(32, 64, 64) (override)" in text
    assert "compiled, the options changed since the last time" in text
    static = ts.jit(program)
    static(ones(2, 3), ones(3, 4))
    static(ones(5, 3), ones(3, 4))
    assert "`x.shape[0]` changed from 2 to 5" in static.explain_recompile()


def test_T8_collectives_of_four_ranks_equal_numpy() -> None:
    xs = [np.random.default_rng(rank).standard_normal((4, 8)).astype(F32) for rank in range(4)]

    def simulated(name: str, **attributes: Any) -> Any:
        spec = registry()[name]
        assert spec.reference is not None
        return spec.reference(*xs, **spec.with_defaults({"axis": "dp", "size": (Dim.constant(4),), **attributes}))

    for rank in range(4):
        np.testing.assert_allclose(simulated("all_reduce")[rank], np.sum(xs, 0), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(simulated("all_gather", dim=1)[rank], np.concatenate(xs, 1))
        parts = np.concatenate([np.split(x, 4, 1)[rank] for x in xs], 0)
        np.testing.assert_array_equal(simulated("all_to_all", split=1, concat=0)[rank], parts)


def test_V1_a_cache_is_typed() -> None:
    cache = ts.KVCache.empty(1, 2, 8, 4, ts.bf16)
    assert repr(cache) == "KVCache[1, 2, 8, 4, bf16](length=0)"
    assert (cache.shape, cache.dtype) == ((1, 2, 8, 4), ts.bf16)
    assert str(ts.KVCache["B", "H", "S_max", "D_h", ts.bf16]) == 'KVCache["B", "H", "S_max", "D_h", bf16]'

    @ts.jit
    def f(cache: ts.KVCache["B", 2, "S_max", 4, ts.f32], k: Any) -> Any:
        return cache.append(k, k)

    f.trace(ts.KVCache.empty(1, 2, 8, 4), ones(1, 2, 1, 4))
    for stored, new, words in (
        (ts.KVCache.empty(1, 2, 8, 5), ones(1, 2, 1, 5), r"`cache\.K\.shape\[3\]` must be 4, got 5"),
        (ts.KVCache.empty(1, 2, 8, 4), ones(1, 2, 1, 5), "head dim"),
        (ts.KVCache.empty(1, 2, 8, 4), ones(1, 3, 1, 4), "heads"),
        (ts.KVCache.empty(1, 2, 8, 4, ts.bf16), ones(1, 2, 1, 4), "must be f32, got bf16"),
    ):
        with pytest.raises(ts.TesseraError, match=words):
            f.trace(stored, new)
    assert f.cache_info().size == 0


def test_V2_appending_keeps_what_is_there() -> None:
    rng = np.random.default_rng(0)
    append = ts.jit(lambda cache, k, v: cache.append(k, v), dynamic=True)
    cache: Any = ts.KVCache.empty(1, 2, 64, 4)
    kept: list[Any] = []
    for count in (3, 13, 1, 16, 31):
        new = rng.standard_normal((1, 2, count, 4)).astype(F32)
        before = np.asarray(cache.K)[:, :, : int(cache.length)].tobytes()
        cache = append(cache, new, new * 2)
        kept.append(new)
        assert np.asarray(cache.K)[:, :, : int(cache.length) - count].tobytes() == before
    np.testing.assert_array_equal(np.asarray(cache.K), np.concatenate(kept, 2))
    np.testing.assert_array_equal(np.asarray(cache.V), np.concatenate(kept, 2) * 2)


def test_V2_1_what_was_pruned_is_not_attended() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 6, 4)).astype(F32) for _ in range(3))

    @ts.jit
    def f(cache: Any, q: Any) -> Any:
        return ops.flash_attention(q, cache.prune(3), causal=False)

    cache = ts.KVCache.empty(1, 2, 9, 4).append(k, v)
    last = ops.attention(q[:, :, -1:], np.ascontiguousarray(k[:, :, 3:]), np.ascontiguousarray(v[:, :, 3:]))
    np.testing.assert_allclose(np.asarray(f(cache, q[:, :, -1:])), np.asarray(last), rtol=1e-5, atol=1e-6)
    k[:, :, :3] = v[:, :, :3] = np.nan
    poisoned = ts.KVCache.empty(1, 2, 9, 4).append(k, v)
    np.testing.assert_allclose(np.asarray(f(poisoned, q[:, :, -1:])), np.asarray(last), rtol=1e-5, atol=1e-6)


def test_V7_decoding_with_a_cache_equals_attention_over_all() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 7, 8)).astype(F32) for _ in range(3))

    @ts.jit(dynamic=True)
    def step(cache: Any, q: Any, k: Any, v: Any) -> Any:
        cache = cache.append(k, v)
        return ops.flash_attention(q, cache, causal=True), cache

    cache: Any = ts.KVCache.empty(1, 2, 16, 8)
    rows: list[Any] = []
    for at in (slice(0, 3), *(slice(at, at + 1) for at in range(3, 7))):
        out, cache = step(cache, *(np.ascontiguousarray(x[:, :, at]) for x in (q, k, v)))
        rows.append(np.asarray(out))
    whole = np.asarray(ops.attention(q, k, v, causal=True))
    np.testing.assert_allclose(np.concatenate(rows, 2), whole, rtol=1e-5, atol=1e-6)
    assert step.cache_info().misses == 1


def test_B2_1_two_stores_into_one_cell_are_found_with_both_lines() -> None:
    line = TensorType.of(["N"], f32)
    b = TileBuilder("twice", [line, line], symbols=["N"], grid=[Dim.symbol("N")], writes=[1], kind="map")
    here = TileRegion({"i": b.program_id(0)})
    x = b.load(b.arguments[0], [kernels.ROW], here)
    b.span = kernels.span(11)
    b.store(x, b.arguments[1], [kernels.ROW], here)
    b.span = kernels.span(12)
    b.store(x, b.arguments[1], [Dim.constant(0)], here)
    parent = kernels.verify_kernel(b.finish()).parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(RaceError, match="both write one cell of argument 1") as caught:
        CheckRaces().run(parent)
    assert "the lines are kernels.py:11:1 and kernels.py:12:1" in caught.value.notes


# A call of a user's kernel has no sample of its own: what it computes is the user's, as tests/kernel has it.
LIBRARY_OPS = [
    spec for spec in registry() if type(spec.lower).__name__ == "Library" and spec.short_name != "kernel_call"
]


WITH_NARROW_RESULTS = ("join_segments",)
"""Their operands are accumulators, which are wide; what they are rounded to may be narrow."""


@pytest.mark.parametrize("spec", LIBRARY_OPS, ids=lambda spec: spec.short_name)
def test_B6_library_kernels_run_interpreted_in_narrow_floats(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    for dtype in (BY_NAME["bf16"], BY_NAME["f8e4m3"]):
        sample = spec.samples[-1 if spec.short_name in WITH_NARROW_RESULTS else 0]
        attributes: dict[str, Any] = dict(sample.attributes)
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        if spec.short_name in WITH_NARROW_RESULTS:
            with pytest.raises(RuleDTypeError, match="accumulators"):
                infer(spec.short_name, *typed([x.astype(numpy_dtype(dtype)) for x in arrays], None), **attributes)
            attributes["dtype"] = dtype
        else:
            arrays = [x.astype(numpy_dtype(dtype)) if x.dtype.kind == "f" else x for x in arrays]
        try:
            infer(spec.short_name, *typed(arrays, None), **attributes)
        except RuleDTypeError:
            continue
        found = run_library(spec.short_name, arrays, attributes)
        wanted: Any = reference(spec.short_name, *arrays, **attributes)
        for left, right in zip(found, [wanted] if len(found) == 1 else wanted, strict=True):
            bound = 2 * dtype.epsilon
            np.testing.assert_allclose(left.astype(np.float64), right.astype(np.float64), rtol=bound, atol=bound)
        tried.append(dtype.name)
    assert tried == ["bf16", "f8e4m3"]
    stops: list[int] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stops.append(1))
    x = np.zeros(11, F32)
    run_kernel(kernels.double(), [x, x.copy()], {"N": 11}, observer=Breakpoint(line=3))
    assert len(stops) == 2


ROOMS = {
    "tessera/frontend": "tests/frontend",
    "tessera/ir/graph": "tests/graph",
    "tessera/ir/schedule": "tests/schedule",
    "tessera/ir/tile": "tests/tile",
    "tessera/ir/target": "tests/ir/target",
    "tessera/ir/base": "tests/ir/base",
    "tessera/backends/cpu": "tests/backends/cpu",
    "tessera/backends/nvptx": "tests/backends/nvptx",
    "tessera/runtime": "tests/runtime",
    "tessera/compiler": "tests/compiler",
    "tessera/tuner": "tests/tuner",
    "tessera/types": "tests/types",
    "tessera/diagnostics": "tests/diagnostics",
    "tessera/api": "tests/api",
    "tessera/stdlib": "tests/stdlib",
    "tessera/cli": "tests/cli",
    "tessera/interop": "tests/interop",
    "tessera/nn": "tests/nn",
    "tessera/optim": "tests/optim",
    "tessera/data": "tests/data",
    "tessera/train": "tests/train",
    "tessera/profile": "tests/profile",
    "tessera/distributed": "tests/distributed",
    "tessera/planner": "tests/planner",
    "tessera/xp": "tests/xp",
    "tessera/linalg": "tests/linalg",
}


def test_Q9_every_room_stands_where_it_is_said_and_has_tests() -> None:
    for room, tests in ROOMS.items():
        assert (ROOT / room / "__init__.py").is_file(), room
        assert list((ROOT / tests).glob("test_*.py")), tests
    for name in ("graph", "schedule", "tile", "target"):
        assert (ROOT / "docs" / "contributing" / "stages" / f"{name}.md").is_file()
        assert list((ROOT / "tests" / "lit" / name).glob("*.mlir"))
    assert 'tessera-opt = "tessera.cli.opt:main"' in (ROOT / "pyproject.toml").read_text()
    for name in ("tessera", "tests", "docs", "tools"):
        assert (ROOT / name).is_dir()
    known = {ROOT / room for room in ROOMS}
    folders = [path for path in (ROOT / "tessera").iterdir() if path.is_dir() and (path / "__init__.py").is_file()]
    assert {path for path in folders if path.name not in ("ir", "backends")} <= known


def test_Q9_the_tool_of_a_checkout_runs_passes(tmp_path: Path) -> None:
    """From any folder, with nothing installed on the path."""
    text = "ttile.kernel @k() attributes {symbols = [], grid = [], writes = []} {\n  ttile.return\n}\n"
    (tmp_path / "k.mlir").write_text(text)
    command = [sys.executable, str(ROOT / "tools" / "tessera-opt"), "k.mlir", "-p", "tile-check-bounds"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=True)
    assert "ttile.kernel @k() attributes" in done.stdout
    broken = subprocess.run([*command[:-1], "no-such-pass"], cwd=tmp_path, env=bare, capture_output=True, check=False)
    assert broken.returncode


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed, built once for all environments."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    (built,) = folder.glob("tessera-*.whl")
    return built


VERSIONS = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
"""The versions of Python that the package says it is for."""


def _find_interpreter(version: str) -> str | None:
    """An interpreter of a version of Python: one on the path, or one of pyenv's."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
    ask = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    for one in filter(None, [shutil.which(f"python{version}"), *map(str, installed)]):
        if subprocess.run([one, "-c", ask], capture_output=True, check=False).returncode == 0:
            return one
    return None


@pytest.mark.slow
@pytest.mark.parametrize("version", [one for one in VERSIONS if not sys.version.startswith(f"{one}.")])
def test_Y6_each_version_of_python_installs_imports_and_runs(version: str, wheel: Path, tmp_path: Path) -> None:
    """All but the one that runs this, which the next test installs for."""
    found = _find_interpreter(version)
    if found is None:
        pytest.skip(f"no interpreter of Python {version} is on the path or among pyenv's")
    _install_and_run(tmp_path / "env", wheel, found)


@pytest.mark.slow
def test_Y6_a_new_environment_installs_imports_and_runs(wheel: Path, tmp_path: Path) -> None:
    assert wheel.stat().st_size < 20e6
    # Wall time, as a user waits for it; a machine that others keep busy gets a second chance.
    seconds = _install_and_run(tmp_path / "env", wheel)
    assert seconds < 60 or _install_and_run(tmp_path / "again", wheel) < 60
    installer = [sys.executable, "-m", "pip", "--python", str(tmp_path / "env" / "bin" / "python")]
    listed = subprocess.run([*installer, "list"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in listed
    _check_installed(tmp_path / "env", tmp_path)


def _install_and_run(folder: Path, wheel: Path, interpreter: str = sys.executable) -> float:
    """Seconds to make an environment, install a wheel into it, import it and run an example on the CPU."""
    started = time.perf_counter()
    # Nothing is in it but what is installed, not even an installer: the one at hand works on it from outside.
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    installer = [sys.executable, "-m", "pip", "--python", str(python)]
    # Bytecode of all that is installed would be most of the work, and what is imported makes its own.
    subprocess.run([*installer, "install", "--quiet", "--no-compile", str(wheel)], check=True)
    program = "import sys\n" + PROGRAM.format(options="", factor=0.5, shown=RESULT)
    program += "print(sorted({'torch', 'jax', 'cuda'} & sys.modules.keys()))"
    found = subprocess.run(
        [python, "-I", "-c", program], cwd=folder, capture_output=True, text=True, check=True, env=_bare_environment()
    )
    assert found.stdout.splitlines()[1] == "[]"
    return time.perf_counter() - started


def _bare_environment() -> dict[str, str]:
    """Nothing of the checkout: no path to its modules or to its scripts."""
    return {name: value for name, value in os.environ.items() if name in ("HOME", "TMPDIR", "LANG")}


def _check_installed(environment: Path, outside: Path) -> None:
    """Commands, pages of errors, and types of an installed wheel, away from the checkout."""

    def run(*words: str) -> str:
        command = [str(environment / "bin" / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=outside, capture_output=True, text=True, check=True, timeout=60, env=_bare_environment()
        )
        return done.stdout

    assert run("tessera", "--version") == f"{ts.__version__}\n"
    assert "inspect" in run("tessera", "--help")
    assert run("tessera", "explain", "T0102") == (ROOT / "docs" / "errors" / "T0102.md").read_text()
    assert run("tessera", "explain", "ShapeError").startswith("# T0101")
    assert "exit status" in run("tessera-opt", "--help")
    assert "graph-canonicalize" in run("tessera-opt", "--list")
    (package,) = environment.glob("lib/python*/site-packages/tessera")
    assert (package / "py.typed").is_file()
    stubs = {file.relative_to(ROOT / "tessera") for file in (ROOT / "tessera").rglob("*.pyi")}
    assert stubs
    assert all((package / stub).is_file() for stub in stubs)
    pages = {file.name for file in (ROOT / "docs" / "errors").glob("T*.md")}
    assert {file.name for file in (package / "diagnostics" / "pages").iterdir()} >= pages
