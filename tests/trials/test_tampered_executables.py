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
from tessera.runtime.devices.cuda.program import CudaProgram
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tests.trials.mutate_text import ROOT
from tests.trials.tampered_executables import GPU, PROGRAMS, seal, sealed_bytes, split, tie_and_seal


@pytest.mark.slow
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


def forge(program: str, fact: str, value: Any) -> Executable:
    """An executable that says something else of its code, and whose digests both match."""
    header, parts = split(sealed_bytes()[program])
    header["metadata"][fact] = value
    return Executable.from_bytes(tie_and_seal(header, parts, header["blobs"]))


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        3,
        "text",
        {"given": 3, "kept": []},
        {"given": [0], "kept": [[0]]},
        {"given": [1], "kept": []},
        {"given": ["0"], "kept": []},
        {"given": [0], "kept": [[1, 0]]},
        {"given": [0], "kept": [[0, -1]]},
    ],
)
def test_donated_arguments_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(LoadError, match="which are no arguments"):
        LoadedExecutable(forge("add", "donated", value))


@pytest.mark.parametrize(
    "value",
    [
        ["scream", 0, "", [], []],
        ["io_callback", -1, "", [], []],
        ["debug_print", 0, "", [["f31", 1]], []],
        ["debug_print", 0, "", [], [["f32", -1]]],
    ],
)
def test_callbacks_of_no_known_kind_are_refused(value: Any) -> None:
    with pytest.raises(LoadError, match="lists a callback that is none"):
        LoadedExecutable(forge("add", "callbacks", [value]))


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        *(("architecture", 90), ("kernels", []), ("kernels", 3), ("kernels", [{"name": "k"}]), ("called", ["none"])),
        *(("called", 3), ("constants", [1 << 40]), ("constants", [-1]), ("workspace", "("), ("workspace", 64)),
        *(("scratches", [1]), ("scratches", [["1", 0, 0, "4"]]), ("maps", -1), ("maps", 1 << 62), ("maps", None)),
        *(("streams", "2"), ("events", True), ("state", 3), ("accesses", [])),
    ],
)
def test_facts_of_gpu_code_of_another_form_are_refused_before_a_gpu_is_looked_for(fact: str, value: Any) -> None:
    with pytest.raises(LoadError, match="what it says of its kernels is of another form"):
        CudaProgram(forge(GPU, fact, value))


def test_a_file_that_says_what_it_said_is_linked_as_it_was() -> None:
    header, parts = split(sealed_bytes()["add"])
    assert tie_and_seal(header, parts, header["blobs"]) == seal(header, parts)
    x = PROGRAMS["add"][1][0]
    assert (LoadedExecutable(forge("add", "note", "x"))(x).numpy() == x + 1).all()
