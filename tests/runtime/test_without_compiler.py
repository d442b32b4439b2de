"""A process that can import neither NumPy, xDSL nor llvmlite loads a file and runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tessera.runtime.native.support import support_object
from tests.runtime.programs import add_executable

ROOT = Path(__file__).parents[2]

BLOCK = """
    import sys

    class Block:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("numpy", "xdsl", "llvmlite", "ml_dtypes"):
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Block())
"""

RUN = """
    from array import array
    from pathlib import Path
    from tessera.runtime.executable import Executable
    from tessera.runtime.launch import LoadedExecutable
    from tessera.runtime.tensor import Tensor

    add = LoadedExecutable(Executable.from_bytes(Path(sys.argv[1]).read_bytes()))
    x = Tensor.of([[1, 2, 3], [4, 5, 6]], "f32")
    y = Tensor.of(memoryview(array("f", [10, 20, 30, 40, 50, 60])).cast("B").cast("f", (2, 3)))
    z = add.call(x, y)
    print(z.tolist(), z.shape, z.dtype)
    try:
        add(x, Tensor.of([[1.0]], "f32"))
    except Exception as error:
        print(error.message)
    print(z)
"""

EXPECTED = """\
[[11.0, 22.0, 33.0], [44.0, 55.0, 66.0]] (2, 3) f32
argument 1 (`y`) has size 1 in dim 0; expected N = 2
Tensor([2, 3] f32, [[11, 22, 33],
                    [44, 55, 66]])
"""


def run(program: str, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TESSERA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", textwrap.dedent(BLOCK) + textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False)


def test_an_executable_with_its_support_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "add.tessera"
    file.write_bytes(add_executable().with_support(support_object()).to_bytes())
    result = run(RUN, str(file), cache=tmp_path / "cache")
    assert result.stdout == EXPECTED, result.stderr


def test_without_support_the_error_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "add.tessera"
    file.write_bytes(add_executable().to_bytes())
    result = run(RUN, str(file), cache=tmp_path / "cache")
    assert "the native support code is not in the cache and there is no compiler to make it" in result.stderr


def test_importing_the_runtime_is_quick_and_light() -> None:
    program = """
    import tessera.runtime.launch
    heavy = [name for name in sys.modules if name.split(".")[0] in ("numpy", "xdsl", "llvmlite", "ml_dtypes")]
    print(heavy)
    """
    assert run(program, cache=Path("/nonexistent")).stdout == "[]\n"
