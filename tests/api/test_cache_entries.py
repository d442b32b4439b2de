"""Entries of the cache that are intact and are not what their key says: each is a miss, and the right program runs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.cache import Store
from tessera.runtime.executable import _PREFIX, MAGIC, VERSION  # pyright: ignore[reportPrivateUsage]

X = np.arange(6, dtype=np.float32)


def seal(header: object, blobs: bytes = b"") -> bytes:
    """An executable with a good digest whose header is anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = _PREFIX.pack(MAGIC, VERSION, len(text)) + text + blobs
    return body + hashlib.sha256(body).digest()


EMPTY: dict[str, Any] = {
    "inputs": [],
    "outputs": [],
    "symbols": [],
    "binding": [],
    "guards": [],
    "metadata": {},
    "blobs": [0],
}
ENTRIES = {
    "nothing": b"",
    "garbage": os.urandom(300),
    "a list": seal([1, 2]),
    "a number": seal(7),
    "no fields": seal({}),
    "other types": seal({**EMPTY, "inputs": 3}),
    "unknown dtype": seal({**EMPTY, "inputs": [["f7", ["4"], "x"]]}),
    "negative blobs": seal({**EMPTY, "blobs": [-5, 5]}),
    "nested": seal(b"[" * 100_000),
    "no code": seal(EMPTY),
    "code that is none": seal({**EMPTY, "blobs": [8, 0]}, b"not code"),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def triple() -> Any:
    def function(x: Any) -> Any:
        return x * 3.0 + 1.0

    return ts.jit(function)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_intact_entry_that_is_no_program_is_a_miss(own_cache: Path, name: str) -> None:
    first = triple()
    expected = np.asarray(first(X))
    (made,) = first.specializations
    Store(own_cache).put(made.origin.key, ENTRIES[name])
    again = triple()
    assert np.array_equal(np.asarray(again(X)), expected)
    assert again.specializations[0].origin.source == "compiled"
    third = triple()
    third(X)
    assert third.specializations[0].origin.source == "disk cache"


def test_swapped_intact_entries_are_misses(own_cache: Path) -> None:
    makers: list[Any] = [lambda x: x + 2.0, lambda x: x * 2.0]  # pyright: ignore[reportUnknownLambdaType]
    functions: list[Any] = [ts.jit(make) for make in makers]
    expected = [np.asarray(function(X)) for function in functions]
    keys = [function.specializations[0].origin.key for function in functions]
    paths = [own_cache / key[:2] / f"{key}.entry" for key in keys]
    bodies = [path.read_bytes() for path in paths]
    for path, body in zip(paths, reversed(bodies), strict=True):
        path.write_bytes(body)
    for make, value in zip(makers, expected, strict=True):
        again: Any = ts.jit(make)
        assert np.array_equal(np.asarray(again(X)), value)
        assert again.specializations[0].origin.source == "compiled"


@pytest.mark.parametrize("note", [b"", b"garbage", b"[1, 2]", b"3", b"[" * 100_000, b"\xff"])
def test_a_note_that_is_none_is_a_miss(own_cache: Path, note: bytes) -> None:
    function = triple()
    function(X)
    name = next(path for path in own_cache.rglob("*.entry") if b'"program"' in path.read_bytes()).stem
    Store(own_cache).put(name, note)
    for path in own_cache.rglob("*.entry"):
        if MAGIC in path.read_bytes():
            path.unlink()
    again = triple()
    again(X)
    assert again.specializations[0].origin.reason == "never compiled before"
