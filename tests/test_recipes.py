"""CONTRIBUTING's recipes, followed literally: its code blocks add two ops and a scalar function to a copy.

The copy's own generated tests then take them through text, references and error bounds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r'^```python\n# (new file|at the end of|below "[^"]+"): (\S+)\n(.*?)^```$', re.MULTILINE | re.DOTALL)

PROGRAM = """
import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.target.machine_code import compile_texts
from tests.contracts.programs import lowered, ops_of


@kernel
def angles(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    return tile.radians(tile.load(x, rows=T.m, cols=T.n))


x = np.array([[0.001, 1.0, 10.0, 1e6]], np.float32)
np.testing.assert_allclose(np.asarray(ts.jit(ts.ops.radians)(x)), np.radians(x), rtol=1e-6)
np.testing.assert_allclose(np.asarray(angles(x)), np.radians(x), rtol=1e-6)
np.testing.assert_allclose(np.asarray(ts.jit(ts.ops.softsign)(x)), x / (1 + np.abs(x)), rtol=1e-6)
np.testing.assert_allclose(np.asarray(ts.jit(ts.ops.cosine_similarity)(x, x)), 1.0, rtol=1e-6)
with ts.policy(storage=ts.bf16):
    assert ts.ops.softsign(ts.array(x)).dtype is ts.bf16
for name in ("radians", "softsign", "cosine_similarity"):
    assert f"tgraph.{name}" in ops_of(f"sample {name}", "cpu")
    texts = lowered(f"sample {name}", "cuda").texts
    assert all(b".target sm_90a" in code for code in compile_texts(texts, NvptxBackend(GPUS["sm_90a"]).code_target))
print("done")
"""

CHOSEN = "softsign or radians or cosine_similarity or difficult or is_tried or both_kinds or over_columns"
"""The generated tests of the three, and those that look at the forms of all ops."""

TESTS = (
    "tests/numerics/test_every_op.py",
    "tests/numerics/test_samples.py",
    "tests/backends/cpu/test_math.py",
    "tests/ir/base/test_scalar_functions.py",
    "tests/ir/graph",
    "tests/graph/test_elementwise.py",
    "tests/rules/test_size.py",
)


def follow(folder: Path) -> list[str]:
    """Do what the code blocks of CONTRIBUTING.md say in a copy of the repository; the files they name."""
    for name in ("tessera", "tests", "scripts", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)
    blocks = BLOCK.findall((folder / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    for how, path, code in blocks:
        file = folder / path
        assert file.exists() == (how != "new file"), path
        before, after = file.read_text(encoding="utf-8") if file.exists() else "", ""
        if how.startswith("below"):
            heading = how.split('"')[1]
            assert before.count(f"{heading}\n\n") == 1, heading
            before, _, after = before.partition(f"{heading}\n\n")
            before += f"{heading}\n\n"
        file.write_text(before + code + after, encoding="utf-8")
    return [path for _, path, _ in blocks]


@pytest.mark.slow
def test_ops_and_a_scalar_function_are_added_as_contributing_says(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    files = follow(folder)
    assert len(files) == 6

    def run(*command: str) -> str:
        variables = {**os.environ, "PYTHONPATH": str(folder), "TESSERA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run("-m", "ruff", "check", "--quiet", *files)
    run("-m", "ruff", "format", "--check", "--quiet", *files)
    for script in ("scripts/scalar_stubs.py", "scripts/typed_ops.py", "scripts/ops.py"):
        run(script)
    assert "| `radians(x)` |" in (folder / "docs" / "contributing" / "ops" / "graph.md").read_text(encoding="utf-8")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    assert run("program.py") == "done\n"
    tried = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS, "-k", CHOSEN)
    counted = re.search(r"(\d+) passed", tried)
    assert counted is not None, tried
    assert int(counted[1]) >= 20, tried
    assert "failed" not in tried


def test_blocks_of_the_recipes_are_found() -> None:
    found = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [(how, path) for how, path, _ in found] == [
        ("new file", "tessera/ir/graph/ops/softsign.py"),
        ("at the end of", "tessera/frontend/functions/elementwise.py"),
        ("new file", "tessera/ir/graph/ops/cosine_similarity.py"),
        ("at the end of", "tessera/frontend/functions/composite.py"),
        ('below "# Angles."', "tessera/ir/base/scalar_functions.py"),
        ("at the end of", "tessera/ir/target/llvm/math_trig.py"),
    ]
