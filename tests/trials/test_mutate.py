"""The mutation run: what it makes of a line, that a copy kills and keeps as its tests say, and what was recorded."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import mutate, reach
from tessera.types import dtype, promotion

SOURCE = '''"""A module."""

def f(a: int, b: int) -> bool:
    """A text with 1 < 2."""
    if a < b and b != 3:
        return check(a, b + 1)
    assert a > 0
    raise ValueError(f"{a} > {b}")

def draw(rng: Generator) -> Sequence[Array]:
    return [rng.normal(3 + 4)]

def rows(n: int) -> Make:
    return [n + 1]

def spec() -> OpSpec:
    return OpSpec(samples=over(3 + 4, 5))
'''


def test_mutants_are_single_lines_of_code_and_of_nothing_else() -> None:
    found = list(mutate.mutants_of("m.py", SOURCE))
    assert {(one.line, one.kind) for one in found} == {
        (5, "comparison"),
        (5, "conjunct"),
        (5, "condition"),
        (5, "number"),
        (6, "arguments"),
        (6, "arithmetic"),
        (6, "number"),
    }
    assert {one.after for one in found if one.line == 5} == {
        "if a <= b and b != 3:",
        "if a < b and b == 3:",
        "if a < b:",
        "if b != 3:",
        "if not (a < b and b != 3):",
        "if a < b and b != 4:",
    }
    for one in found:
        lines = zip(one.source(SOURCE).splitlines(), SOURCE.splitlines(), strict=True)
        differing = [number for number, (new, old) in enumerate(lines, 1) if new != old]
        assert differing == [one.line]


def test_what_is_drawn_is_the_same_for_a_seed_and_of_every_module() -> None:
    first, again, other = (mutate.draw(200, seed) for seed in (1, 1, 2))
    assert [one for one, _ in first] == [one for one, _ in again] != [one for one, _ in other]
    assert len({one.path for one, _ in first}) >= 40
    for _, tests in first:
        assert all(map(_is_there, tests))


def test_every_neighbourhood_is_there() -> None:
    for pattern, tests in mutate.NEIGHBOURHOODS.items():
        assert list(mutate.ROOT.glob(pattern)), pattern
        assert [test for test in tests.split() if not _is_there(test)] == [], pattern


def test_reasons_are_of_mutants_that_there_are() -> None:
    keys = {one.key for one, _ in mutate.draw(sys.maxsize, 0)}
    assert [key for key in mutate.EQUIVALENT if key not in keys] == []
    for before, after, is_one in (
        ("if coefficient > 0:", "if coefficient >= 0:", True),
        ("if coefficient < 0:", "if coefficient < 1:", True),
        ("if coefficient > 0:", "if coefficient > 1:", False),
        ("if coefficient > 0:", "if coefficient < 0:", False),
        ("if coefficient <= 0:", "if coefficient <= 1:", False),
    ):
        assert bool(mutate.Mutant("m.py", 1, "comparison", before, after, after).reason) is is_one, after


def _is_there(test: str) -> bool:
    """Whether a path is one, and a test that it names is in its file."""
    path, _, name = test.partition("::")
    file = mutate.ROOT / path
    return file.exists() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))


def test_survivors_are_tried_again_of_the_modules_that_are_asked_for(tmp_path: Path) -> None:
    drawn = mutate.draw(3, 1, "types/promotion") + mutate.draw(3, 1, "types/shape")
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"survivors": [{**vars(one)} for one, _ in drawn]}))
    everything, some = mutate.survivors_of(record), mutate.survivors_of(record, "types/shape")
    assert {one.path for one, _ in everything} == {"tessera/types/promotion.py", "tessera/types/shape.py"}
    assert {one for one, _ in some} == {one for one, _ in everything if "shape" in one.path}


def test_the_tests_that_reach_a_line_come_first(tmp_path: Path) -> None:
    path, (around, *_) = "tessera/types/promotion.py", mutate.modules("types/promotion").values()
    mutants = list(mutate.mutants_of(path, (mutate.ROOT / path).read_text(encoding="utf-8")))
    reached, other = mutants[0], next(one for one in mutants if one.line > mutants[0].line + mutate.STATEMENT_LINES)
    file = tmp_path / "map.gz"
    seen = [(0.2, "tests/a.py::slow"), (0.1, "tests/a.py::quick[1]"), (0.1, "tests/a.py::quick[2]")]
    reach.write_map(file, {f"{path}: {reached.before}": [*seen, *seen]})
    (_, first), (_, second) = mutate.add_reaching([(reached, around), (other, around)], file)
    assert first == ["tests/a.py::quick[1]", "tests/a.py::quick[2]", "tests/a.py::slow", *around]
    assert second == around


def test_of_the_tests_that_reach_a_line_few_of_each_are_kept() -> None:
    cases = [
        (0.5, f"tests/f{file}.py::test{function}[{case}]") for file in "ab" for function in "xyzuv" for case in "12345"
    ]
    chosen = reach.choose([*cases, (60.0, "tests/c.py::hours"), (0.0, "tests/c.py::test")])
    assert chosen[0] == "tests/c.py::test"
    assert len(chosen) == 1 + 2 * reach.OF_FILE
    assert max(Counter(one.partition("[")[0] for one in chosen).values()) == reach.OF_FUNCTION


def test_lines_are_seen_while_a_test_runs() -> None:
    watch, traced = reach.Watch(), sys.gettrace()
    for test, error in (("one", None), ("two", ValueError)):
        run = watch.run(test)
        next(run)
        assert promotion.holds(dtype.f32, dtype.bf16)
        with pytest.raises(StopIteration):
            run.send(SimpleNamespace(excinfo=error))
    sys.settrace(traced)
    assert {line.partition(": ")[0] for line in watch.reached} == {"tessera/types/promotion.py"}
    assert {test for tests in watch.reached.values() for _, test in tests} == {"one"}


def test_what_no_program_can_tell_is_drawn() -> None:
    keys = {mutant.key for mutant, _ in mutate.draw(sys.maxsize, 0)}
    assert [key for key in mutate.EQUIVALENT if key not in keys] == []


@pytest.mark.slow
def test_a_mutant_is_killed_in_a_copy_and_the_tree_is_left_alone() -> None:
    laboratory, other = mutate.Laboratory(180), mutate.Laboratory(180)
    try:
        path, tests = "tessera/types/promotion.py", ["tests/types/test_promotion.py"]
        source = (mutate.ROOT / path).read_text()
        killed = next(one for one in mutate.mutants_of(path, source) if one.kind == "condition")
        assert laboratory.run(tests) == "passed"
        assert laboratory.run(tests, killed) in ("failed", "broken")
        assert laboratory.run(tests) == "passed"
        assert (mutate.ROOT / path).read_text() == source
        found = list(mutate.run_trials([laboratory, other], [(killed, tests)] * 3))
        assert [(one, result in ("failed", "broken")) for one, result in found] == [(killed, True)] * 3
    finally:
        laboratory.close()
        other.close()
    assert not laboratory.folder.exists()


def test_the_record_lists_every_survivor() -> None:
    record = json.loads((mutate.ROOT / "benchmarks" / "results" / "mutants.json").read_text(encoding="utf-8"))
    assert record["mutants"] == sum(record["results"].values())
    assert record["results"]["passed"] == len(record["survivors"]) + len(record["equivalent"])
    counted = record["mutants"] - len(record["equivalent"])
    assert record["rate"] == round((counted - len(record["survivors"])) / counted, 4)
    assert all(one["reason"] for one in record["equivalent"])
    for one in (*record["survivors"], *record["equivalent"]):
        assert Path(mutate.ROOT, one["path"]).is_file()
