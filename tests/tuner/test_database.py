"""The tuning database: exact keys, sources, expiry, many processes at one file, and files that are damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.diagnostics.codes import TuningFileError
from tessera.runtime.cache import Store, key_of
from tessera.tuner import database as module
from tessera.tuner.database import Database, default_database
from tessera.tuner.records import SOURCES, Entry, Plan, Trial
from tests.tuner.samples import BLOCK, MATMUL, SAFE_BITS, signature, timed

OTHER = Plan.of({"contraction.block": (16, 32, 64)})
PARTS = ("op_kind", "shape_sig", "dtype", "mesh_sig", "arch", "policy_hash", "runtime")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "plans.sqlite3", profiles=False)
    yield made
    made.close()


def plan_of(database: Database) -> Plan | None:
    found = database.lookup(MATMUL)
    return None if found is None else found.plan


def test_what_is_stored_is_found_again_in_another_process(database: Database) -> None:
    trials = [timed([1.1] * 10), Trial(OTHER, reason="does not fit", predicted=12.5, memory=7)]
    assert database.lookup(MATMUL) is None
    database.store(MATMUL, BLOCK, trials)
    database.close()
    again = Database(database.path, profiles=False)
    found = again.lookup(MATMUL)
    assert found is not None
    assert (found.signature, found.plan, found.source) == (MATMUL, BLOCK, "measured")
    assert abs(found.stored - time.time()) < 60
    assert again.trials(MATMUL) == trials
    assert again.entries() == [Entry(MATMUL, BLOCK, tuple(trials), "measured", found.stored)]
    again.close()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_key_misses_when_it_changes(database: Database, part: str) -> None:
    database.store(MATMUL, BLOCK)
    assert database.lookup(signature(**{part: getattr(MATMUL, part) + "a"})) is None
    assert plan_of(database) == BLOCK


def test_sm_90_and_sm_90a_are_two_machines(database: Database) -> None:
    database.store(signature(arch="sm_90"), BLOCK)
    assert database.lookup(signature(arch="sm_90a")) is None


def test_the_safe_plan_is_an_answer_too(database: Database) -> None:
    database.store(MATMUL, Plan(), [timed([1.01] * 10)])
    assert plan_of(database) == Plan()


def test_own_measurements_come_before_imports_and_those_before_profiles(database: Database) -> None:
    for number, source in reversed(list(enumerate(SOURCES))):
        database.store(MATMUL, Plan.of({"map.tile": number}), source=source)
        found = database.lookup(MATMUL)
        assert found is not None
        assert (found.plan.overrides, found.source) == ({"map.tile": number}, source)
    database.store(MATMUL, OTHER, source="profile")
    assert plan_of(database) == Plan.of({"map.tile": 0})
    with pytest.raises(ValueError, match="`source` is one of measured, imported, profile, cost_model, got 'guessed'"):
        database.store(MATMUL, OTHER, source="guessed")


def test_a_later_plan_replaces_the_earlier_and_trials_add_up(database: Database) -> None:
    first, second = timed([1.1] * 10), timed([1.2] * 10, OTHER)
    database.store(MATMUL, BLOCK, [first])
    database.store(MATMUL, OTHER, [second, first])
    assert plan_of(database) == OTHER
    assert database.trials(MATMUL) == [first, second], "one trial is kept once"


def test_trials_of_a_signature_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", 3)
    database.store(MATMUL, BLOCK, [timed([1.0 + number / 100] * 10) for number in range(5)])
    assert [trial.samples[0] for trial in database.trials(MATMUL)] == [1000.0 / (1 + n / 100) for n in (2, 3, 4)]


def test_entries_are_removed_by_signature_age_and_versions(database: Database) -> None:
    old = Entry(signature(runtime="r0"), BLOCK, (timed([1.1] * 10),), stored=time.time() - 1000)
    foreign = Entry(signature(arch="gfx942", runtime="rocm"), BLOCK, stored=time.time())
    database.store_all([old, foreign])
    database.store(MATMUL, BLOCK, [timed([1.1] * 10)])
    assert database.expire(older_than=2000) == 0
    assert database.expire(older_than=500) == 1
    assert database.trials(old.signature) == [], "trials go with their signature"
    database.store_all([old])
    assert database.expire(other_than="r1", arch=MATMUL.arch) == 1
    assert {entry.signature for entry in database.entries()} == {MATMUL, foreign.signature}
    assert database.expire(other_than="r1") == 1
    assert database.remove(MATMUL)
    assert not database.remove(MATMUL)
    database.store_all([old, foreign])
    assert database.clear() == 2
    assert database.entries() == []


def test_neighbours_come_from_the_file(database: Database) -> None:
    near = Entry(signature(shape_sig="64x64x128"), OTHER, stored=1.0)
    database.store_all([near, Entry(signature(shape_sig="8x8x8", arch="sm_90a"), BLOCK, stored=1.0)])
    assert database.neighbours(MATMUL) == [near]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**60, {"a": 1}, b"x", object(), [[[[[1]]]]], "x" * 2000]
)
def test_what_could_not_be_read_again_is_not_stored(database: Database, value: object) -> None:
    with pytest.raises(TuningFileError, match="the plan of `matmul 64x64x64 f32 avx512 stable r1` cannot be stored"):
        database.store(MATMUL, Plan.of({"map.tile": value}))
    with pytest.raises(TuningFileError, match=r"`trials\[0\].samples\[0\]` must be more than 0, got 0.0"):
        database.store(MATMUL, BLOCK, [Trial(BLOCK, (0.0,), (1.0,))])
    assert database.entries() == []


def test_a_program_may_have_many_inputs(database: Database) -> None:
    many = signature(shape_sig=";".join(["1024x1024"] * 1000))
    database.store(many, BLOCK)
    found = database.lookup(many)
    assert found is not None
    assert found.plan == BLOCK
    assert len(str(many)) < 200
    with pytest.raises(TuningFileError, match="`shape_sig` must have 0 to 65536 characters, got 99999"):
        database.store(signature(shape_sig="8" * 99_999), BLOCK)


def test_a_database_without_a_path_lives_in_memory() -> None:
    database = Database(None, profiles=False)
    database.store(MATMUL, BLOCK)
    assert plan_of(database) == BLOCK
    assert not database.on_disk
    assert Database(None, profiles=False).lookup(MATMUL) is None


# The default file.


def test_the_default_database_is_in_the_private_folder_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    database = default_database()
    assert database is default_database()
    database.store(MATMUL, BLOCK)
    file = Path(database.path)
    assert file.parent == tmp_path / "cache" / "tuning"
    assert file.name == "plans-1.sqlite3"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    # The cache of compiled code does not take it for a file of somebody else, and does not clear it.
    store = Store(tmp_path / "cache")
    store.put(key_of("kernel"), b"code")
    assert store.clear().entries == 1
    assert plan_of(database) == BLOCK
    database.close()


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    database = Database(folder / "plans.sqlite3", profiles=False, is_private=True)
    with pytest.warns(RuntimeWarning, match=r"cannot be written \(can be written by others \(mode 777\)\)"):
        database.store(MATMUL, BLOCK)
    assert plan_of(database) == BLOCK
    assert not database.on_disk
    assert list(folder.iterdir()) == []


def test_a_file_that_can_only_be_read_is_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.store(MATMUL, BLOCK, [timed([1.1] * 10)])
    database.close()

    def refuse(path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(module, "open_lock", refuse)
    reader = Database(database.path, profiles=False)
    with pytest.warns(RuntimeWarning, match=r"Permission denied\); plans are kept for this process alone"):
        assert plan_of(reader) == BLOCK
    reader.store(signature(dtype="bf16"), OTHER)
    assert len(reader.entries()) == 2
    assert len(reader.trials(MATMUL)) == 1


# Many at one file.

WRITER = """
import sys
from dataclasses import replace
sys.path.insert(0, sys.argv[3])
from tessera.tuner.database import Database
from tests.tuner.samples import BLOCK, MATMUL, timed
writer, database = int(sys.argv[1]), Database(sys.argv[2], profiles=False)
for number in range(6):
    own = replace(MATMUL, op_kind=f"op{writer}", shape_sig=f"{number}x64")
    database.store(own, BLOCK, [timed([1.1 + number / 100] * 10)])
    database.store(MATMUL, BLOCK, [timed([2 + writer + number / 100] * 10)])
    assert database.lookup(own).plan == BLOCK
