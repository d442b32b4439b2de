"""Tampered executables: a small part of the trial, and what each kind of tampering is answered with."""

# Headers are JSON, and traced functions lambdas: neither has types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tessera.diagnostics.codes import LoadError
from tessera.runtime.executable import Executable
from tests.trials.mutate_text import ROOT
from tests.trials.tampered_executables import seal, sealed_bytes, split


def test_no_file_of_a_small_campaign_is_accepted_or_ends_the_process() -> None:
    command = [sys.executable, "-m", "tests.trials.tampered_executables", "300", "--seed", "5", "--jobs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].startswith("300 files, 0 faults")


def load_with(name: str, value: Any) -> Executable:
    header, parts = split(sealed_bytes()["add"])
    header[name] = value
    return Executable.from_bytes(seal(header, parts))


def test_a_file_sealed_anew_as_it_was_is_read() -> None:
    header, parts = split(sealed_bytes()["add"])
    assert Executable.from_bytes(seal(header, parts)).to_bytes() == sealed_bytes()["add"]


@pytest.mark.parametrize(
    "value", [None, 3, "x", {}, [1], [["f32"]], [["f32", "N", "x"]], [[1, [], ""]], [["f32", [1], ""]]]
)
def test_ports_of_another_form_are_refused(value: Any) -> None:
    with pytest.raises(LoadError, match="`outputs` of its header is of another form"):
        load_with("outputs", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outputs", [["f32", ["3"], ""]]),
        ("outputs", [["f64", ["3", "4"], ""]]),
        ("inputs", [["f32", ["4", "3"], "x"]]),
        ("symbols", []),
        ("guards", [["always", "1", "1"]]),
        ("metadata", {}),
    ],
)
def test_a_header_that_says_something_else_does_not_belong_to_its_code(name: str, value: Any) -> None:
    with pytest.raises(LoadError):
        load_with(name, value)


@pytest.mark.parametrize("header", ["", "null", "[]", "{", "[" * 100_000, json.dumps({"inputs": []}), "9" * 9000])
def test_a_header_that_is_no_table_of_fields_is_refused(header: str) -> None:
    with pytest.raises(LoadError, match="executable is damaged"):
        Executable.from_bytes(seal(header, b""))
