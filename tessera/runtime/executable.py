"""`Executable`: one compiled function as a plain value, and the file format it is kept in."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, cast

from tessera.diagnostics.codes import LoadError
from tessera.types import numerics
from tessera.types.dtype import BY_NAME, DType
from tessera.types.frozen import frozen

MAGIC = b"TESSERAX"
VERSION = 5
_PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the JSON header
_DIGEST_BYTES = 32
FACTS = ("inputs", "outputs", "symbols", "binding", "guards", "metadata", "numerics")
"""What the header says of the code."""


@frozen
class Port:
    """One input or output: its dtype and its dims as text (`B`, `4*S + 1`, `64`)."""

    dtype: str
    dims: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in BY_NAME:
            raise LoadError(f"unknown dtype `{self.dtype}` in an executable", span=None)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def element(self) -> DType:
        return BY_NAME[self.dtype]

    def __str__(self) -> str:
        return f"[{', '.join(self.dims)}] {self.dtype}"


@frozen
class Guard:
    """A fact checked at every call: what it is about, and the two expressions that must agree."""

    what: str
    left: str
    right: str


@frozen
class Executable:
    """Machine code and everything the runtime must know to call it.

    `objects` are relocatable ELF files, which `runtime/loader.py` links; they define `tessera_check`, `tessera_shapes`,
    `tessera_workspace` and `tessera_entry`. Symbol `k` is bound from number `binding[k]` of all input dims laid end to
    end. `support` may hold the object of the native support code, so that the file runs where nothing can be compiled.

    `tessera_entry` gives 0, or the bytes of scratch that there was no memory for.

    `metadata` is anything JSON can hold. The runtime reads one entry: `features`, the CPU features the code needs
    (LLVM's names).
    """

    objects: tuple[bytes, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[str, ...] = ()
    binding: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    support: bytes = b""

    def __post_init__(self) -> None:
        dims = sum(port.rank for port in self.inputs)
        if len(self.binding) != len(self.symbols):
            raise LoadError(f"{len(self.symbols)} symbols but {len(self.binding)} bindings", span=None)
        if any(not 0 <= index < dims for index in self.binding):
            raise LoadError(f"a binding in {list(self.binding)} is outside the {dims} input dims", span=None)

    def with_support(self, support: bytes) -> Executable:
        """The same executable carrying the native support object along."""
        return replace(self, support=support)

    def to_bytes(self) -> bytes:
        """A versioned file: prefix, JSON header, blobs, and a SHA-256 of all that.

        The header has a digest of its own, of what it says together with the objects that it says it of: a header that
        was changed does not belong to its code any more, even where the file is sealed anew. Neither is a signature:
        who may write the file may write any code into it.
        """
        blobs = (*self.objects, self.support)
        header: dict[str, Any] = {
            "inputs": [[port.dtype, list(port.dims), port.name] for port in self.inputs],
            "outputs": [[port.dtype, list(port.dims), port.name] for port in self.outputs],
            "symbols": list(self.symbols),
            "binding": list(self.binding),
            "guards": [[guard.what, guard.left, guard.right] for guard in self.guards],
            "metadata": self.metadata,
            "numerics": numerics.VERSION,
            "blobs": [len(blob) for blob in blobs],
        }
        header["belongs"] = tie_to_code(header, self.objects)
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        body = b"".join((_PREFIX.pack(MAGIC, VERSION, len(text)), text, *blobs))
        return body + hashlib.sha256(body).digest()

    @staticmethod
    def from_bytes(data: bytes) -> Executable:
        """Read what `to_bytes` wrote.

        Raises: LoadError (T0704) if the file is not one of ours, is of an unknown version, or is damaged.
        """
        header, start = _read_header(data)
        end = len(data) - _DIGEST_BYTES
        problem = _header_problem(header)
        if problem:
            raise LoadError(f"executable is damaged: {problem}", span=None)
        if header["numerics"] != numerics.VERSION:
            raise LoadError(
                f"executable adds floats by version {header['numerics']} of the recipes, this Tessera by version "
                f"{numerics.VERSION}: bits may differ",
                span=None,
                fix="compile it again with this version",
            )
        blobs: list[bytes] = []
        for size in header["blobs"]:
            blobs.append(data[start : start + size])
            start += size
        if start != end:
            raise LoadError(f"executable is damaged: its parts end at byte {start}, the file at {end}", span=None)
        if header["belongs"] != tie_to_code(header, blobs[:-1]):
            raise LoadError("executable is damaged: its header does not belong to its code", span=None)
        return Executable(
            objects=tuple(blobs[:-1]),
            inputs=_ports(header["inputs"]),
            outputs=_ports(header["outputs"]),
            symbols=tuple(header["symbols"]),
            binding=tuple(header["binding"]),
            guards=tuple(Guard(*guard) for guard in header["guards"]),
            metadata=header["metadata"],
            support=blobs[-1],
        )


def _ports(entries: list[tuple[str, list[str], str]]) -> tuple[Port, ...]:
    return tuple(Port(dtype, tuple(dims), name) for dtype, dims, name in entries)


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """Check what surrounds the header; give it and where the blobs start."""
    if len(data) < _PREFIX.size + _DIGEST_BYTES or not data.startswith(MAGIC):
        raise LoadError(f"not a Tessera executable: it does not start with {MAGIC.decode()}", span=None)
    _, version, length = _PREFIX.unpack_from(data)
    # The version comes before the digest: another version may seal its files in another way.
    if version != VERSION:
        raise LoadError(
            f"executable has format version {version}, this Tessera reads version {VERSION}",
            span=None,
            fix="compile it again with this version",
        )
    if hashlib.sha256(data[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        raise LoadError("executable is damaged: its SHA-256 does not match its contents", span=None)
    start = _PREFIX.size + length
    try:
        return json.loads(data[_PREFIX.size : start]), start
    except (ValueError, RecursionError) as error:
        raise LoadError(f"executable is damaged: its header is no JSON: {error}", span=None) from error


def tie_to_code(header: Mapping[str, Any], objects: Sequence[bytes]) -> str:
    """What ties a header to the objects it describes."""
    facts = json.dumps([header[name] for name in FACTS], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(f"tessera executable {VERSION}\0{facts}\0".encode())
    for one in objects:
        digest.update(hashlib.sha256(one).digest())
    return digest.hexdigest()


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(of, cast("list[Any]", value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_port(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(cast("list[Any]", value)) == 3
        and _is_text(value[0])
        and _is_list(value[1], _is_text)
        and _is_text(value[2])
    )


def _is_guard(value: Any) -> bool:
    return _is_list(value, _is_text) and len(value) == 3


_HEADER: Mapping[str, Callable[[Any], bool]] = {
    "inputs": lambda value: _is_list(value, _is_port),
    "outputs": lambda value: _is_list(value, _is_port),
    "symbols": lambda value: _is_list(value, _is_text),
    "binding": lambda value: _is_list(value, _is_count),
    "guards": lambda value: _is_list(value, _is_guard),
    "metadata": lambda value: isinstance(value, dict),
    "numerics": _is_count,
    "blobs": lambda value: _is_list(value, _is_count) and len(value) > 0,
    "belongs": _is_text,
}
"""The fields of a header, and whether a value is one."""


def _header_problem(header: Any) -> str:
    """What is wrong with the form of a header, or nothing."""
    if not isinstance(header, dict):
        return "its header is no table of fields"
    found = cast("dict[str, Any]", header)
    if found.keys() != _HEADER.keys():
        return f"its header has the fields {sorted(found)}, and needs {sorted(_HEADER)}"
    return next(
        (f"`{name}` of its header is of another form" for name, is_one in _HEADER.items() if not is_one(found[name])),
        "",
    )
