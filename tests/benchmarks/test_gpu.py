"""Records of a GPU without one: arguments, what tools say, what follows from times, and the files that are written."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks import gpu, gpu_cases, gpu_clusters, gpu_ranges, gpu_record, gpu_replay, gpu_roles, gpu_sanitize
from benchmarks.gpu_cases import CASES, LIBRARY, Case
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import __all__ as library

PROGRAMS = {
    "dropout_residual_layernorm",
    "fft",
    "fft_conv1d",
    "fused_adam",
    "gated_delta_rule",
    "ifft",
    "irfft",
    "linear_attention",
    "rfft",
    "selective_scan",
    "ssd",
}
"""What the library has beside kernels of the kernel language: functions of several of them, and of ops."""
NEEDING = sorted(set(gpu.NAMES) - {"compile"})
WHERE = ("date", "commit", "hardware", "versions")
"""What every record says of its making."""


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest"])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU by name, on which every case is right."""
    made = SimpleNamespace(name="NVIDIA Test", architecture="sm_90a", version=13000)
    monkeypatch.setattr(gpu_record, "is_available", lambda: True)
    monkeypatch.setattr(gpu_record, "driver", lambda: made)
    monkeypatch.setattr(gpu_ranges, "driver", lambda: made)

    def run(case: Case, seed: int = 0) -> float:
        return 0.0

    monkeypatch.setattr(Case, "run", run)


HEAD = """import sys
given = sys.argv[1:]
if given == ["--version"]:
    sys.exit(print("1.2"))
"""


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str) -> None:
    """Put a tool on the PATH that is a few lines of Python; `given` are its arguments."""
    file = folder / name
    file.write_text(f"#!{sys.executable}\n{HEAD}{program}", encoding="utf-8")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def left(arguments: list[str]) -> Any:
    """The status with which a measurement leaves."""
    with pytest.raises(SystemExit) as found:
        gpu.main(arguments)
    return found.value.code


# The command.


