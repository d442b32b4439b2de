"""The lit runner itself: a wrong expectation fails, and so does a command that should have failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lit.lit_runner import LitError, run_file, run_lines

MODULE = """
// CHECK-LABEL: tgraph.func @f(
// CHECK-NEXT: tgraph.{}
tgraph.func @f(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {{
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}}
"""


def write(folder: Path, run: str, check: str) -> Path:
    file = folder / "test.mlir"
    file.write_text(f"// RUN: {run}\n{MODULE.format(check)}")
    return file


def test_a_right_expectation_passes(tmp_path: Path) -> None:
    run_file(write(tmp_path, "tessera-opt %s | filecheck %s", "exp"))


def test_a_wrong_expectation_fails_and_shows_what_came(tmp_path: Path) -> None:
    # The pattern is cut in two so that no search for it finds this line.
    with pytest.raises(LitError, match="Couldn't match") as caught:
        run_file(write(tmp_path, "tessera-opt %s | filecheck %s", "cosine"))
    assert "tgraph.exp" in str(caught.value)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("not tessera-opt %s", "ended with status 0"),
        ("tessera-opt %s -p nothing", "ended with status 2"),
        ("tessera-opt %s | filecheck %s --check-prefix=ABSENT", "ended with status 2"),
        ("rm -rf %s", "`rm` is no command of a RUN line"),
    ],
)
def test_a_command_that_does_not_do_what_is_said_fails(run: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(LitError, match=words):
        run_file(write(tmp_path, run, "exp"))


def test_a_file_without_a_run_line_is_no_test(tmp_path: Path) -> None:
    file = tmp_path / "empty.mlir"
    file.write_text("// nothing\n")
    with pytest.raises(LitError, match="has no RUN line"):
        run_file(file)


def test_long_lines_may_be_broken() -> None:
    assert run_lines("// RUN: tessera-opt %s \\\n// RUN:   | filecheck %s\n") == ["tessera-opt %s  | filecheck %s"]
