"""The store of compiled code: what comes back is what went in, whoever else is writing, or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest

from tessera.diagnostics.codes import CacheError
from tessera.runtime.cache import Store, Usage, key_of

ROOT = Path(__file__).parents[2]

KEY = key_of("a")


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "CACHEDIR.TAG"]


def test_what_was_put_comes_back_in_another_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.get(KEY) is None
    store.put(KEY, b"bytes")
    assert store.get(KEY) == Store(tmp_path).get(KEY) == b"bytes"
    assert (store.hits, store.misses) == (1, 1)
    store.remove(KEY)
    store.remove(KEY)
    assert store.get(KEY) is None


def test_empty_bytes_are_not_a_miss(tmp_path: Path) -> None:
    Store(tmp_path).put(KEY, b"")
    assert Store(tmp_path).get(KEY) == b""


def test_keys_keep_parts_apart() -> None:
    assert key_of("ab", "c") != key_of("a", "bc") != key_of("abc")
    assert key_of("a") == key_of(b"a")


def test_a_key_that_could_be_a_path_is_refused(tmp_path: Path) -> None:
    for key in ("../../etc/passwd", "", "ABCDEF0123", "a"):
        with pytest.raises(CacheError, match="not a cache key"):
            Store(tmp_path).get(key)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_entry_is_a_miss_and_is_removed(tmp_path: Path, damage: str) -> None:
    Store(tmp_path).put(KEY, b"x" * 100)
    (path,) = entries(tmp_path)
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-1], "flip": data[:-1] + b"y", "empty": b""}[damage])
    store = Store(tmp_path)
    assert store.get(KEY) is None
    assert entries(tmp_path) == []
    store.put(KEY, b"again")
    assert store.get(KEY) == b"again"


def test_the_longest_unused_entries_leave_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=10_000)
    keys = [key_of(str(number)) for number in range(9)]
    for age, key in enumerate(keys):
        store.put(key, bytes(1000))
        past = time.time() - 1000 + age
        os.utime(tmp_path / key[:2] / f"{key}.entry", (past, past))
    assert store.get(keys[0]) is not None
    store.put(key_of("one more"), bytes(1000))
    left = [key for key in keys if store.get(key) is not None]
    assert keys[0] in left
    assert keys[1] not in left
    assert keys[8] in left
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 10_000


def test_halves_of_dead_writers_are_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, b"x")
    half = tmp_path / KEY[:2] / f".{KEY}.123.0a1b2c3d"
    half.write_bytes(b"x")
    os.utime(half, (0, 0))
    Store(tmp_path).put(key_of("b"), b"y")
    assert not half.exists()


def test_an_unwritable_folder_means_memory_and_one_warning(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    store = Store(blocker / "cache")
    with pytest.warns(RuntimeWarning, match="cannot be used .* set TESSERA_CACHE_DIR"):
        store.put(KEY, b"bytes")
    assert not store.on_disk
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(key_of("b"), b"more")
    assert (store.get(KEY), store.get(key_of("b"))) == (b"bytes", b"more")
    store.remove(KEY)
    assert store.get(KEY) is None


def test_a_full_disk_means_memory_and_leaves_no_half_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.put(KEY, b"bytes")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tessera.runtime.private_files.os.replace", refuse)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        store.put(key_of("b"), b"more")
    assert (store.get(KEY), store.get(key_of("b"))) == (b"bytes", b"more")
    assert [path.suffix for path in entries(tmp_path)] == [".entry"]


def test_a_folder_that_is_removed_meanwhile_is_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, replace = tmp_path / "cache", os.replace
    removed: list[str] = []

    def remove_first(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if not removed:
            removed.append(target)
            shutil.rmtree(folder)
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr("tessera.runtime.private_files.os.replace", remove_first)
    store = Store(folder)
    store.put(KEY, b"bytes")
    assert removed
    assert store.on_disk
    assert Store(folder).get(KEY) == b"bytes"


def test_usage_counts_entries_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.usage() == Usage(0, 0, None)
    store.put(KEY, bytes(100))
    store.put(key_of("b"), bytes(50))
    (tmp_path / KEY[:2] / ".half").write_bytes(b"x")
    os.utime(tmp_path / KEY[:2] / f"{KEY}.entry", (5, 5))
    assert store.usage() == Usage(2, 214, 5.0)


def test_a_folder_of_another_process_that_grows_too_large_shrinks(tmp_path: Path) -> None:
    # Each store is a process: none of them alone writes more than the limit.
    for number in range(60):
        Store(tmp_path, limit=20_000).put(key_of(str(number)), bytes(1000))
        assert Store(tmp_path).usage().bytes <= 20_000
    assert Store(tmp_path).usage().bytes > 10_000


def test_a_folder_that_can_only_be_read_still_gives_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).put(KEY, b"bytes")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tessera.runtime.private_files.os.utime", refuse)
    monkeypatch.setattr("tessera.runtime.private_files.os.mkdir", refuse)
    store = Store(tmp_path)
    assert store.get(KEY) == b"bytes"
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        store.put(key_of("b"), b"more")
    assert store.get(KEY) == b"bytes"
    assert store.get(key_of("b")) == b"more"


# Processes start together, and each writes, reads and damages the same few keys under a limit that keeps evicting.
CONTENDER = """
    import random, sys, time
    from pathlib import Path
    from tessera.runtime.cache import Store, Usage, key_of

    folder, number, start = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    time.sleep(max(0.0, start - time.time()))
    choose = random.Random(number)
    store = Store(folder, limit=60_000)
    for iteration in range(40):
        name = str(choose.randrange(12))
        expected = (name * 5000).encode()[:5000]
        found = store.get(key_of(name))
        assert found is None or found == expected, f"{len(found)} bytes that nobody wrote"
        if found is None:
            store.put(key_of(name), expected)
        if choose.random() < 0.05:
            path = folder / key_of(name)[:2] / (key_of(name) + ".entry")
            try:
                path.write_bytes(b"torn")
            except OSError:
                pass
    assert store.on_disk
