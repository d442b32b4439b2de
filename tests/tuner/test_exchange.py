"""Files of plans: what is exported is found again after an import, and what is wrong in a file is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import TuningFileError
from tessera.tuner import entry_format, exchange
from tessera.tuner.database import Database
from tessera.tuner.entry_format import check_schema, entries_from_text, entries_to_text
from tessera.tuner.exchange import export_database, import_database, json_schema, read_entries, write_entries
from tessera.tuner.records import SOURCES, Entry, Plan, Signature, Trial
from tests.tuner.samples import BLOCK, MATMUL, signature, timed

LINES = st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs")), max_size=8)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), LINES, st.none())
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=4), st.lists(st.lists(SCALARS, max_size=2), max_size=2))
WORDS = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=12)
PLANS = st.dictionaries(WORDS.filter(bool), VALUES, max_size=4).map(Plan.of)
TIMES = st.floats(1e-3, 1e12)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    rounds = draw(st.lists(st.tuples(TIMES, TIMES), max_size=4))
    return Trial(
        draw(PLANS),
        tuple(own for own, _ in rounds),
        tuple(safe for _, safe in rounds),
        predicted=draw(st.none() | TIMES),
        bits=draw(WORDS),
        reason=draw(LINES),
        memory=draw(st.none() | st.integers(0, 2**53)),
        readings=tuple(sorted(draw(st.dictionaries(WORDS.filter(bool), st.none() | TIMES, max_size=2)).items())),
    )


ENTRIES = st.builds(
    Entry,
    st.builds(Signature, WORDS.filter(bool), *[WORDS] * 6),
    PLANS,
    st.lists(trials(), max_size=2).map(tuple),
    st.sampled_from(SOURCES),
    st.floats(0, 4e9),
)


@given(st.lists(ENTRIES, max_size=3, unique_by=lambda entry: entry.signature))
def test_reading_gives_what_was_written(entries: list[Entry]) -> None:
    text = entries_to_text(entries)
    check_schema(json.loads(text), json_schema())
    assert entries_from_text(text, "plans.json") == entries


def test_export_wipe_import_finds_the_same_plans(tmp_path: Path) -> None:
    database = Database(tmp_path / "plans.sqlite3", profiles=False)
    names = [signature(shape_sig=f"{size}x64x64") for size in (8, 16, 32)]
    for number, name in enumerate(names):
        database.store(
            name, Plan.of({"map.tile": number}), [timed([1.1 + number / 10] * 10), Trial(BLOCK, reason="no")]
        )
    database.store(MATMUL, Plan(), [timed([1.01] * 10)])
    before = [(entry.signature, entry.plan, entry.trials, entry.stored) for entry in database.entries()]
    assert export_database(database, tmp_path / "plans.json") == 4
    assert database.clear() == 4
    assert database.lookup(MATMUL) is None
    assert import_database(database, tmp_path / "plans.json").entries == 4
    assert [(entry.signature, entry.plan, entry.trials, entry.stored) for entry in database.entries()] == before
    found = [database.lookup(name) for name in names]
    assert [(one.plan.overrides, one.source) for one in found if one] == [
        ({"map.tile": n}, "imported") for n in range(3)
    ]
    export_database(database, tmp_path / "again.json")
    again = (tmp_path / "again.json").read_text().replace('"imported"', '"measured"')
    assert again == (tmp_path / "plans.json").read_text(), "a file is the same each time that it is written"
    import_database(database, tmp_path / "plans.json")
    assert [entry.trials for entry in database.entries()] == [trials for _, _, trials, _ in before]
    database.close()


def test_machines_of_three_vendors_are_in_one_file_and_foreign_ones_are_never_chosen(tmp_path: Path) -> None:
    database = Database(None, profiles=False)
    archs = {"avx512": 1, "sm_90a": 2, "gfx942": 3}
    for arch, tile in archs.items():
        database.store(signature(arch=arch), Plan.of({"map.tile": tile}))
    path = tmp_path / "plans.json"
    export_database(database, path)
    check_schema(json.loads(path.read_text()), json_schema())
    here = Database(None, profiles=False)
    here.store(signature(arch="avx512", shape_sig="8x8x8"), BLOCK)
    imported = import_database(here, path)
    assert imported.by_arch == {"avx512": 1, "gfx942": 1, "sm_90a": 1}
    assert imported.foreign("avx512") == 2
    found = here.lookup(signature(arch="avx512"))
    assert found is not None
    assert found.plan.overrides == {"map.tile": 1}
    assert here.lookup(signature(arch="avx2")) is None
    assert here.neighbours(signature(arch="avx2")) == []
    assert {entry.signature.arch for entry in here.neighbours(signature(arch="avx512"), 9)} == {"avx512"}
    assert export_database(here, tmp_path / "amd.json", arch="gfx942") == 1, "they are kept, and passed on"


def test_a_reason_is_kept_as_one_line_that_a_terminal_shows(tmp_path: Path) -> None:
    written = Trial(BLOCK, reason="crashed: \x1b[31mno\nmemory\udcff")
    write_entries(tmp_path / "plans.json", [Entry(MATMUL, BLOCK, (written,))])
    (entry,) = read_entries(tmp_path / "plans.json")
    assert entry.trials[0].reason == "crashed:  [31mno memory "


def test_an_import_does_not_replace_what_was_measured_here(tmp_path: Path) -> None:
    write_entries(tmp_path / "plans.json", [Entry(MATMUL, Plan.of({"map.tile": 1}))])
    database = Database(None, profiles=False)
    database.store(MATMUL, BLOCK)
    import_database(database, tmp_path / "plans.json")
    found = database.lookup(MATMUL)
    assert found is not None
    assert (found.plan, found.source) == (BLOCK, "measured")


def file_of(**changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "op_kind": "matmul",
        "shape_sig": "8x8",
        "dtype": "f32",
        "arch": "sm_90a",
        "plan": {},
        **changes,
    }
    first: dict[str, Any] = {"op_kind": "first", "shape_sig": "8x8", "dtype": "f32", "arch": "sm_90a", "plan": {}}
    return {"format": "tessera-tuning", "version": 1, "entries": [first, entry]}


def trial_of(**changes: Any) -> dict[str, Any]:
    return file_of(trials=[{"plan": {}}, {"plan": {}, **changes}])


WRONG: list[tuple[Any, str]] = [
    ([], "plans.json: it must be object, got an array"),
    ({"format": "tvm", "version": 1, "entries": []}, '`format` must be "tessera-tuning", got "tvm"'),
    ({"format": "tessera-tuning", "version": 2, "entries": []}, "`version` must be 1, got 2"),
    ({"format": "tessera-tuning", "version": True, "entries": []}, "`version` must be 1, got true"),
    ({"format": "tessera-tuning", "version": 1}, "`entries` is missing"),
    ({**file_of(), "author": "me"}, "`author` is no field of it; it has format, version, entries"),
    ({**file_of(), "entries": [7]}, "entry 0: it must be object, got 7"),
    ({**file_of(), "entries": [{}]}, "entry 0: `dtype` is missing"),
    (file_of(dtype=7), "entry 1 (matmul 8x8 sm_90a): `dtype` must be string, got 7"),
    (file_of(op_kind=""), "`op_kind` must have 1 to 1024 characters, got 0"),
    (file_of(arch="a" * 1025), "`arch` must have 0 to 1024 characters, got 1025"),
    (file_of(arch="\x1b[31m"), "`arch` must not have control characters"),
    (file_of(shape_sig="8x8\n"), r'`shape_sig` must not have control characters, got "8x8\n"'),
    (file_of(op_kind="\ud800"), r'`op_kind` must not have control characters, got "\ud800"'),
    (file_of(dtype="f32\u202e61fb"), "`dtype` must not have control characters"),
    (file_of(policy_hash="\x9b31m"), "`policy_hash` must not have control characters"),
    (file_of(plan={"a\x1b[2J": 1}), r"`plan.a\u001b[2J` must not have control characters"),
    (file_of(plan={"a": ["\x1b[2J"]}), "`plan.a[0]` must not have control characters"),
    (file_of(**{"\x1b[2J": 1}), r"`\u001b[2J` is no field of it"),
    (trial_of(reason="\x1b[2J"), "`trials[1].reason` must not have control characters"),
    (file_of(source="oracle"), '`source` must be one of measured, imported, profile, cost_model, got "oracle"'),
    (file_of(stored=-1), "`stored` must be at least 0, got -1"),
    (file_of(code="import os"), "`code` is no field of it"),
    (file_of(plan=[1]), "`plan` must be object, got an array"),
    (file_of(plan={"map.tile": {"a": 1}}), "`plan.map.tile` must be boolean or null or number or string or array"),
    (file_of(plan={"map.tile": [1, [2, [3, [4]]]]}), "`plan.map.tile[1][1][1]` must be boolean or null or number"),
    (file_of(plan={"map.tile": [0] * 65}), "`plan.map.tile` must have at most 64 items, got 65"),
    (file_of(plan={"map.tile": 2**53 + 1}), "`plan.map.tile` must be at most 9.0072e+15, got 9007199254740993"),
    (file_of(plan={"": 1}), "must have 1 to 1024 characters, got 0"),
    (file_of(plan={str(n): n for n in range(4097)}), "`plan` must have at most 4096 fields, got 4097"),
    (file_of(trials=[{"plan": {}}] * 4097), "`trials` must have at most 4096 items, got 4097"),
    (trial_of(samples=[1.0, -2.0]), "entry 1 (matmul 8x8 f32 sm_90a): `trials[1].samples[1]` must be more than 0"),
    (trial_of(samples=[1e16]), "`trials[1].samples[0]` must be at most 1e+15, got 1e+16"),
    (trial_of(samples=["1"]), '`trials[1].samples[0]` must be number, got "1"'),
    (trial_of(samples=[True]), "`trials[1].samples[0]` must be number, got true"),
    (trial_of(samples=[1.0], baseline=[1.0, 2.0]), "`trials[1].baseline` must have 1 items as `samples`, got 2"),
    (trial_of(memory=1.5), "`trials[1].memory` must be integer or null, got 1.5"),
    (trial_of(readings={"power": "412"}), '`trials[1].readings.power` must be number or null, got "412"'),
    (trial_of(time=3), "`trials[1].time` is no field of it; it has plan, samples, baseline"),
    (file_of(op_kind="first"), "entry 1 (first 8x8 f32 sm_90a): it has the signature of entry 0"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named_with_its_entry_and_field(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text(json.dumps(content))
    database = Database(None, profiles=False)
    with pytest.raises(TuningFileError, match=re.escape(message)) as caught:
        import_database(database, path)
    assert caught.value.message.startswith(str(path))
    assert caught.value.message.isprintable()
    assert caught.value.fix is not None
    assert database.entries() == [], "a file is taken as a whole or not at all"


TEXTS: list[tuple[bytes, str]] = [
    (b"", "it is not JSON"),
    (b"\xff\xfe", "it is not JSON"),
    (b"{'a': 1}", "it is not JSON"),
    (b"[" * 200_000, "it is not JSON"),
    (b'{"version": NaN}', "it has NaN, which is no number of JSON"),
    (b'{"version": 1e999}', "it has the number 1e999, which is too large"),
    (b'{"version": ' + b"9" * 5000 + b"}", "it is not JSON"),
    (b'{"version": 1, "version": 2}', "it has the name `version` twice in one object"),
    (b'{"\\u001b[2J": 1, "\\u001b[2J": 2}', r"it has the name `\u001b[2J` twice in one object"),
    (b'__import__("os").system("true")', "it is not JSON"),
    (b"cos\nsystem\n(S'true'\ntR.", "it is not JSON"),
]


@pytest.mark.parametrize(("data", "message"), TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_json_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_bytes(data)
    with pytest.raises(TuningFileError, match=re.escape(message)):
        read_entries(path)


def test_files_and_exports_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plans.json"
    write_entries(path, [Entry(MATMUL, BLOCK)])
    monkeypatch.setattr(exchange, "MOST_BYTES", 100)
    with pytest.raises(TuningFileError, match=r"would have \d+ bytes, and at most 100 are read"):
        write_entries(path, [Entry(MATMUL, BLOCK)])
    monkeypatch.setattr(entry_format.parse_json, "__defaults__", (100,))
    with pytest.raises(TuningFileError, match="it has 101 bytes, and at most 100 are read"):
        read_entries(path)


def test_files_that_are_not_there_are_errors_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(TuningFileError, match=r"none.json cannot be read: No such file or directory"):
        read_entries(tmp_path / "none.json")
    with pytest.raises(TuningFileError, match=r"plans.json cannot be written: No such file or directory"):
        write_entries(tmp_path / "none" / "plans.json", [])


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)))
def test_anything_else_that_is_json_is_refused_or_read(value: Any) -> None:
    for content in (value, {"format": "tessera-tuning", "version": 1, "entries": value}, file_of(plan=value)):
        try:
            entries_from_text(json.dumps(content), "plans.json")
        except TuningFileError:
            continue
        assert isinstance(content, dict)


def test_every_field_of_the_format_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "tuning-files.md").read_text(encoding="utf-8")
    fields: Callable[[Any], set[str]] = lambda schema: set(schema["properties"])  # noqa: E731
    schema = json_schema()
    entry = schema["properties"]["entries"]["items"]
    trial = entry["properties"]["trials"]["items"]
    for name in fields(schema) | fields(entry) | fields(trial):
        assert f"| `{name}` |" in page, name
