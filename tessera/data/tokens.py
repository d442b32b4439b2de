"""Token files: a long sequence of integers on disk, 16 or 32 bits each, that is mapped into memory and not read.

A file is a header of 64 bytes (what it is, version, bytes of a token, tokens, size of the vocabulary) and the tokens,
little-endian. `append_tokens` writes tokens first and the new count last, so that a process that is killed on the way
leaves a file with the old count, whose extra bytes the next one overwrites.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex, cast, overload

import numpy as np

from tessera.diagnostics.codes import ArgumentError, FileFormatError, IndexRangeError
from tessera.diagnostics.frames import guard_class
from tessera.runtime.durable_files import write_durable
from tessera.types.dtype import DType, parse_dtype
from tessera.types.frozen import frozen

MAGIC, VERSION = b"TESSTOKS", 1
_HEADER = struct.Struct("<8sIIQQ32x")
_COUNT_AT = 16
_NUMPY = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_BYTES = {"u16": 2, "u32": 4}
_PART = 1 << 22  # tokens converted at a time

Tokens = Any
"""What is written: an array or a sequence of integers, `bytes`, or an iterable of such parts."""


@frozen
class Header:
    """What a token file says of itself."""

    width: int
    count: int
    vocabulary: int

    def encode(self) -> bytes:
        return _HEADER.pack(MAGIC, VERSION, self.width, self.count, self.vocabulary)


def _read_header(path: str, descriptor: int) -> Header:
    data = os.pread(descriptor, _HEADER.size, 0)
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise FileFormatError(
            f"`{path}` is not a token file: it does not start with `{MAGIC.decode()}`",
            fix="write it with `ts.data.write_tokens(path, tokens)`",
        )
    _, version, width, count, vocabulary = _HEADER.unpack(data)
    if version != VERSION:
        raise FileFormatError(
            f"`{path}` is a token file of version {version}, and this release reads version {VERSION}",
            fix="write it again with `ts.data.write_tokens(path, tokens)`, or read it with a newer release",
        )
    if width not in _NUMPY:
        raise FileFormatError(f"`{path}` is damaged: it says that a token has {width} bytes, and it has 2 or 4")
    held = (os.fstat(descriptor).st_size - _HEADER.size) // width
    if held < count:
        raise FileFormatError(
            f"`{path}` is truncated: it says that it has {count} tokens, and {held} are there",
            fix="write the file again, or read an undamaged copy",
        )
    return Header(width, count, vocabulary)


@guard_class
class TokenFile:
    """A token file in memory that is mapped: a sequence of integers; slices are arrays that share the file's memory.

    It has as many tokens as when it was opened, also where others append to it. Raises FileFormatError (T0714).

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tokens")
    >>> ts.data.write_tokens(path, [3, 1, 4, 1, 5])
    >>> tokens = ts.data.TokenFile(path)
    >>> len(tokens), tokens[1], tokens[2:4].tolist(), tokens.dtype
    (5, 1, [4, 1], u16)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._open(os.fspath(path), None)

    def _open(self, path: str, count: int | None) -> None:
        self.path = path
        with open(path, "rb") as file:
            header = _read_header(path, file.fileno())
            if count is not None and header.count < count:
                raise FileFormatError(f"`{path}` had {count} tokens when it was opened first, and has {header.count}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.vocabulary = header.vocabulary
        """How many different tokens there may be; 0 where nobody said."""
        self.count = header.count if count is None else count
        self.array: np.ndarray[Any, Any] = np.frombuffer(
            self._map, _NUMPY[header.width], self.count, offset=_HEADER.size
        )
        """All of them, as a read-only array of NumPy."""

    @property
    def dtype(self) -> DType:
        """u16 or u32."""
        return parse_dtype(f"u{8 * self.array.itemsize}")

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: slice) -> np.ndarray[Any, Any]: ...

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.array[index]
        try:
            return int(self.array[index])
        except IndexError:
            raise IndexRangeError(f"token {index} of `{self.path}`, which has {self.count}") from None

    def __iter__(self) -> Iterator[int]:
        return map(int, self.array)

    def __repr__(self) -> str:
        return f"TokenFile({self.path!r}, {self.count} tokens, {self.dtype})"

    def __getstate__(self) -> tuple[str, int]:
        # Another process maps the file itself.
        return os.path.abspath(self.path), self.count

    def __setstate__(self, state: tuple[str, int]) -> None:
        self._open(*state)


