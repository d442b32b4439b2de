"""`tessera-opt` as a command: pipes, exit status, and aliases equal to what they stand for."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera.cli import opt
from tessera.ir.graph.passes.fold_constants import FoldConstants

ROOT = Path(__file__).parents[2]
T = "!tgraph.tensor<[A, B], f32>"
MODULE = f"""tgraph.func @f(%x: {T}) -> {T} {{
  %0 = tgraph.softmax %x {{axis = 1}} : ({T}) -> {T}
  %1 = tgraph.neg %x : ({T}) -> {T}
  tgraph.return %0 : ({T}) -> ()
}}
"""


def run(*arguments: str, text: str = MODULE) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    status = opt.run(arguments, io.StringIO(text), output, errors)
    return status, output.getvalue(), errors.getvalue()


def test_the_command_works_in_a_pipe() -> None:
    command = [sys.executable, "-m", "tessera.cli.opt"]
    first = subprocess.run(
        [*command, "-graph-eliminate-common"], input=MODULE, capture_output=True, text=True, cwd=ROOT
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert "tgraph.neg" not in first.stdout
    second = subprocess.run(command, input=first.stdout, capture_output=True, text=True, cwd=ROOT)
    assert second.stdout == first.stdout


def test_a_wrong_module_is_status_1_with_the_error_on_stderr() -> None:
    status, output, errors = run(text=MODULE.replace("axis = 1", "axis = 9"))
    assert (status, output) == (1, "")
    assert errors.startswith("error[T0301]: `softmax` has no axis 9")
    assert "<stdin>:2:3" in errors


def test_a_text_that_is_no_utf_8_is_a_wrong_command_line(tmp_path: Path) -> None:
    file = tmp_path / "module.mlir"
    file.write_bytes(MODULE.encode() + b"\xff\xfe")
    status, output, errors = run(str(file))
    assert (status, output) == (2, "")
    assert errors == f"tessera-opt: cannot read {file}: it is no text in UTF-8, at byte {len(MODULE.encode())}\n"
    piped = subprocess.run(
        [sys.executable, "-m", "tessera.cli.opt"], input=b"\xff\xfe", capture_output=True, cwd=ROOT, check=False
    )
    assert piped.returncode == 2
    assert piped.stderr.startswith(b"tessera-opt: cannot read <stdin>: it is no text in UTF-8")


def test_an_output_that_cannot_be_written_is_a_wrong_command_line(tmp_path: Path) -> None:
    status, output, errors = run("-o", str(tmp_path / "absent" / "file"))
    assert (status, output) == (2, "")
    assert errors.startswith("tessera-opt: cannot write ")


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    command = f"{sys.executable} -m tessera.cli.opt --list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tgraph.func @f() {", "the text ends inside a region: `}` is missing"),
        ("tgraph.func @f() {\n", "the text ends inside a region: `}` is missing"),
        ("tgraph.func @f() {\n  )\n}", "expected an op, a block (`^name:`) or the `}` that ends the region"),
    ],
)
def test_a_region_that_does_not_end_says_so(text: str, message: str) -> None:
    status, _, errors = run(text=text)
    assert status == 1
    assert errors.splitlines()[0] == f"error[T0304]: {message}"


@pytest.mark.parametrize("arguments", [("-p", "nothing"), ("--nothing",), ("absent.mlir",), ("-p", "graph-decompose{")])
def test_a_wrong_command_line_is_status_2(arguments: tuple[str, ...]) -> None:
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith("tessera-opt: ")


@pytest.mark.parametrize("alias", opt.ALIASES)
def test_an_alias_is_listed_and_equals_what_it_stands_for(alias: str) -> None:
    status, help_text, _ = run("--help")
    assert status == 0
    assert f"-{alias}\n      same as -p {opt.ALIASES[alias]}" in help_text
    assert run(f"-{alias}") == run("-p", opt.ALIASES[alias]) == run(f"--{alias}")
    assert run(f"-{alias}")[0] == 0


def test_verify_prints_nothing() -> None:
    assert run("--verify") == (0, "", "")
    assert run("--verify", "-p", "graph-decompose") == (0, "", "")


def test_list_names_every_pass_with_a_sentence() -> None:
    status, output, _ = run("--list")
    assert status == 0
    lines = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in output.splitlines()}
    assert lines["graph-canonicalize"] == "Apply every op's `simplify`."


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    assert run("-o", str(tmp_path / "out.mlir"))[1] == ""
    assert "tgraph.softmax" in (tmp_path / "out.mlir").read_text()


def test_parts_are_verified_one_by_one_and_the_worst_status_counts() -> None:
    status, output, errors = run("--split", text=f"{MODULE}// -----\n{MODULE.replace('axis = 1', 'axis = 9')}")
    assert status == 1
    assert "tgraph.softmax" in output
    assert "<stdin>:8:3" in errors


def test_a_failing_pass_leaves_a_file_and_a_command_that_reproduces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FoldConstants, module: ModuleOp) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setenv("TESSERA_REPRODUCERS", str(tmp_path))
    monkeypatch.setattr(FoldConstants, "run", fail)
    status, _, errors = run("-p", "graph-canonicalize,graph-fold-constants{limit = 8}")
    assert status == 3
    assert "internal error in `graph-fold-constants`: ZeroDivisionError: oh" in errors
    command = shlex.split(errors.split("run it again with `")[1].split("`")[0])
    assert command[0] == "tessera-opt"
    assert command[2:] == ["-p", "graph-fold-constants{limit = 8}"]
    again, _, errors_again = run(*command[1:])
    assert again == 3
    assert "ZeroDivisionError: oh" in errors_again
