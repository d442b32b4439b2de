"""The safetensors format: what is written is read back bit for bit, and every damage to a file is an error."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import FileFormatError, RuntimeArgumentError
from tessera.runtime import durable_files
from tessera.runtime.durable_files import make_durable_folder, recover_folder, remove_leftovers, write_flushed
from tessera.runtime.safetensors import SafetensorsFile, write
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import ALL, DType


def tensor_of(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Any bits, but for i4 and bool, not all bits of which are values."""
    data = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * dtype.bytes, np.uint8)
    if dtype.name == "i4":
        return Tensor.from_numpy((data % 16).astype(np.int8).reshape(shape) - np.int8(8), dtype)
    if dtype.is_bool:
        data %= 2
    made = Tensor.empty(shape, dtype)
    ctypes.memmove(made.address, data.tobytes(), data.size)
    return made


@given(
    tensors=st.dictionaries(
        st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(ALL), st.lists(st.integers(0, 4), max_size=3).map(tuple), st.integers(0, 99)),
        max_size=6,
    ),
    metadata=st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=2),
)
def test_all_dtypes_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, tensors: Any, metadata: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("files") / "some.safetensors"
    held = {name: tensor_of(*form) for name, form in tensors.items()}
    write(path, held, metadata)
    file = SafetensorsFile(path)
    assert (file.metadata, set(file), len(file)) == (metadata, set(held), len(held))
    for name, tensor in held.items():
        found = file[name]
        assert (found.dtype, found.shape, found.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())
        assert found.address % max(1, tensor.dtype.bytes) == 0


def test_a_file_is_what_the_format_says(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write(path, {"b": np.array([1, 2], np.uint8), "a": np.array([[1.5]], ml_dtypes.bfloat16)}, {"k": "v"})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert (8 + length) % 64 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"tessera.crc32": "704ef832", "k": "v"},
        "a": {"dtype": "BF16", "shape": [1, 1], "data_offsets": [0, 2]},
        "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]},
    }
    assert data[8 + length :] == b"\xc0\x3f\x01\x02"


