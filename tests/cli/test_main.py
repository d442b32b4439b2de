"""The `tessera` command: help, pages, codes, the doctor, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tessera.cli.main import app
from tessera.diagnostics.codes import all_codes
from tessera.diagnostics.explain import explain

RUNNER = CliRunner()


def test_help_names_every_command() -> None:
    result = RUNNER.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert [name for name in ("explain", "doctor", "version") if name not in result.output] == []


def test_explain_prints_the_page() -> None:
    result = RUNNER.invoke(app, ["explain", "t0101"])
    assert (result.exit_code, result.output) == (0, explain("T0101"))


def test_explain_lists_codes() -> None:
    result = RUNNER.invoke(app, ["explain", "--list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(all_codes())


def test_explain_of_an_unknown_code_fails() -> None:
    result = RUNNER.invoke(app, ["explain", "T0199"])
    assert result.exit_code == 1
    assert "no error has the code `T0199`" in result.stderr


def test_the_doctor_reports_each_section() -> None:
    result = RUNNER.invoke(app, ["doctor", "--json"])
    findings = json.loads(result.output)
    assert {finding["section"] for finding in findings} == {"cpu", "runtime", "dependencies", "gpu"}
    assert result.exit_code == int(any(finding["is_problem"] for finding in findings))
    table = RUNNER.invoke(app, ["doctor"]).output
    assert [finding["name"] for finding in findings if finding["name"] not in table] == []


def test_the_doctor_sees_a_cache_it_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", "/proc/nowhere")
    result = RUNNER.invoke(app, ["doctor", "--json"])
    (cache,) = (finding for finding in json.loads(result.output) if finding["name"] == "cache")
    assert (result.exit_code, cache["is_problem"], cache["value"]) == (1, True, "/proc/nowhere is not writable")


def test_help_loads_neither_compiler_nor_arrays() -> None:
    program = "import sys, tessera.cli.main; print({'xdsl', 'llvmlite', 'numpy', 'rich.table'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