"""


def test_32_processes_lose_nothing(tmp_path: Path) -> None:
    path, root = str(tmp_path / "plans.sqlite3"), str(Path(__file__).parents[2])
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(writer), path, root], stderr=subprocess.PIPE)
        for writer in range(32)
    ]
    errors = [process.communicate(timeout=300)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 32, "\n".join(errors)
    database = Database(path, profiles=False)
    found = {(entry.signature.op_kind, entry.signature.shape_sig) for entry in database.entries()}
    assert len(found) == 32 * 6 + 1
    assert len(database.trials(MATMUL)) == 32 * 6
    assert sorted(os.listdir(tmp_path)) == ["plans.sqlite3", "plans.sqlite3.lock"]
    database.close()


def test_threads_share_one_object(database: Database) -> None:
    def write(worker: int) -> None:
        for number in range(10):
            database.store(signature(op_kind=f"op{worker}", shape_sig=str(number)), BLOCK)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database.entries()) == 80


def test_a_child_process_opens_the_file_for_itself(database: Database) -> None:
    database.store(MATMUL, BLOCK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads: the child ends without them
        child = os.fork()
    if child == 0:
        status = 1
        try:
            database.store(signature(dtype="bf16"), OTHER)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(database.entries()) == 2


def test_whoever_has_the_file_open_sees_a_new_one_under_its_path(database: Database) -> None:
    database.store(MATMUL, BLOCK)
    os.unlink(database.path)
    assert plan_of(database) is None
    database.store(MATMUL, OTHER)
    other = Database(database.path, profiles=False)
    assert plan_of(other) == OTHER
    other.close()


def test_a_lock_that_is_never_released_is_not_waited_for_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.store(MATMUL, BLOCK)
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX);"
         " print('locked', flush=True); sys.stdin.read()", database.path + ".lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.warns(RuntimeWarning, match="another process has locked it"):
        database.store(MATMUL, OTHER)
    assert plan_of(database) == OTHER
    holder.communicate(b"")


# Damage.


def damaged_files(path: str) -> list[str]:
    return sorted(name for name in os.listdir(os.path.dirname(path)) if ".damaged-" in name)


@pytest.mark.parametrize("damage", ["text", "header", "middle", "short", "tables"])
def test_a_damaged_file_is_moved_aside_with_one_warning(database: Database, damage: str) -> None:
    for number in range(40):
        database.store(signature(shape_sig=str(number)), BLOCK, [timed([1.1] * 10)])
    database.store(MATMUL, BLOCK)
    database.close()
    data = bytearray(Path(database.path).read_bytes())
    size = len(data)
    if damage == "text":
        data = bytearray(b"these are not plans\n")
    elif damage == "header":
        data[:16] = b"SQLite format 9\0"
    elif damage == "middle":
        data[4096 : size // 2] = os.urandom(size // 2 - 4096)
    elif damage == "short":
        data = data[: size // 2]
    if damage == "tables":
        with sqlite3.connect(database.path) as connection:
            connection.execute("DROP TABLE trials")
        connection.close()
        data = bytearray(Path(database.path).read_bytes())
    Path(database.path).write_bytes(data)
    with pytest.warns(RuntimeWarning, match="is damaged .*; it was moved to .*, and a new one is begun") as caught:
        assert plan_of(database) is None
    assert len(caught) == 1
    assert len(damaged_files(database.path)) == 1
    kept = Path(database.path).parent / damaged_files(database.path)[0]
    assert kept.read_bytes() == bytes(data), "nothing of it is lost"
    database.store(MATMUL, OTHER)
    assert plan_of(database) == OTHER
    other = Database(database.path, profiles=False)
    assert plan_of(other) == OTHER
    other.close()


def test_damage_is_found_while_the_file_is_open(database: Database) -> None:
    for number in range(200):
        database.store(signature(shape_sig=str(number)), BLOCK, [timed([1.1] * 10)])
    size = os.path.getsize(database.path)
    with open(database.path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
        file.seek(24)
        file.write(os.urandom(4))  # the counter of changes, by which SQLite knows that its pages are old
    with pytest.warns(RuntimeWarning, match="is damaged"):
        database.store(MATMUL, OTHER)
    assert plan_of(database) == OTHER
    assert len(damaged_files(database.path)) == 1


def test_processes_that_find_one_damaged_file_move_it_once(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite3"
    path.write_bytes(b"these are not plans\n")
    program = (
        "import sys, warnings; sys.path.insert(0, sys.argv[2]); warnings.simplefilter('ignore');"
        "from tessera.tuner.database import Database; from tests.tuner.samples import BLOCK, signature;"
        "Database(sys.argv[1], profiles=False).store(signature(op_kind=sys.argv[3]), BLOCK)"
    )
    root = str(Path(__file__).parents[2])
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), root, f"op{number}"]) for number in range(8)]
    assert [process.wait(timeout=120) for process in running] == [0] * 8
    database = Database(path, profiles=False)
    assert len(database.entries()) == 8
    assert len(damaged_files(str(path))) == 1
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE plans SET plan = replace(plan, '32', '33')",
        "UPDATE plans SET plan = '{\"map.tile\": 1}'",
        "UPDATE plans SET plan = 7",
        "UPDATE plans SET stored = 'yesterday'",
        "UPDATE plans SET source = x'ff00'",
        "UPDATE plans SET plan = CAST(x'ff22' AS TEXT)",
    ],
)
def test_a_row_that_changed_is_a_miss_and_never_another_plan(database: Database, change: str) -> None:
    module._warned_rows.clear()  # pyright: ignore[reportPrivateUsage]
    database.store(MATMUL, BLOCK, [timed([1.1] * 10)])
    with sqlite3.connect(database.path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.warns(RuntimeWarning, match="has damaged rows, which are not used: the plan of `matmul"):
        assert plan_of(database) is None
    assert database.entries() == [], "and no second warning"
    database.store(MATMUL, OTHER)
    assert plan_of(database) == OTHER


def test_rows_of_trials_and_signatures_are_checked_too(database: Database) -> None:
    database.store(MATMUL, BLOCK, [timed([1.1] * 10), timed([1.2] * 10)])
    database.store(signature(dtype="bf16"), BLOCK)
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE trials SET trial = replace(trial, '1000.0', '9.0') WHERE id = 1")
        connection.execute("UPDATE signatures SET dtype = 'f64' WHERE dtype = 'bf16'")
        connection.execute("UPDATE signatures SET mesh_sig = x'00' WHERE dtype = 'f32' AND 0")
    connection.close()
    module._warned_rows.clear()  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(RuntimeWarning, match="has damaged rows"):
        assert database.trials(MATMUL) == [timed([1.2] * 10)]
    assert database.lookup(signature(dtype="f64")) is None, "its plan was stored for another signature"
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE signatures SET mesh_sig = x'00' WHERE dtype = 'f32'")
    connection.close()
    assert database.entries() == []


def test_a_row_that_somebody_wrote_with_a_right_digest_is_checked_by_the_schema(database: Database) -> None:
    database.store(MATMUL, BLOCK)
    text = '{"map.tile": {"__reduce__": "os.system"}}'
    digest = module._digest(*MATMUL.parts, "measured", text, repr(5.0))  # pyright: ignore[reportPrivateUsage]
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE plans SET plan = ?, stored = 5.0, digest = ?", (text, digest))
    connection.close()
    module._warned_rows.clear()  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(RuntimeWarning, match="`map.tile` must be boolean or null or number or string or array"):
        assert plan_of(database) is None


def test_an_intact_file_of_another_program_or_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(TuningFileError, match="is a database of another program"):
        Database(path).lookup(MATMUL)
    assert path.read_bytes() == before
    newer = Database(tmp_path / "newer.sqlite3", profiles=False)
    newer.store(MATMUL, BLOCK)
    newer.close()
    with sqlite3.connect(newer.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(TuningFileError, match="has tables of version 99, and this Tessera has 1"):
        Database(newer.path).store(MATMUL, BLOCK)
    assert damaged_files(newer.path) == []


def test_a_writer_that_is_killed_leaves_the_file_intact(database: Database) -> None:
    database.store(MATMUL, BLOCK)
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[2]);"
        "from tessera.tuner import database as module; from tests.tuner.samples import MATMUL, signature;"
        "from tessera.tuner.records import Plan;"
        "write = module._write_entry;"
        "module._write_entry = lambda *given: (write(*given), os.kill(os.getpid(), 9));"
        "module.Database(sys.argv[1], profiles=False).store(MATMUL, Plan())"
    )
    root = str(Path(__file__).parents[2])
    killed = subprocess.run([sys.executable, "-c", program, database.path, root], check=False)
    assert killed.returncode == -9
    assert plan_of(database) == BLOCK
    assert SAFE_BITS
    assert damaged_files(database.path) == []


def test_trials_without_a_verdict_are_kept_and_found_by_nobody_who_asks_for_a_plan() -> None:
    database = Database(None, profiles=False)
    database.store_trials(MATMUL, [timed([1.2] * 10)])
    assert database.lookup(MATMUL) is None
    assert database.entries() == []
    assert database.neighbours(MATMUL) == []
    assert database.trials(MATMUL) == [timed([1.2] * 10)]
    database.store(MATMUL, BLOCK)
    assert database.entries()[0].trials == (timed([1.2] * 10),)