def by_hand(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def form(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_tensors_of_another_writer_that_are_not_aligned_are_read(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5], np.float32)
    header = {"flag": form("BOOL", [1], 0, 1), "w": form("F32", [2], 1, 9)}
    file = SafetensorsFile(by_hand(tmp_path / "odd", header, b"\x01" + values.tobytes()))
    assert file["w"].tolist() == [1.0, -2.5]
    assert file["flag"].tolist() == [True]


def test_tensors_are_memory_of_the_file_and_outlive_it(tmp_path: Path) -> None:
    path = tmp_path / "large"
    write(path, {"x": np.arange(1 << 20, dtype=np.int64)})
    file = SafetensorsFile(path)
    x = file["x"]
    assert x.is_read_only
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    spans = [line.split()[0].split("-") for line in maps.splitlines() if line.endswith(str(path))]
    assert any(int(low, 16) <= x.address < int(high, 16) for low, high in spans)
    write(path, {"x": np.zeros(4, np.int64)})  # a new file of that name
    del file
    assert np.array_equal(np.asarray(x), np.arange(1 << 20))


GOOD = {"w": form("F32", [2], 0, 8)}
DAMAGED: dict[str, tuple[Any, bytes, str]] = {
    "truncated": (GOOD, b"\0" * 7, "1 bytes are missing"),
    "too long": (GOOD, b"\0" * 9, "1 bytes follow"),
    "gap": ({"w": form("F32", [1], 4, 8)}, b"\0" * 8, "leaves a gap before it"),
    "overlap": ({**GOOD, "v": form("F32", [1], 4, 8)}, b"\0" * 8, "overlaps another"),
    "wrong size": ({"w": form("F32", [3], 0, 8)}, b"\0" * 8, "[3] f32, has 12 bytes, and 8 in the file"),
    "negative": ({"w": form("F32", [-2], 0, 8)}, b"\0" * 8, "has shape [-2]"),
    "bool as size": (b'{"w":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"\0", "has shape [True]"),
    "dtype": ({"w": form("F12", [2], 0, 8)}, b"\0" * 8, "has dtype `F12`"),
    "field": ({"w": {"dtype": "F32"}}, b"", "lacks `dtype`, `shape` or `data_offsets`"),
    "not JSON": (b"{no", b"", "is not JSON"),
    "not text": (b"\xff\xfe", b"", "is not JSON"),
    "not an object": (b"[1]", b"", "is not a JSON object"),
    "twice": (b'{"w": 1, "w": 2}', b"", "has `w` twice"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "is not an object of strings"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    header, data, expected = DAMAGED[name]
    with pytest.raises(FileFormatError) as caught:
        SafetensorsFile(by_hand(tmp_path / "damaged", header, data))
    assert expected in caught.value.message


@given(data=st.binary(max_size=40), length=st.integers(0, 1 << 63))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes, length: int) -> None:
    path = tmp_path_factory.mktemp("files") / "noise"
    for content in (data, struct.pack("<Q", length) + data, struct.pack("<Q", len(data)) + data):
        path.write_bytes(content)
        if content != struct.pack("<Q", 2) + b"{}":
            with pytest.raises(FileFormatError):
                SafetensorsFile(path)


def test_a_byte_that_changed_is_found_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write(path, {"w": np.arange(4, dtype=np.float32)}, {"k": 'a "tessera.crc32":"00000000" b'})
    SafetensorsFile(path).verify()
    data = path.read_bytes()
    for at in (data.index(b"a "), data.index(b"tessera.crc32") + 16, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(FileFormatError, match=r"model\.safetensors` is damaged: its checksum is [0-9a-f]{8}, and"):
            SafetensorsFile(path).verify()
    by_hand(path, {"w": form("U8", [1], 0, 1)}, b"1")
    SafetensorsFile(path).verify()  # those of other writers have none


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write(path, {"layers.0.weight": np.zeros(2, np.float32)})
    with pytest.raises(KeyError, match=r"layers\.0\.weight"):
        SafetensorsFile(path)["layers.0.wieght"]
    with pytest.raises(RuntimeArgumentError, match="`x` cannot be written"):
        write(path, {"x": "text"})
    with pytest.raises(RuntimeArgumentError, match="are strings"):
        write(path, {}, {"step": 3})  # pyright: ignore[reportArgumentType]
    assert list(tmp_path.iterdir()) == [path]  # nothing else is left


# Files and folders that are there whole, or not at all.

STOPPING = """
import os, signal, sys
import numpy as np
from tessera.runtime import safetensors
from tessera.runtime.durable_files import make_durable_folder, remove_folder, write_flushed

target, kind = sys.argv[1:]
names = ("fsync", "replace", "rename", "write", "mkdir", "rmdir", "unlink")
calls = [(name, getattr(os, name)) for name in names]

def work():
    if kind == "file":
        safetensors.write(target, {"x": np.full(1000, 2.0)})
    else:
        def fill(folder):
            write_flushed(os.path.join(folder, "a"), [b"2" * 1000])
            write_flushed(os.path.join(folder, "b"), [b"2"])
        make_durable_folder(target, fill)

for limit in range(99):
    child = os.fork()
    if not child:
        left = [limit]
        def stop(call):
            def run(*arguments, **options):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return call(*arguments, **options)
            return run
        for name, call in calls:
            setattr(os, name, stop(call))
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(limit, status, flush=True)
    sys.stdin.readline()
    if not status:
        break
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_whatever_call_a_process_is_killed_in_the_old_or_the_new_one_is_whole(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    seen: set[str] = set()
    program = [sys.executable, "-c", STOPPING, str(target), kind]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        _write_old(kind, target)
        for line in process.stdout:
            if kind == "folder":
                recover_folder(str(target))
            seen.add(_contents(kind, target))
            remove_leftovers(str(tmp_path))
            assert list(tmp_path.iterdir()) == [target], line
            if not line.endswith(" 0\n"):
                _write_old(kind, target)
            print(file=process.stdin, flush=True)
    assert seen == {"old", "new"}
    assert _contents(kind, target) == "new"


def test_a_process_does_not_take_what_one_of_its_number_left_for_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    make_durable_folder(str(folder), lambda folder: write_flushed(os.path.join(folder, "a"), [b"1"]))
    seen: list[str] = []
    make_durable_folder(str(folder), lambda folder: seen.append(os.path.basename(folder)))
    _, what, process, start, *_ = seen[0].replace(".", "-").split("-")
    assert (what, int(process)) == ("new", os.getpid())
    folder.rename(tmp_path / f".old-{process}-{start}-01234567-one")
    assert not recover_folder(str(folder))  # this process is at work on it
    (tmp_path / f".old-{process}-{start}-01234567-one").rename(tmp_path / f".old-{process}-{start}0-01234567-one")
    assert recover_folder(str(folder))
    assert not recover_folder(str(tmp_path / "absent" / "one"))


def _write_old(kind: str, target: Path) -> None:
    if kind == "file":
        write(target, {"x": np.full(10, 1.0)})
    else:
        make_durable_folder(str(target), lambda folder: write_flushed(os.path.join(folder, "a"), [b"1"]))


def _contents(kind: str, target: Path) -> str:
    """Which of the two it is; fails where it is neither."""
    if kind == "file":
        found = SafetensorsFile(target)["x"].tolist()
        return {10: "old", 1000: "new"}[len(found)]
    files = {file.name: file.read_bytes() for file in target.iterdir()}
    return {1: "old", 2: "new"}[len(files)] if files in ({"a": b"1"}, {"a": b"2" * 1000, "b": b"2"}) else "damaged"


def test_work_of_a_process_stays_where_the_system_hides_when_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, **_: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    work = tmp_path / f".new-{os.getppid()}-0123abcd-01234567-one"
    work.write_bytes(b"1")
    monkeypatch.setattr(durable_files, "open", refuse, raising=False)
    remove_leftovers(str(tmp_path))
    assert work.exists()
    monkeypatch.undo()
    remove_leftovers(str(tmp_path))  # now it is seen to have started at another time
    assert not work.exists()
