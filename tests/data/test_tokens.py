"""Token files: written and appended in steps that nothing can stop halfway, mapped, and checked when opened."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, FileFormatError, IndexRangeError


@settings(max_examples=15)
@given(parts=st.lists(st.lists(st.integers(0, (1 << 32) - 1), max_size=5), max_size=4), is_wide=st.booleans())
def test_tokens_come_back_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], is_wide: bool
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    dtype = ts.u32 if is_wide else ts.u16
    kept = [[token if is_wide else token % (1 << 16) for token in part] for part in parts]
    ts.data.write_tokens(folder / "whole", [token for part in kept for token in part], dtype)
    ts.data.write_tokens(folder / "parts", iter(kept), dtype)
    ts.data.write_tokens(folder / "listed", kept, dtype)
    ts.data.write_tokens(folder / "appended", [], dtype)
    for part in kept:
        ts.data.append_tokens(folder / "appended", part)
    bytes_of = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(bytes_of) == 4
    assert len(set(bytes_of.values())) == 1
    found = ts.data.TokenFile(folder / "appended")
    assert (list(found), found.dtype) == ([token for part in kept for token in part], dtype)


def test_bytes_are_parts_in_a_list_too(tmp_path: Path) -> None:
    ts.data.write_tokens(tmp_path / "tokens", [b"ab", b"", b"c"])
    assert list(ts.data.TokenFile(tmp_path / "tokens")) == [97, 98, 99]


def test_a_file_is_memory_that_is_mapped_and_stays_as_long_as_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ts.data.write_tokens(path, np.arange(100_000), ts.u32, vocabulary=100_001)
    tokens = ts.data.TokenFile(path)
    ts.data.append_tokens(path, [7])
    again = pickle.loads(pickle.dumps(tokens))
    assert (len(tokens), len(again), len(ts.data.TokenFile(path))) == (100_000, 100_000, 100_001)
    assert again.vocabulary == 100_001
    assert not tokens[10:20].flags.owndata
    assert tokens[-1] == 99_999
    with pytest.raises(IndexRangeError, match="which has 100000"):
        _ = tokens[100_000]


def test_an_append_that_did_not_come_to_its_end_is_as_if_it_had_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ts.data.write_tokens(path, b"abc")
    with path.open("ab") as file:
        file.write(b"half of what")
    assert bytes(ts.data.TokenFile(path)) == b"abc"
    ts.data.append_tokens(path, b"d")
    assert bytes(ts.data.TokenFile(path)) == b"abcd"
    assert path.stat().st_size == 64 + 2 * 4


def test_what_is_no_token_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"something else")
    with pytest.raises(FileFormatError, match="is not a token file"):
        ts.data.TokenFile(path)
    ts.data.write_tokens(path, [1, 2, 3])
    good = path.read_bytes()
    for damaged, expected in (
        (good[:-1], "3 tokens, and 2 are there"),
        (good[:8] + b"\x02" + good[9:], "of version 2"),
        (good[:12] + b"\x03" + good[13:], "has 3 bytes"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=expected):
            ts.data.TokenFile(path)


def test_tokens_that_do_not_fit_are_refused_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ts.data.write_tokens(path, [1, 2], vocabulary=50)
    for wrong, expected in (([3, 50], "token 1 is 50"), ([-1], "token 0 is -1"), ([0.5], "are integers")):
        with pytest.raises(ArgumentError, match=expected):
            ts.data.append_tokens(path, wrong)
    assert list(ts.data.TokenFile(path)) == [1, 2]
    with pytest.raises(ArgumentError, match="token 0 is 65536"):
        ts.data.write_tokens(path, [1 << 16])
    with pytest.raises(ArgumentError, match="u16 or u32"):
        ts.data.write_tokens(path, [1], ts.i64)
    assert os.listdir(tmp_path) == ["tokens"]
