"""The harness: who is right is timed, who is wrong or absent is named with the reason, and files read back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import chart, compare, cpu, environment, gradients, latency, publish, tables
from benchmarks.contenders import with_numpy, with_tessera
from benchmarks.contenders.contender import Contender, Library, NotOfferedError
from benchmarks.harness import Plan, Row, measure, measure_all
from benchmarks.result import OURS, OURS_STATIC, Result, geometric_mean, summary, verdict
from benchmarks.workloads import TARGETS, Workload, workloads

PLAN = Plan(threads=1, rounds=3, disturbance=1e9)
WORK = Workload("rows", "softmax", {"M": 3, "N": 5})


def silent(_: object) -> None:
    """Nobody to tell."""


def contender(name: str, function: Callable[[Any], Any]) -> Contender:
    def prepare(work: Workload, arrays: dict[str, Any]) -> Callable[[], Any]:
        return lambda: function(arrays["x"])

    return Contender(name, prepare)


def softmax(x: Any) -> Any:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def refuse(work: Workload, arrays: dict[str, Any]) -> Callable[[], Any]:
    raise NotOfferedError("it has no softmax")


def row(name: str = "softmax 3x5 f32", threads: int = 1, **times: float) -> Row:
    samples = {key.replace("_", " "): [seconds] * 5 for key, seconds in times.items()}
    return Row("rows", name, threads, 75.0, "cpu", samples)


def test_right_answers_are_timed_and_wrong_ones_named() -> None:
    contenders = (
        contender("right", softmax),
        contender("wrong", lambda x: softmax(x) + 1),
        contender("broken", lambda x: x.nothing),
        contender("nan", lambda x: x * np.nan),
        Contender("absent", refuse),
    )
    found = measure(WORK, contenders, PLAN, {}, silent)
    assert list(found.samples) == ["right"]
    assert len(found.samples["right"]) == PLAN.rounds
    assert found.skipped["wrong"].startswith("ArithmeticError: wrong by 1")
    assert found.skipped["nan"].startswith("ArithmeticError: wrong by nan")
    assert found.skipped["broken"].startswith("AttributeError")
    assert found.skipped["absent"] == "it has no softmax"


def test_the_tolerance_is_tight() -> None:
    for work in workloads():
        if max(work.sizes.values()) <= 1024 and work.kind != "transformer":
            arrays = work.inputs()
            reference = work.reference(arrays)
            assert work.tolerance(reference) < 0.02 * np.sqrt(np.mean(np.square(reference))) or work.dtype == "bf16"
            break


def test_a_hopeless_contender_is_left_out_of_larger_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.001, 0.001, 0.001, 5.0])

    def timed(run: object, calls: int, *, use_cpu_time: bool) -> float:
        return next(times, 0.001)

    monkeypatch.setattr("benchmarks.harness.time_calls", timed)
    contenders = (contender("fast", softmax), contender("slow", softmax))
    rows = measure_all((WORK, WORK), contenders, PLAN, silent, silent)
    assert rows[0].samples["slow"] == [5.0]
    assert rows[1].skipped["slow"] == "5000 times slower than the best at softmax 3x5 f32"


def test_a_library_that_is_not_here_gives_its_reason() -> None:
    contenders, reason = Library("no_such_library_here", lambda module, threads: ()).contenders(1)
    assert contenders == ()
    assert "no_such_library_here is not installed" in reason


@pytest.mark.parametrize("kind", sorted({work.kind for work in workloads()}))
def test_every_kind_of_workload_is_right_in_numpy_and_tessera(kind: str) -> None:
    sizes = {"L": 2, "B": 1, "H": 8, "S": 9, "D": 64} if kind == "transformer" else {"B": 1, "H": 2, "S": 9, "D": 8}
    work = Workload("rows", kind, {**sizes, "M": 5, "K": 7, "N": 9})
    contenders = [*with_tessera.LIBRARY.contenders(1)[0], *with_numpy.LIBRARY.contenders(1)[0]]
    found = measure(work, contenders, Plan(threads=1, rounds=1, disturbance=1e9), {}, silent)
    expected = [OURS, OURS_STATIC] + (["numpy"] if kind != "bias_gelu_erf_mul" else [])
    assert list(found.samples) == expected, found.skipped


def test_a_verdict_is_against_the_best_peer() -> None:
    found = verdict(row(tessera=1.0, tessera_static=0.5, numpy=3.0, jax=2.0))
    assert found is not None
    assert (found.peer, found.ratio, found.ratio_static, found.share) == ("jax", 2.0, 4.0, 0.5)
    assert verdict(row(tessera=1.0)) is None
    assert verdict(row(jax=1.0)) is None


def test_a_slow_spell_of_the_machine_does_not_change_a_ratio() -> None:
    speeds = [1.0, 1.5, 1.0, 1.5, 1.5]
    samples = {OURS: [speed * 1.0 for speed in speeds], "jax": [speed * 1.2 for speed in speeds]}
    # The medians of the two fall into different spells; what they are of each other in a round does not.
    samples["jax"][1], samples[OURS][0] = 1.2, 1.5
    found = verdict(Row("rows", "a", 1, 1.0, "cpu", samples))
    assert found is not None
    assert found.ratio == pytest.approx(1.2)


def test_peers_with_other_rounds_are_not_judged() -> None:
    samples = {OURS: [1.0, 1.0], "numpy": [9.0], "jax": [2.0, 2.0]}
    found = verdict(Row("rows", "a", 1, 1.0, "cpu", samples))
    assert found is not None
    assert (found.peer, found.ratio) == ("jax", 2.0)


def test_short_rows_have_more_rounds() -> None:
    plan = Plan(threads=1, rounds=3, seconds=60.0, disturbance=1e9)
    found = measure(WORK, [contender("right", softmax)], plan, {}, silent)
    assert len(found.samples["right"]) == 4 * plan.rounds


def test_a_family_needs_its_mean_every_row_and_its_free_sizes() -> None:
    good = row("a", tessera=1.0, tessera_static=1.0, jax=2.0)
    assert [family.is_reached for family in summary([good])] == [True, True]
    assert not summary([good, row("b", tessera=1.0, jax=0.9)])[0].is_reached
    assert not summary([row("a", tessera=1.0, tessera_static=0.5, jax=9.0)])[0].is_reached
    assert not summary([row("a", tessera=1.0, jax=1.3)])[0].is_reached
    assert geometric_mean([2.0, 8.0, None]) == pytest.approx(4.0)
    assert geometric_mean([]) is None


def result(*rows: Row) -> Result:
    return Result(environment.describe(), {"quick": True}, rows)


def test_a_result_reads_back(tmp_path: Path) -> None:
    made = result(row(tessera=1.0, jax=2.0), row(threads=2, tessera=1.0))
    made.save(tmp_path / "deep" / "one.json")
    assert Result.load(tmp_path / "deep" / "one.json") == made
    (tmp_path / "old.json").write_text('{"schema": 0}', encoding="utf-8")
    with pytest.raises(ValueError, match="has schema 0"):
        Result.load(tmp_path / "old.json")


def test_the_chart_is_well_formed_and_has_every_row() -> None:
    rows = [row("<odd> & name", tessera=1.0, jax=100.0), row("<odd> & name", 2, tessera=1.0, jax=0.01), row("none", 2)]
    root = ElementTree.fromstring(chart.render(rows, "a <title>"))
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<odd> & name", "100.00 (jax)", "0.01 (jax)", "not run", "a <title>"} <= set(texts)
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(bar.attrib["x"]) <= float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width
        assert 0 <= float(bar.attrib["y"]) <= height


def test_the_tables_say_what_was_left_out() -> None:
    console = Console(width=200, record=True, quiet=False, file=None, force_terminal=False)
    shown = row(tessera=1e-3, tessera_static=1e-3, jax=2e-6)
    shown.skipped["torch"] = "not installed"
    with console.capture() as captured:
        tables.show(console, [shown])
    text = captured.get()
    assert "torch left out of softmax 3x5 f32 (1): not installed" in text
    assert "1 ms" in text
    assert "2 us" in text


def test_a_page_takes_results_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, result_file, latency_file = (tmp_path / name for name in ("page.md", "result.json", "latency.json"))
    page.write_text(f"before\n{publish.BEGIN}\nold\n{publish.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(publish, "PAGE", page)
    monkeypatch.setattr(publish, "CHART", tmp_path / "chart.svg")
    result(row(tessera=1e-3, tessera_static=1e-3, jax=2e-3)).save(result_file)
    latency_file.write_text('{"findings": [{"name": "a call", "seconds": 1e-6, "limit": 2e-6}]}', encoding="utf-8")
    for _ in range(2):
        done = run_command(publish, str(result_file), str(latency_file))
        assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| softmax 3x5 f32 | 1 | 1 ms | 0.0 | 2 ms | 2.00 | 2.00 |" in text
    assert "| rows | 1 | 1 | **2.00** | 1.40 | 2.00 | 1.00 | softmax 3x5 f32 | 2.00 |" in text
    assert "| a call | 1 us | 2 us |" in text
    ElementTree.parse(tmp_path / "chart.svg")
    with pytest.raises(ValueError, match="no place for results"):
        publish.page_with("nothing", [])


def test_the_page_on_performance_has_a_place_for_results() -> None:
    page = publish.PAGE.read_text(encoding="utf-8")
    assert publish.page_with(page, ["x"]) != page


def test_rows_are_chosen_by_family_name_and_haste() -> None:
    chosen = cpu.chosen_workloads(["skinny"], "4096x4096", quick=True)
    assert [work.name for work in chosen] == ["matmul 1x4096x4096 f32", "matmul 8x4096x4096 f32"]
    assert {work.family for work in cpu.chosen_workloads([], "", quick=True)} == set(TARGETS)
    names = [(work.name, work.family) for work in workloads()]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="there is no family 'gemms'"):
        cpu.chosen_workloads(["gemms"], "", quick=False)


def run_command(module: Any, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(module.main)
    return CliRunner().invoke(app, list(arguments))


def test_two_results_compare(tmp_path: Path) -> None:
    result(row("a", tessera=1.0), row("b", tessera=1.0), row("c", tessera=1.0)).save(tmp_path / "old.json")
    result(row("a", tessera=0.5), row("b", tessera=2.0), row("c", tessera=1.01)).save(tmp_path / "new.json")
    files = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    done = run_command(compare, *files)
    assert done.exit_code == 0, done.output
    assert [word for word in ("faster", "slower", "same") if word in done.output] == ["faster", "slower", "same"]
    assert "3 rows, geometric mean 0.997" in done.output
    assert run_command(compare, *files, "--least", "0.9").exit_code == 1


@pytest.mark.parametrize("module", [cpu, compare, gradients, latency, publish])
def test_every_command_has_help(module: Any) -> None:
    done = run_command(module, "--help")
    assert done.exit_code == 0
    assert "Usage" in done.output


def test_a_bad_option_is_refused() -> None:
    assert run_command(cpu, "--threads", "none").exit_code == 2
    assert run_command(cpu, "--threads", "0").exit_code == 2
    assert run_command(cpu, "--families", "gemms").exit_code == 2
    assert run_command(cpu, "--match", "no such row").exit_code == 2


def test_latency_findings_know_their_limits() -> None:
    assert latency.Finding("a", 1.0).is_reached
    assert not latency.Finding("a", 1.0, 0.5).is_reached
    assert latency.time_of(lambda: None, calls=10, repeats=3) >= 0


def slow_guards(time_of: Any) -> float:
    return 2.1e-6


def quick_guards(time_of: Any) -> float:
    return 1.9e-6


def test_rules_about_sizes_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand constraints in 100 ms, and 2 us for the guards of a call: the exit code follows what is measured."""
    monkeypatch.setattr(latency, "RESULTS", tmp_path)
    done = run_command(latency, "--only", "solver", "--name", "now")
    found = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))["findings"]
    assert [one["limit"] for one in found] == [0.1, 2e-6]
    assert found[0]["seconds"] > 0
    assert done.exit_code == any(one["seconds"] > one["limit"] for one in found), done.output
    cases = [(0.099, quick_guards, 0), (0.101, quick_guards, 1), (0.099, slow_guards, 1)]
    for seconds, guards, code in cases:
        monkeypatch.setattr(latency, "solving_time", lambda seconds=seconds: seconds)
        monkeypatch.setattr(latency, "guard_time", guards)
        assert run_command(latency, "--only", "solver", "--name", "drawn").exit_code == code


def test_the_limits_of_rules_are_recorded() -> None:
    record = json.loads((environment.ROOT / "benchmarks" / "results" / "limits.json").read_text(encoding="utf-8"))
    found = {one["name"]: (one["seconds"], one["limit"]) for one in record["findings"]}
    assert [name for name, (seconds, limit) in found.items() if seconds > limit] == []
    assert {limit for _, limit in found.values()} == {0.1, 2e-6}
    assert record["commit"]
    assert record["versions"]["python"]