def write_tokens(path: str | os.PathLike[str], tokens: Tokens, dtype: Any = None, *, vocabulary: int = 0) -> None:
    """Write a token file in one step: whoever opens it sees the old file or the whole new one.

    `tokens` is an array or a sequence of integers, `bytes` (a token for each), or an iterable of such parts, which are
    never all in memory. `dtype` is u16 or u32; by default the one that holds the `vocabulary`, or, without one, u16.
    Raises ArgumentError (T0202) for a token that does not fit.
    """
    width = _choose_width(dtype, vocabulary)
    limit = vocabulary or 1 << 8 * width
    count = 0

    def parts() -> Iterator[bytes]:
        nonlocal count
        yield Header(width, 0, vocabulary).encode()
        for part in _parts(tokens, width, limit):
            count += len(part) // width
            yield part

    # How many there are is known when all are written.
    write_durable(os.fspath(path), parts(), lambda descriptor: _set_count(descriptor, count))


def append_tokens(path: str | os.PathLike[str], tokens: Tokens) -> None:
    """Append tokens to a file; one that is killed on the way leaves the tokens that were there.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tokens")
    >>> ts.data.write_tokens(path, b"ab")
    >>> ts.data.append_tokens(path, b"c")
    >>> list(ts.data.TokenFile(path))
    [97, 98, 99]
    """
    name = os.fspath(path)
    with open(name, "r+b", buffering=0) as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # of two processes that append, one waits
        header = _read_header(name, file.fileno())
        limit = header.vocabulary or 1 << 8 * header.width
        end = start = _HEADER.size + header.count * header.width
        file.truncate(start)  # what an unfinished one left
        for part in _parts(tokens, header.width, limit):
            end += _write_at(file.fileno(), part, end)
        os.fsync(file.fileno())
        _set_count(file.fileno(), header.count + (end - start) // header.width)


def _set_count(descriptor: int, count: int) -> None:
    _write_at(descriptor, struct.pack("<Q", count), _COUNT_AT)
    os.fsync(descriptor)


def _write_at(descriptor: int, data: bytes, offset: int) -> int:
    view = memoryview(data)
    while view:
        view = view[os.pwrite(descriptor, view, offset + len(data) - len(view)) :]
    return len(data)


def _choose_width(dtype: Any, vocabulary: int) -> int:
    if dtype is None:
        return 2 if vocabulary <= 1 << 16 else 4
    width = _BYTES.get(parse_dtype(dtype).name)
    if width is None:
        raise ArgumentError(f"tokens are u16 or u32, got {parse_dtype(dtype)}", fix="write `ts.u16` or `ts.u32`")
    if vocabulary > 1 << 8 * width:
        raise ArgumentError(
            f"u{8 * width} holds {1 << 8 * width} different tokens, and the vocabulary has {vocabulary}",
            fix="write `dtype=ts.u32`",
        )
    return width


def _is_one_part(tokens: Tokens) -> bool:
    if isinstance(tokens, list | tuple):  # of numbers, or of parts
        first: Any = next(iter(cast("list[Any]", tokens)), 0)
        return not isinstance(first, bytes | bytearray | list | tuple) and not getattr(first, "shape", ())
    return isinstance(tokens, bytes | bytearray) or hasattr(tokens, "shape")


def _parts(tokens: Tokens, width: int, limit: int) -> Iterator[bytes]:
    """Tokens as bytes, some at a time; raises where one does not fit."""
    given: Iterable[Any] = (tokens,) if _is_one_part(tokens) else tokens
    position = 0
    for part in given:
        array = np.frombuffer(part, np.uint8) if isinstance(part, bytes | bytearray) else np.asarray(part).reshape(-1)
        if array.size and array.dtype.kind not in "iu":
            raise ArgumentError(
                f"tokens are integers, got {array.dtype}", fix="convert them: `tokens.astype(np.int64)`"
            )
        for start in range(0, array.size, _PART):
            piece = array[start : start + _PART]
            wrong = np.flatnonzero((piece < 0) | (piece >= limit))
            if wrong.size:
                at = int(wrong[0])
                raise ArgumentError(
                    f"token {position + at} is {int(piece[at])}, and tokens of this file are 0 to {limit - 1}",
                    fix="write `dtype=ts.u32`, or a larger `vocabulary`" if width == 2 else "see the tokenizer",
                )
            position += piece.size
            yield piece.astype(_NUMPY[width]).tobytes()
