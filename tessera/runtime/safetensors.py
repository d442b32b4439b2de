"""The safetensors format: named tensors in one file, written in one step, read as memory that is mapped, not copied.

A file is the length of its header (u64, little-endian), the header (JSON: dtype, shape and offsets by name), and the
elements, without gaps. Here elements start at a multiple of 64 bytes and wider dtypes come first, so that every tensor
is aligned to its element; a file of somebody else whose tensors are not is read all the same, by a copy.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import FileFormatError, RuntimeArgumentError
from tessera.diagnostics.error import find_nearest
from tessera.runtime.durable_files import write_durable
from tessera.runtime.tensor import Tensor, buffer_address, show_memory
from tessera.types.dtype import BY_NAME, DType
from tessera.types.frozen import frozen

NAMES = {
    "f64": "F64",
    "f32": "F32",
    "bf16": "BF16",
    "f16": "F16",
    "f8e4m3": "F8_E4M3",
    "f8e5m2": "F8_E5M2",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u64": "U64",
    "u32": "U32",
    "u16": "U16",
    "u8": "U8",
    "bool": "BOOL",
}
"""What the format calls our dtypes; i4, which it lacks, is stored as I8 and named in the metadata."""
_DTYPES = {name: BY_NAME[ours] for ours, name in NAMES.items()}
_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000
"""The most bytes of a header that readers of the format accept."""
_ALIGNMENT = 64
_METADATA, _NARROW, _CHECKSUM = "__metadata__", "tessera.i4", "tessera.crc32"
_CONTIGUOUS, _READ_ONLY = 1, 2


@frozen
class Entry:
    """One tensor of a file, as its header has it: bytes `start` to `end` of the file."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


def _refuse(path: str, what: str, fix: str = "write the file again, or read an undamaged copy") -> FileFormatError:
    return FileFormatError(f"`{path}` is not a safetensors file: {what}", fix=fix)


# Reading.


class SafetensorsFile(Mapping[str, Tensor]):
    """The tensors of a file by name; each is made when it is asked for, and shares the memory of the mapped file.

    Tensors are read-only, and keep the mapping after the file is closed. `metadata` are the strings by name that the
    file has beside them.

    Raises: FileFormatError (T0714) where the file is damaged, truncated, or none of this format.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> write(path, {"w": ts.ones((2, 3)), "b": ts.zeros((3,), ts.bf16)}, {"format": "example"})
    >>> file = SafetensorsFile(path)
    >>> sorted(file), file["w"].shape, file.metadata
    (['b', 'w'], (2, 3), {'format': 'example'})
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _LENGTH_BYTES:
                raise _refuse(self.path, f"it has {size} bytes, and its header alone needs {_LENGTH_BYTES} or more")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(self._map[:_LENGTH_BYTES], "little")
        if length > min(_LONGEST_HEADER, size - _LENGTH_BYTES):
            raise _refuse(
                self.path, f"its header would have {length} bytes, of {size - _LENGTH_BYTES} that follow its length"
            )
        start = _LENGTH_BYTES + length
        header = _parse_header(self.path, self._map[_LENGTH_BYTES:start])
        self.metadata = _metadata_of(self.path, header.pop(_METADATA, {}))
        self._start, self._checksum = start, self.metadata.pop(_CHECKSUM, None)
        narrow: set[str] = set(json.loads(self.metadata.pop(_NARROW, "[]")))
        self.entries = {name: _entry(self.path, name, form, start, narrow) for name, form in header.items()}
        _check_coverage(self.path, self.entries, start, size)

    def __getitem__(self, name: str) -> Tensor:
        found = self.entries.get(name)
        if found is None:
            near = find_nearest(name, list(self.entries), 3)
            raise KeyError(
                f"`{self.path}` has no tensor `{name}`" + (f"; there is `{'`, `'.join(near)}`" if near else "")
            )
        view = memoryview(self._map)[found.start : found.end]
        address = buffer_address(view)
        if address % found.dtype.bytes:
            made = Tensor.empty(found.shape, found.dtype)
            ctypes.memmove(made.address, address, len(view))
            return made
        return show_memory(address, found.dtype, found.shape, view, _CONTIGUOUS | _READ_ONLY)

    def checksum(self) -> int:
        """The CRC-32 of the whole file, which is read for it."""
        return zlib.crc32(self._map)

    def verify(self) -> None:
        """Read the whole file, and compare it with the checksum that `write` put into its metadata, if there is one.

        Raises: FileFormatError (T0714) where a byte is another than was written.
        """
        if self._checksum is None:
            return
        head = self._map[: self._start].replace(_checksum_text(self._checksum), _checksum_text(_UNKNOWN), 1)
        found = f"{zlib.crc32(memoryview(self._map)[self._start :], zlib.crc32(head)):08x}"
        if found != self._checksum:
            raise FileFormatError(
                f"`{self.path}` is damaged: its checksum is {found}, and {self._checksum} was written",
                fix="read an undamaged copy; a program that changes the file must leave out the metadata "
                f"`{_CHECKSUM}`",
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        total = sum(entry.end - entry.start for entry in self.entries.values())
        return f"SafetensorsFile({self.path!r}, {len(self)} tensors, {total} bytes)"


def _parse_header(path: str, data: bytes) -> dict[str, Any]:
    def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise _refuse(path, f"its header has `{next(name for name in names if names.count(name) > 1)}` twice")
        return found

    try:
        header = json.loads(data.decode("utf-8"), object_pairs_hook=refuse_twice)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _refuse(path, f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _refuse(path, "its header is not a JSON object")
    return cast("dict[str, Any]", header)


def _metadata_of(path: str, given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in cast("dict[Any, Any]", given).values()):
        raise _refuse(path, f"`{_METADATA}` is not an object of strings")
    return cast("dict[str, str]", given)


def _entry(path: str, name: str, form: Any, start: int, narrow: set[str]) -> Entry:
    if not isinstance(form, dict) or not {"dtype", "shape", "data_offsets"} <= cast("dict[Any, Any]", form).keys():
        raise _refuse(path, f"tensor `{name}` lacks `dtype`, `shape` or `data_offsets`")
    known = cast("dict[str, Any]", form)
    dtype = _DTYPES.get(str(known["dtype"]))
    if dtype is None:
        raise FileFormatError(
            f"tensor `{name}` of `{path}` has dtype `{known['dtype']}`, which Tessera lacks",
            notes=(f"the dtypes are {', '.join(_DTYPES)}",),
            fix="convert it with the library that wrote it",
        )
    shape, offsets = _sizes(known["shape"]), _sizes(known["data_offsets"])
    if shape is None or offsets is None or len(offsets) != 2:
        raise _refuse(path, f"tensor `{name}` has shape {known['shape']} at bytes {known['data_offsets']}")
    count = dtype.bytes
    for size in shape:
        count *= size
    if offsets[1] - offsets[0] != count:
        raise _refuse(
            path,
            f"tensor `{name}`, {list(shape)} {dtype}, has {count} bytes, and {offsets[1] - offsets[0]} in the file",
        )
    held = BY_NAME["i4"] if name in narrow else dtype
    return Entry(held, shape, start + offsets[0], start + offsets[1])


def _sizes(given: Any) -> tuple[int, ...] | None:
    if not isinstance(given, list):
        return None
    items = cast("list[Any]", given)
    return tuple(items) if all(type(item) is int and item >= 0 for item in items) else None


def _check_coverage(path: str, entries: Mapping[str, Entry], start: int, size: int) -> None:
    """Every byte after the header is of one tensor: the format has no gaps, and no bytes that two tensors share."""
    reached = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != reached:
            what = "leaves a gap before it" if entry.start > reached else "overlaps another"
            raise _refuse(path, f"tensor `{name}` at byte {entry.start - start} of the elements {what}")
        reached = entry.end
    if reached != size:
        what = f"{reached - size} bytes are missing" if reached > size else f"{size - reached} bytes follow"
        raise _refuse(path, f"its tensors end at byte {reached}, and the file at {size}: {what}")


# Writing.


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors to a file in one step: whoever opens it sees the old file or the whole new one.

    Tensors are ours, of a GPU too, and arrays. The same tensors give the same bytes. The metadata have a checksum of
    the whole file beside what is given, which `SafetensorsFile.verify` compares. Raises RuntimeArgumentError (T0701)
    for a value that is none, and for metadata that are not strings.
    """
    unknown = {_CHECKSUM: _UNKNOWN}
    head, parts = encode(tensors, unknown | dict(metadata or {}) | unknown)
    checksum = 0
    for part in (head, *parts):
        checksum = zlib.crc32(part, checksum)
    head = head.replace(_checksum_text(_UNKNOWN), _checksum_text(f"{checksum:08x}"), 1)
    write_durable(os.fspath(path), [head, *parts])


