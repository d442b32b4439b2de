"""Kernels that are typed: `python -c`, standard input, prompts, `exec` and notebook cells; else an error that helps."""

from __future__ import annotations

import linecache
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics.codes import BlockValueError, KernelError

TYPED = """import numpy as np, tessera as ts
from tessera import KTile, f32, kernel, tile
def helper(v): return v + 1.0

@kernel
def twice(x: KTile["M", "N", f32]):
    T = tile.context()
    return helper(tile.load(x, rows=T.m, cols=T.n) * 2.0)

print("sum", float(np.asarray(twice(np.ones((2, 3), np.float32))).sum()))
"""
WRONG = TYPED.replace("T = tile.context()", "T = tile.context(); y = tile.load(x, T.m, T.n) / T.n")


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, env=env, **options
    )


def keep(name: str, text: str) -> None:
    lines: list[str] = list(text.splitlines(keepends=True))
    linecache.cache[name] = (len(text), None, lines, name)


def test_a_kernel_in_a_command_runs() -> None:
    assert "sum 18.0" in run("-c", TYPED).stdout


@pytest.mark.parametrize("flags", [[], ["-i"], ["-"]], ids=["", "i", "dash"])
def test_a_kernel_on_standard_input_from_a_file_runs(flags: list[str], tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED.replace("def helper(v): return v + 1.0\n", "def helper(v):\n    return v + 1.0\n"))
    with file.open() as typed:
        made = run(*flags, stdin=typed)
    assert "sum 18.0" in made.stdout, made.stderr


def test_a_kernel_from_a_pipe_says_what_to_do() -> None:
    made = run("-i", input=TYPED)
    if "sum 18.0" in made.stdout:
        assert sys.version_info >= (3, 13)  # whose prompt keeps what is typed
        return
    assert "error[T0206]: `helper` has no source" in made.stderr or "`twice` has no source" in made.stderr
    assert "it was read from a pipe" in made.stderr
    assert "help: write the kernel in a file and import it" in made.stderr


def test_a_kernel_typed_at_a_terminal_runs() -> None:
    """Of what is typed at a terminal, the history of the prompt has the text."""
    pytest.importorskip("readline")
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
    process = subprocess.Popen(
        [sys.executable, "-q"], stdin=follower, stdout=follower, stderr=follower, env=env, start_new_session=True
    )
    os.close(follower)
    os.write(leader, TYPED.encode())
    os.write(leader, b"import os; os._exit(0)\n")
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the terminal is gone with the process
        pass
    process.wait(timeout=60)
    assert b"sum 18.0" in shown, shown.decode(errors="replace")


def test_errors_of_typed_kernels_show_their_line() -> None:
    made = run("-c", WRONG)
    assert "error[T0504]" in made.stderr
    assert "T = tile.context(); y = tile.load(x, T.m, T.n) / T.n" in made.stderr


def test_cells_of_notebooks_run_and_show_their_lines() -> None:
    """As IPython does: each cell is compiled under a name whose lines are in `linecache`."""
    for count, value in enumerate((2.0, 3.0)):
        cell = TYPED.replace("* 2.0", f"* {value}")
        name = f"<ipython-input-{count}-0123abcd>"
        keep(name, cell)
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(cell, name, "exec"), space)
        np.testing.assert_array_equal(np.asarray(space["twice"](np.ones((2, 3), np.float32))), value + 1)
    name = "<ipython-input-9-0123abcd>"
    keep(name, WRONG)
    with pytest.raises(BlockValueError) as raised:
        exec(compile(WRONG, name, "exec"), {"__name__": "__main__"})
    assert raised.value.span is not None
    assert raised.value.span.file == name
    assert "/ T.n" in raised.value.span.source_line


def test_exec_of_a_string_says_what_to_do() -> None:
    with pytest.raises(KernelError, match="`twice` has no source") as raised:
        exec(TYPED, {"__name__": "__main__"})
    assert "linecache.cache[name]" in str(raised.value)


def test_only_the_text_that_a_function_was_made_from_is_taken() -> None:
    """A function of the same name in a command, which is another one, is not its source."""
    other = TYPED.replace("* 2.0", "* 5.0")
    made = run("-c", f"other = {other!r}\ntry:\n    exec(other)\nexcept Exception as error:\n    print(error)\n{TYPED}")
    assert "has no source" in made.stdout
    assert "sum 18.0" in made.stdout
