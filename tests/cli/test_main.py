"""The `tessera` command: help, pages, codes, the doctor, and what it does not import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tessera
from tessera.cli.doctor import examine_line, examine_runtime, examine_variables
from tessera.cli.main import app, main
from tessera.diagnostics.codes import CodegenError, all_codes, explain
from tessera.runtime.cache import Store, key_of
from tessera.tuner.database import default_database
from tessera.tuner.records import Plan, Signature
from tessera.types.settings import VARIABLES

RUNNER = CliRunner()


def test_help_names_every_command() -> None:
    result = RUNNER.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert [
        name
        for name in ("explain", "doctor", "inspect", "profile", "lint", "run", "cache", "version")
        if name not in result.output
    ] == []


def test_the_package_run_as_a_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tessera", "explain", "T0101"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, explain("T0101"))
    shown = subprocess.run([sys.executable, "-m", "tessera", "--help"], capture_output=True, text=True, check=False)
    assert "python -m tessera" in shown.stdout
    assert "__main__" not in shown.stdout


def test_explain_prints_the_page() -> None:
    result = RUNNER.invoke(app, ["explain", "t0101"])
    assert (result.exit_code, result.output) == (0, explain("T0101"))


@pytest.mark.parametrize("name", ["ShapeError", "shapeerror", "tessera.diagnostics.codes.ShapeError"])
def test_explain_takes_the_class_of_an_error(name: str) -> None:
    result = RUNNER.invoke(app, ["explain", name])
    assert (result.exit_code, result.output) == (0, explain("T0101"))


def test_every_class_of_an_error_is_explained_by_its_name() -> None:
    assert all(explain(cls.__name__) == explain(code) for code, cls in all_codes().items())


def test_explain_of_an_unknown_class_names_those_alike() -> None:
    result = RUNNER.invoke(app, ["explain", "ShapesError"])
    assert result.exit_code == 1
    assert "no error is called `ShapesError`; there are ShapeError" in " ".join(result.stderr.split())


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
    assert {finding["section"] for finding in findings} == {
        "cpu",
        "runtime",
        "variables",
        "dependencies",
        "gpu",
        "trial",
    }
    assert result.exit_code == int(any(finding["is_problem"] for finding in findings))
    table = RUNNER.invoke(app, ["doctor"]).output
    assert [finding["name"] for finding in findings if finding["name"] not in table] == []


def test_the_doctor_knows_every_variable_and_so_does_the_page() -> None:
    sources = (Path(__file__).parents[2] / "tessera").rglob("*.py")
    read = {name for file in sources for name in re.findall(r"TESSERA_[A-Z_]+[A-Z]", file.read_text(encoding="utf-8"))}
    assert read == set(VARIABLES)
    assert re.findall(r"^\| `(TESSERA_\w+)`", explain("T0705"), re.MULTILINE) == list(VARIABLES)


def test_the_doctor_tells_of_variables_that_are_wrong_or_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NUM_THREADS", "many")
    monkeypatch.setenv("TESSERA_THREADS", "2")
    found = [*examine_runtime(), *examine_variables()]
    problems = {finding.name: finding.value for finding in found if finding.is_problem}
    assert problems.keys() == {"settings", "TESSERA_THREADS"}
    assert "`TESSERA_NUM_THREADS` is `many`" in problems["settings"]


def test_the_doctor_compiles_and_runs_and_says_when_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    (trial,) = examine_line()
    assert not trial.is_problem

    def refuse(*_: object) -> None:
        raise CodegenError("no LLVM")

    monkeypatch.setattr("tessera.api.compilation._compile_tape", refuse)
    (trial,) = examine_line()
    assert trial.is_problem
    assert "no LLVM" in trial.value


def test_the_version_is_that_of_the_package() -> None:
    assert RUNNER.invoke(app, ["version"]).output == f"{tessera.__version__}\n"
    assert RUNNER.invoke(app, ["--version"]).output == f"{tessera.__version__}\n"


@pytest.mark.parametrize(
    "command", [[], ["explain"], ["doctor"], ["inspect"], ["profile"], ["lint"], ["run"], ["cache"], ["version"]]
)
def test_every_help_fits_a_terminal_and_says_something_of_each_option(command: list[str]) -> None:
    shown = RUNNER.invoke(app, [*command, "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 100
    options = re.findall(r"^.\s+(?:\*\s+)?(--?[a-z-]+)\s+(?:\S+\s{2,})?(.*)$", shown.output, re.MULTILINE)
    assert options
    assert [name for name, text in options if not text.strip(" │")] == []


def test_a_file_runs_on_ranks(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import sys, tessera as ts\nprint(ts.dist.rank(), 'of', ts.dist.world_size(), sys.argv[1:])\n")
    done = RUNNER.invoke(app, ["run", "--ranks", "2", str(file), "--size", "3"])
    assert done.exit_code == 0
    assert sorted(done.output.splitlines()) == [f"[rank {rank}] {rank} of 2 ['--size', '3']" for rank in range(2)]
    file.write_text("import sys, tessera as ts\nsys.exit(3 * ts.dist.rank())\n")
    failed = RUNNER.invoke(app, ["run", str(file)])
    assert failed.exit_code == 1
    assert "rank 1 of 2 failed: it ended with exit code 3" in failed.output
    assert RUNNER.invoke(app, ["run", str(tmp_path / "none.py")]).exit_code == 2
    assert RUNNER.invoke(app, ["run", "--ranks", "0", str(file)]).exit_code == 2


def test_the_doctor_says_which_gpus_were_never_tried() -> None:
    findings = json.loads(RUNNER.invoke(app, ["doctor", "--json"]).output)
    (line,) = (finding["value"] for finding in findings if finding["name"] == "compiles for")
    assert "sm_80 (never executed)" in line
    assert "sm_100a (never executed)" in line
    assert "sm_90a," in line


def test_the_doctor_sees_a_cache_it_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", "/proc/nowhere")
    result = RUNNER.invoke(app, ["doctor", "--json"])
    (cache,) = (finding for finding in json.loads(result.output) if finding["name"] == "cache")
    assert (result.exit_code, cache["is_problem"], cache["value"]) == (1, True, "/proc/nowhere is not writable")


def test_help_loads_neither_compiler_nor_arrays() -> None:
    program = "import sys, tessera.cli.main; print({'xdsl', 'llvmlite', 'numpy', 'rich.table'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("command", ["show", "clear"])
def test_a_cache_folder_with_files_of_others_is_an_error_in_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tessera", "cache", command])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err.splitlines() == [
        f"error[T0703]: the cache folder {tmp_path} holds files that are not Tessera's: notes.txt",
        "  = help: set TESSERA_CACHE_DIR to a folder of its own, which need not exist",
    ]
    doctor = RUNNER.invoke(app, ["doctor", "--json"])
    (cache,) = (finding for finding in json.loads(doctor.output) if finding["name"] == "cache")
    assert cache["is_problem"]
    assert "not Tessera's: notes.txt" in cache["value"]
    assert (tmp_path / "notes.txt").exists()


def test_the_cache_is_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TESSERA_CACHE_BYTES", "1M")
    empty = json.loads(RUNNER.invoke(app, ["cache", "show", "--json"]).output)
    assert empty == {
        "folder": str(tmp_path),
        "entries": 0,
        "bytes": 0,
        "limit": 1 << 20,
        "plans": 0,
        "oldest_days": None,
    }
    for name in ("a", "b"):
        Store(tmp_path).put(key_of(name), bytes(2000))
    found = json.loads(RUNNER.invoke(app, ["cache", "show", "--json"]).output)
    assert (found["entries"], found["bytes"], found["oldest_days"]) == (2, 2 * 2032, 0.0)
    shown = RUNNER.invoke(app, ["cache", "show"]).output
    assert "entries  2" in shown
    assert "4.0 KiB of 1.0 MiB" in shown
    cleared = RUNNER.invoke(app, ["cache", "clear"])
    assert (cleared.exit_code, cleared.output) == (0, "removed 2 entries, 4.0 KiB\n")
    assert Store(tmp_path).get(key_of("a")) is None


def test_tuned_plans_are_shown_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    default_database().store(Signature("matmul", "64x64x64", "f32"), Plan())
    assert json.loads(RUNNER.invoke(app, ["cache", "show", "--json"]).output)["plans"] == 1
    assert "plans    1 tuned plan, which `tessera cache clear` leaves" in RUNNER.invoke(app, ["cache", "show"]).output
    cleared = RUNNER.invoke(app, ["cache", "clear"]).output
    assert "1 tuned plan stays: `ts.autotune.cache.clear()` forgets all" in cleared
    assert len(default_database().entries()) == 1


def test_a_cache_that_others_may_write_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    Store(tmp_path).put(key_of("a"), bytes(2000))
    tmp_path.chmod(0o775)
    with pytest.warns(RuntimeWarning, match="mode 775"):
        cleared = RUNNER.invoke(app, ["cache", "clear"])
    assert (cleared.exit_code, cleared.stdout) == (0, "removed 1 entry, 2.0 KiB\n")
    assert not list(tmp_path.rglob("*.entry"))


def test_a_cache_that_cannot_be_cleared_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("sys.argv", ["tessera", "cache", "clear"])
    with pytest.warns(RuntimeWarning, match="cannot be used"), pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 1
    assert "cannot be cleared: it cannot be changed (Not a directory)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("inspect", "--html", "--output"),
        ("inspect", "--shpe", "--shape"),
        ("lint", "--gpu", "--architecture"),
        ("lint", "--sizes", "--size"),
        ("doctor", "--jsn", "--json"),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_is_meant(command: str, option: str, meant: str) -> None:
    result = RUNNER.invoke(app, [command, "model:forward", option, "x"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"{option} (Possible options: {meant})" in result.output