@pytest.mark.skipif(is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("name", NEEDING)
def test_without_a_gpu_it_says_so_and_writes_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made.json"
    assert left([name, "--out", str(out)]) == 2
    assert "there is no NVIDIA GPU here" in capsys.readouterr().err
    assert not out.exists()


def test_an_unknown_measurement_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert left(["speed"]) == 2
    said = capsys.readouterr().err
    assert "there is no measurement `speed`" in said
    assert all(name in said for name in gpu.NAMES)
    assert left([]) == 2
    assert left(["--help"]) == 0


@pytest.mark.parametrize("name", ["compile", "clusters", "ranges", "roles", "sanitize"])
def test_an_unknown_part_is_refused_with_those_there_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert left([name, "--only", "nothing"]) == 2
    assert "there is no nothing: the parts are" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--layers", "0"], ["--rounds", "3"], ["--rounds", "many"]])
def test_a_step_without_layers_or_rounds_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert left(["replay", *given]) == 2
    assert "usage: python -m benchmarks.gpu replay" in capsys.readouterr().err


# Cases.


def test_every_kernel_of_the_library_is_a_case() -> None:
    assert sorted(LIBRARY) == sorted(set(library) - PROGRAMS)
    assert set(LIBRARY) <= set(gpu_ranges.CASES) <= set(CASES)
    for family in (gpu_cases.PRODUCTS, gpu_cases.ATTENTION, gpu_cases.ROWS):
        assert {case.is_ragged for case in family.values()} == {True, False}


@pytest.mark.parametrize("name", ["nn-ragged", "i8", "lse-ragged", "rotary_embedding", "columns"])
def test_a_case_is_held_against_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, jitted = CASES[name], Case.jitted

    def here(case: Case, backend: str) -> Any:
        return jitted(case, "cpu" if backend == "cuda" else backend)

    monkeypatch.setattr(Case, "jitted", here)
    assert case.run() <= gpu_cases.LARGEST_ERROR[case.dtype]


def test_a_case_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = Case.jitted

    def wrong(case: Case, backend: str) -> Any:
        function = jitted(case, "reference")

        def grown(x: Any) -> Any:
            return function(x * 1.01)

        return grown if backend == "cuda" else function

    monkeypatch.setattr(Case, "jitted", wrong)
    with pytest.raises(ValueError, match=r"the result is wrong: the error is 0\.0"):
        CASES["columns"].run()


# Sanitizer.

_LINE = "========= "
_HAZARDS = _LINE + "RACECHECK SUMMARY: {} hazards displayed ({} errors, {} warning)\n"
RUNS = {
    "clean": ("memcheck", 0, f"nt: error 1e-3\n{_LINE}ERROR SUMMARY: 0 errors\n", ("clean", 0, 0)),
    "access": ("memcheck", 9, f"{_LINE}Invalid write\n{_LINE}ERROR SUMMARY: 1 error\n", ("faults", 1, 0)),
    "race": ("racecheck", 9, f"{_LINE}Error: Race\n{_HAZARDS.format(3, 2, 1)}", ("faults", 2, 1)),
    "no race": ("racecheck", 0, _HAZARDS.format(0, 0, 0), ("clean", 0, 0)),
    "wrong": ("synccheck", 1, f"the result is wrong\n{_LINE}ERROR SUMMARY: 0 errors\n", ("wrong", 0, 0)),
    "unsupported": ("memcheck", 1, f"{_LINE}Error: Device not supported\n", ("broken", 0, 0)),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_the_sanitizer_says_is_understood(name: str) -> None:
    kind, status, text, wanted = RUNS[name]
    found = gpu_sanitize.judged("nt", kind, status, text, 1.5)
    assert (found.outcome, found.errors, found.warnings) == wanted
    assert bool(found.words) == (found.outcome != "clean")
    assert not any(line.startswith("===") for line in found.words)


SANITIZER = """
kind, case = given[given.index("--tool") + 1], given[-1]
is_found = kind == "racecheck" and case == "causal"
print("========= RACECHECK SUMMARY: %d hazards displayed (%d errors, 0 warnings)" % (is_found, is_found)
      if kind == "racecheck" else "========= ERROR SUMMARY: 0 errors")
sys.exit(9 if is_found else 0)
"""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("only", "status"), [("nt,causal-ragged", 0), ("nt,causal", 1)])
def test_sanitizer_runs_leave_a_record(only: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "compute-sanitizer", SANITIZER)
    out = tmp_path / "made" / "sanitize.json"
    assert left(["sanitize", "--only", only, "--out", str(out)]) == status
    made = json.loads(out.read_text())
    assert set(WHERE) <= set(made)
    assert made["hardware"]["gpu"] == "NVIDIA Test"
    assert made["versions"]["compute-sanitizer"] == "1.2"
    assert len(made["rows"]) == 2 * len(gpu_sanitize.TOOLS)
    assert made["is_clean"] == (status == 0)
    assert made["summary"]["memcheck"] == {"clean": 2}
    assert made["summary"]["racecheck"] == ({"clean": 2} if status == 0 else {"clean": 1, "faults": 1})
    assert [row["is_ragged"] for row in made["rows"][3:]] == [only.endswith("ragged")] * 3


@pytest.mark.usefixtures("device")
def test_a_run_that_takes_too_long_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "compute-sanitizer", "import time\ntime.sleep(60)\n")
    found = gpu_sanitize.run_under(str(tmp_path / "compute-sanitizer"), "memcheck", "nt", 0.3)
    assert (found.outcome, found.words) == ("late", ("it took more than 0.3 seconds",))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("name", "said"), [("sanitize", "no `compute-sanitizer`"), ("ranges", "neither `nsys` nor `ncu`")]
)
def test_without_the_tool_it_says_so(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_ranges, "library", lambda: None)
    assert left([name, "--out", str(tmp_path / "made.json")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made.json").exists()


# Ranges.

NCU = """
print("==PROF== Connected")
print('"ID","Kernel Name","Metric Value"')
names = [given[given.index("--nvtx-include") + 1].rstrip("/")] if "--nvtx-include" in given else {names!r}
for name in names:
    if name not in {unseen!r} or "--nvtx-include" not in given:
        print('"0","%s","7"' % name)
"""
NSYS = """
import os
if given[0] == "stats":
    if "--report=nvtx_pushpop_sum" in given:
        print("Generating report\\nTime (%),Range\\n" + "\\n".join("10,:%s" % name for name in {seen!r}))
    else:
        print("Time (%),Name\\n" + "\\n".join("10,%s(float)" % name for name in {names!r}))
"""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("kind", ["ncu", "nsys"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_ranges_that_a_profiler_sees_leave_a_record(
    kind: str, is_seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = gpu_ranges.kernels_of(CASES["stable_softmax"])
    text, unseen = (NCU, [] if is_seen else names) if kind == "ncu" else (NSYS, [])
    program = text.format(names=names, unseen=unseen, seen=names if is_seen else [])
    tool(tmp_path, monkeypatch, kind, program)
    out = tmp_path / "ranges.json"
    assert left(["ranges", "--tool", kind, "--only", "stable_softmax", "--out", str(out)]) == (0 if is_seen else 1)
    made = json.loads(out.read_text())
    assert set(WHERE) <= set(made)
    assert (made["tool"], made["is_complete"]) == (kind, is_seen)
    assert made["rows"] == [{"case": "stable_softmax", "is_library": True, "ranges": dict.fromkeys(names, is_seen)}]
    assert made["missing"] == ([] if is_seen else ["stable_softmax"])


def test_a_case_of_which_a_profiler_saw_nothing_is_missing() -> None:
    assert gpu_ranges.record_of("ncu", {"sort": {}})["missing"] == ["sort"]
    assert gpu_ranges.launched("no table here", ["sort"]) == {}


# Replays.


@pytest.mark.parametrize(("median", "same", "wanted"), [(4.0, True, True), (12.0, True, False), (4.0, False, False)])
def test_a_replay_reaches_its_goal_where_it_is_quick_and_right(median: float, same: bool, wanted: bool) -> None:
    times = {name: {"median": median, "p10": 1.0, "p90": 20.0} for name in ("call", "replay")}
    assert gpu_replay.record_of(times, 4, same)["is_reached"] is wanted


def test_runs_take_turns_and_begin_with_an_idle_device() -> None:
    done: list[str] = []
    runs = {name: partial(done.append, name) for name in ("call", "replay")}
    found = gpu_replay.timed(runs, 10, partial(done.append, "wait"))
    assert done == ["wait", "call", "wait", "replay"] * 10 + ["wait"]
    assert all(one["p10"] <= one["median"] <= one["p90"] for one in found.values())
    assert gpu_replay.spread([1e-6 * number for number in range(1, 12)]) == {"median": 6.0, "p10": 2.0, "p90": 10.0}


def test_a_step_of_decoding_means_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"WIDTH": 64, "HEADS": 4, "SHARED": 2, "KEYS": 9, "HEAD": 16}
    for name, value in sizes.items():
        monkeypatch.setattr(gpu_replay, name, value)
    rng = np.random.default_rng(3)
    x, layers = rng.standard_normal((1, 64)).astype(np.float32), gpu_replay.weights(2, rng)
    wide = [tuple(part.astype(np.float32) for part in one) for one in layers]
    found, wanted = (np.asarray(ts.jit(gpu_replay.decode, backend=one)(x, wide)) for one in ("cpu", "reference"))
    assert found.shape == (1, 64)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(found - x).max() > 0.1


# Pairs.


@pytest.mark.parametrize(
    ("clusters", "single", "is_chosen", "is_right"),
    [(90.0, 100.0, True, True), (90.0, 100.0, False, False), (100.0, 90.0, True, False), (100.0, 100.3, False, True)],
)
def test_a_choice_is_right_where_nothing_is_much_faster(
    clusters: float, single: float, is_chosen: bool, is_right: bool
) -> None:
    own = clusters if is_chosen else single
    times = {"clusters": clusters, "single": single, "model": own, "model again": own * 1.002}
    found = gpu_clusters.judged({name: value * 1e-6 for name, value in times.items()}, is_chosen, True)
    assert found["is_right"] is is_right
    assert found["chosen"] == ("clusters" if is_chosen else "single")
    row = {"form": "nt", "size": [1, 2, 3], **found}
    record = gpu_clusters.record_of([row])
    assert (record["right"], record["of"], bool(record["wrong"])) == (int(is_right), 1, not is_right)


def test_whether_there_are_clusters_is_read_off_the_kernel() -> None:
    assert not gpu_clusters.has_clusters("nt", (1024, 1024, 256), {})
    assert gpu_clusters.has_clusters("nt", (1024, 1024, 256), gpu_clusters.VARIANTS["clusters"])


# Compile times.


def test_compile_times_leave_a_record_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    out = tmp_path / "compile.json"
    gpu.main(["compile", "--only", "turned,running", "--out", str(out)])
    made = json.loads(out.read_text())
    assert set(WHERE) <= set(made)
    assert made["architecture"] == "sm_90a"
    assert {row["case"] for row in made["rows"]} == {"running", "turned"}
    assert all(row["lower_seconds"] > 0 and row["ptx_seconds"] > 0 and row["ptx_lines"] > 10 for row in made["rows"])
    assert left(["compile", "--architecture", "sm_1"]) == 2


def test_variants_of_roles_differ_in_roles_alone() -> None:
    """Compiled as they will be measured: with a producer and without, on the same instructions and stages."""
    facts = {name: gpu_roles.facts_of("nt", (2048, 2048, 2048), asked) for name, asked in gpu_roles.VARIANTS.items()}
    assert {name: found.pop("roles") for name, found in facts.items()} == {
        name: ["uniform" if name == "uniform" else "producer"] for name in facts
    }
    assert facts["uniform"]["instructions"] == ["wgmma 64 x 256 x 16"]
    assert all(found == facts["uniform"] for found in facts.values())


def test_a_gain_is_over_the_slower_of_two_runs() -> None:
    found = gpu_roles.judged({"producer": 1e-6, "plain": 2e-6, "uniform": 3e-6, "producer again": 2e-6})
    assert (found["gain"], found["plain_gain"], found["noise"]) == (1.5, 1.5, 1.0)


def test_roles_were_faster_in_one_process_as_recorded() -> None:
    """At 4096 and all other sizes: what the compiler takes, against consumers that copy for themselves."""
    file = gpu_record.RESULTS / "gpu-roles.json"
    made = json.loads(file.read_text(encoding="utf-8"))
    assert {tuple(row["size"]) for row in made["rows"]} >= {(4096, 4096, 4096)}
    for row in made["rows"]:
        assert row["gain"] > 1 + row["noise"], row
