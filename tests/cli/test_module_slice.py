"""To look at a function of a script executes what the function needs of it, and no work of the script's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tessera.cli.arguments import Look, TargetError, find
from tessera.cli.main import app

SCRIPT = """
'''A script.'''
from __future__ import annotations

import os
import sys
import tessera as ts
import a_module_that_is_not_there

sys.path.append("somewhere")
SCALE = 2.0
TABLE = {}
TABLE["a"] = SCALE
UNUSED = open("/nonexistent/file")


class Config:
    width = 4


def helper(x) -> Config:
    return x * TABLE["a"]


@ts.jit
def forward(x: ts.Tensor["N", ts.f32]):
    return helper(x) + 1.0


@ts.jit
def other(x: ts.Tensor["N", ts.f32]):
    return forward(x) - Config.width


raise SystemExit("the script ran")
for _ in range(3):
    os._exit(3)
print("printed")
if __name__ == "__main__":
    os._exit(4)
if sys.platform == "linux":
    PLATFORM = "linux"
else:
    PLATFORM = "other"


def platform(x: "ts.Tensor['N', ts.f32]"):
    return x * len(PLATFORM)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "sliced_script.py"
    file.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "sliced_script", raising=False)
    return file


@pytest.mark.parametrize("form", ["sliced_script", "{file}"])
def test_only_what_a_function_needs_is_executed(script: Path, form: str, capsys: Any) -> None:
    target = form.format(file=script)
    function = find(f"{target}:forward")
    assert function.name == "forward"
    module: Any = sys.modules["sliced_script"]
    assert (module.TABLE, module.__doc__) == ({"a": 2.0}, "A script.")
    assert not hasattr(module, "UNUSED")
    assert not hasattr(module, "other")
    assert "somewhere" in sys.path
    # A second function of the module adds what it needs, and keeps what is there.
    assert find(f"{target}:other").name == "other"
    assert sys.modules["sliced_script"] is module
    assert module.forward is function
    assert module.Config.width == 4
    assert find(f"{target}:platform").name == "platform"
    assert module.PLATFORM == "linux"
    assert capsys.readouterr().out == ""


def test_a_name_that_is_not_there_lists_the_functions(script: Path) -> None:
    with pytest.raises(TargetError, match="it has helper, forward, other, platform"):
        find("sliced_script:missing")
    with pytest.raises(TargetError, match=r"there is no file `nothing\.py`"):
        find("nothing.py:forward")


def test_what_needed_statements_raise_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sliced_wrong.py").write_text(
        "made = []\nmade.append(3)\nfirst = made[0]\ndef f(x):\n    return x * first\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(TargetError, match=r"sliced_wrong.py:3 raised IndexError.*--execute executes the whole module"):
        find("sliced_wrong:f")
    assert "sliced_wrong" not in sys.modules
    assert find("sliced_wrong:f", executes=True).name == "f"


TRAINING = """import sys
from pathlib import Path

words = sys.argv
params = [1.0]
rate = 0.5
for step in range(3):
    Path("trained.txt").write_text("ran")
    params = [one - rate for one in params]
while rate > 0.1:
    Path("trained.txt").write_text("ran")
    rate *= 0.5
if rate:
    with open("trained.txt", "w") as log:
        for step in range(3):
            params[0] -= rate
for width in range(5):
    depth = 2 * width
total = 0
for one in range(4):
    total = total + one
total = total * 2


def f(x):
    return x * params[0] * rate * depth * len(words)
"""


@pytest.mark.parametrize("command", ["lint", "inspect"])
def test_loops_that_change_what_is_bound_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    file = tmp_path / "sliced_training.py"
    file.write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "sliced_training", raising=False)
    monkeypatch.setattr(sys, "argv", ["tessera", command, "sliced_training:f"])
    output = ["--output", "page.html"] if command == "inspect" else []
    done = CliRunner().invoke(app, [command, "sliced_training:f", "--shape", "x=8:f32", "--progress", *output])
    assert done.exit_code == 0, done.output
    assert "not executed of sliced_training.py: lines 7, 10, 13, 19, 20, 22 (" in done.stderr
    assert not (tmp_path / "trained.txt").exists()
    module: Any = sys.modules["sliced_training"]
    # A name that loops alone bind needs them.
    assert (module.params, module.rate, module.depth) == ([1.0], 0.5, 8)
    assert module.words == [str(file)]
    assert sys.argv == ["tessera", command, "sliced_training:f"]


def test_progress_is_for_terminals_and_those_who_ask(script: Path, capsys: Any) -> None:
    Look().find("sliced_script:forward")
    assert capsys.readouterr().err == ""
    Look(progress=True).find("sliced_script:forward")
    said = capsys.readouterr().err
    assert said.startswith("tessera: importing sliced_script\n")
    assert "not executed of sliced_script.py: lines 14, 35, 36, 38" in said


def test_commands_say_what_they_do_and_name_kernels_as_their_users_do(script: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["inspect", "sliced_script.py:forward", "--output", str(page), "--progress"])
    assert done.exit_code == 0, done.output
    steps = [line for line in done.stderr.splitlines() if line.startswith("tessera: ")]
    assert [line.split()[1] for line in steps] == ["importing", "not", "tracing", "lowering", "compiling"]
    shown = " ".join(done.stdout.split())
    assert "kernel forward (sliced_script.py:22-27; full, mul, add; mul_add_" in shown
    assert "sm_90a: occupancy" in shown
    text = page.read_text()
    assert "forward<br>" in text
    assert '"ptx": "//' in text
    linted = CliRunner().invoke(app, ["lint", "sliced_script:forward"])
    assert linted.stdout.startswith("forward (sliced_script.py:22-27; full, mul, add; mul_add_")
    assert "no bank conflicts" in linted.stdout


def test_one_line_that_was_not_executed_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one_line.py").write_text("def forward(x):\n    return x\n\n\nprint(forward(3))\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "one_line", raising=False)
    Look(progress=True).find("one_line:forward")
    assert "not executed of one_line.py: line 5 (" in capsys.readouterr().err