_UNKNOWN = "00000000"
"""What stands for the checksum of a file while it is computed, since it is of the header too."""


def _checksum_text(checksum: str) -> bytes:
    """The checksum as it is in a header; the first metadata of a file, so that no other string is mistaken for it."""
    return f'"{_CHECKSUM}":"{checksum}"'.encode()


def encode(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> tuple[bytes, Sequence[memoryview]]:
    """The bytes of a file: its header, then the elements of each tensor, which share its memory."""
    held = {name: _on_host(name, value) for name, value in tensors.items()}
    texts = dict(metadata or {})
    for key, text in texts.items():
        if not isinstance(cast("object", key), str) or not isinstance(cast("object", text), str):
            raise RuntimeArgumentError(
                f"metadata of a safetensors file are strings by name, got {key!r}: {text!r}", fix="write `str(...)`"
            )
    narrow = sorted(name for name, tensor in held.items() if tensor.dtype.name == "i4")
    if narrow:
        texts[_NARROW] = json.dumps(narrow)
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    order, end = sorted(held, key=lambda name: (-held[name].dtype.bytes, name)), 0
    for name in order:
        start, end = end, end + held[name].nbytes
        dtype = NAMES["i8" if held[name].dtype.name == "i4" else held[name].dtype.name]
        header[name] = {"dtype": dtype, "shape": list(held[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-(len(text) + _LENGTH_BYTES) % _ALIGNMENT)
    if len(text) > _LONGEST_HEADER:
        raise RuntimeArgumentError(
            f"the header of {len(order)} tensors has {len(text)} bytes, and the format takes {_LONGEST_HEADER}",
            fix="write several files",
        )
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text, [bytes_of(held[name]) for name in order]


def _on_host(name: Any, value: Any) -> Tensor:
    if not isinstance(name, str) or name == _METADATA:
        raise RuntimeArgumentError(f"tensors of a safetensors file have strings as names, got {name!r}")
    try:
        tensor = value.cpu() if hasattr(value, "give_to") else Tensor.of(value)  # one of a GPU is copied
    except RuntimeArgumentError as error:
        raise RuntimeArgumentError(f"`{name}` cannot be written: {error.message}", fix=error.fix) from None
    return tensor.contiguous()


def bytes_of(tensor: Tensor) -> memoryview:
    """The elements of a contiguous tensor in host memory as bytes, which keep it alive and share its memory."""
    if not tensor.nbytes:
        return memoryview(b"")
    shown = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.address)
    shown.owner = tensor  # pyright: ignore[reportAttributeAccessIssue] - `from_address` keeps nothing alive
    return memoryview(shown).cast("B")