"""


def test_32_processes_share_one_folder(tmp_path: Path) -> None:
    start = str(time.time() + 1.5)
    program = textwrap.dedent(CONTENDER)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(n), start], stderr=subprocess.PIPE, cwd=ROOT
        )
        for n in range(32)
    ]
    errors = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert [error for error in errors if error] == []
    assert [process.returncode for process in processes] == [0] * 32
    assert all(path.suffix == ".entry" for path in entries(tmp_path))


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    Store(tmp_path).put(KEY, b"bytes")
    mine = tmp_path / KEY[:2] / "thesis.tex"
    mine.write_text("years of work")
    os.utime(mine, (0, 0))
    target = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    target.mkdir()
    (target / f"{KEY}.entry").write_bytes(b"not ours")
    assert KEY[:2] != "0f"
    (tmp_path / "0f").symlink_to(target)
    with pytest.raises(CacheError, match="holds files that are not Tessera's: 0f"):
        Store(tmp_path).put(key_of("b"), b"y")
    (tmp_path / "0f").unlink()
    store = Store(tmp_path, limit=1)
    store.put(key_of("b"), b"y")
    store.clear()
    assert mine.read_text() == "years of work"
    assert (target / f"{KEY}.entry").exists()


@pytest.mark.parametrize("name", ["notes.txt", "ab", "photos"])
def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(CacheError, match=f"not Tessera's: {name}"):
        Store(tmp_path).get(KEY)


def test_the_folder_is_tagged_and_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Store(tmp_path / "cache").put(KEY, b"bytes")
    finally:
        os.umask(before)
    folder = tmp_path / "cache"
    assert (folder / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    modes = {path.relative_to(folder).parts[0]: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) <= {0o600, 0o700}


@pytest.mark.parametrize("what", ["root", "folder", "entry"])
def test_what_others_may_write_is_not_used(tmp_path: Path, what: str) -> None:
    Store(tmp_path).put(KEY, b"bytes")
    entry = tmp_path / KEY[:2] / f"{KEY}.entry"
    {"root": tmp_path, "folder": entry.parent, "entry": entry}[what].chmod(0o777)
    store = Store(tmp_path)
    fix = f"`chmod {'' if what == 'root' else '-R '}go-w {tmp_path}` makes it yours alone$"
    with pytest.warns(RuntimeWarning, match=rf"is not used: it.* can be written by others \(mode 777\); .*; {fix}"):
        assert store.get(KEY) is None
    assert not store.on_disk
    store.put(KEY, b"mine")
    assert entry.exists()
    assert store.clear().entries == 1
    assert store.get(KEY) is None
    assert not entry.exists()


def test_clear_follows_no_link_in_a_folder_that_others_may_write(tmp_path: Path) -> None:
    Store(tmp_path / "a").put(KEY, b"bytes")
    Store(tmp_path / "b").put(KEY, b"bytes")
    entry = tmp_path / "a" / KEY[:2] / f"{KEY}.entry"
    target = tmp_path / "b" / KEY[:2]
    (entry.parent / f"{KEY[:2]}00000000.entry").symlink_to(target / entry.name)
    (tmp_path / "a").chmod(0o775)
    with pytest.warns(RuntimeWarning, match="mode 775"):
        assert Store(tmp_path / "a").clear().entries == 1
    entry.parent.rename(tmp_path / "moved")
    entry.parent.symlink_to(target)
    with pytest.warns(RuntimeWarning, match="mode 775"), pytest.raises(CacheError, match="not Tessera's"):
        Store(tmp_path / "a").clear()
    assert (target / entry.name).exists()


def test_an_entry_behind_a_link_is_not_used(tmp_path: Path) -> None:
    Store(tmp_path / "a").put(KEY, b"bytes")
    entry = tmp_path / "a" / KEY[:2] / f"{KEY}.entry"
    moved = tmp_path / "moved"
    entry.rename(moved)
    entry.symlink_to(moved)
    assert Store(tmp_path / "a").get(KEY) is None
    assert moved.exists()


def test_swapped_entries_are_misses(tmp_path: Path) -> None:
    store, other = Store(tmp_path), key_of("b")
    store.put(KEY, b"bytes")
    store.put(other, b"other")
    first, second = (tmp_path / key[:2] / f"{key}.entry" for key in (KEY, other))
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert (store.get(KEY), store.get(other)) == (None, None)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_like_tmp_is_not_used_and_says_so_once(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    store = Store(tmp_path)
    fix = "set TESSERA_CACHE_DIR" if mode & 0o1000 else "`chmod go-w "
    with pytest.warns(RuntimeWarning, match=rf"is not used: it can be written by others \(mode {mode:o}\).*; {fix}"):
        store.put(KEY, b"bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(key_of("b"), b"more")
        assert store.get(KEY) == b"bytes"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_one_that_others_may_write_is_private_itself(tmp_path: Path) -> None:
    """Others can move it away, and put one of theirs there: which is then not used."""
    tmp_path.chmod(0o777)
    folder = tmp_path / "above" / "cache"
    store = Store(folder)
    store.put(KEY, b"bytes")
    assert (folder.parent.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o700, 0o700)
    folder.rename(tmp_path / "away")
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can be written by others"):
        assert store.get(KEY) is None


@pytest.mark.parametrize("what", ["root", "folder", "entry"])
def test_what_another_user_owns_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    Store(tmp_path).put(KEY, b"bytes")
    entry = tmp_path / KEY[:2] / f"{KEY}.entry"
    theirs = {"root": tmp_path, "folder": entry.parent, "entry": entry}[what].stat().st_ino
    fstat, own = os.fstat, os.geteuid()

    def of_others(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        return os.stat_result([*found[:4], own + 1, *found[5:10]]) if found.st_ino == theirs else found

    monkeypatch.setattr("tessera.runtime.private_files.os.fstat", of_others)
    store = Store(tmp_path)
    with pytest.warns(RuntimeWarning, match=f"belongs to user {own + 1}, and this is user {own}; .*TESSERA_CACHE_DIR"):
        assert store.get(KEY) is None
    if what == "entry":  # the folder is this user's, and so is what it holds to be removed
        assert store.clear().entries == 1
        return
    with pytest.raises(CacheError, match=f"cannot be cleared: .*it belongs to user {own + 1}, and this is user {own}"):
        store.clear()
    assert entry.exists()


def test_a_root_behind_a_link_of_the_users_own_works(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    Store(tmp_path / "cache").put(KEY, b"bytes")
    assert Store(tmp_path / "disk").get(KEY) == b"bytes"
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        Store(tmp_path / "dangling").put(KEY, b"bytes")
    assert not (tmp_path / "nowhere").exists()


def test_two_letter_folders_of_the_user_are_refused_while_there_is_no_tag(tmp_path: Path) -> None:
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / "brief.txt").write_text("mine")
    with pytest.raises(CacheError, match=r"not Tessera's: de/brief\.txt"):
        Store(tmp_path).put(KEY, b"bytes")
    (tmp_path / "de" / "brief.txt").rename(tmp_path / "de" / f"{'ab' * 8}.entry")
    with pytest.raises(CacheError, match=r"not Tessera's: de/abab"):
        Store(tmp_path).usage()
    assert [path.name for path in tmp_path.iterdir()] == ["de"]


def test_a_pipe_or_a_folder_under_the_name_of_an_entry_is_a_miss(tmp_path: Path) -> None:
    Store(tmp_path).put(KEY, b"bytes")
    entry = tmp_path / KEY[:2] / f"{KEY}.entry"
    entry.unlink()
    os.mkfifo(entry, 0o600)
    assert Store(tmp_path).get(KEY) is None
    entry.unlink()
    entry.mkdir(mode=0o700)
    assert Store(tmp_path).get(KEY) is None
    Store(tmp_path).clear()
    assert entry.exists()


def test_a_link_in_the_place_of_an_entry_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    store = Store(tmp_path / "cache")
    store.put(KEY, b"bytes")
    entry = tmp_path / "cache" / KEY[:2] / f"{KEY}.entry"
    entry.unlink()
    entry.symlink_to(tmp_path / "precious")
    store.put(KEY, b"again")
    assert (store.get(KEY), (tmp_path / "precious").read_bytes()) == (b"again", b"mine")
