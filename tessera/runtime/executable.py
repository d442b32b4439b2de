"""`Executable`: one compiled function as a plain value, and the file format it is kept in."""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tessera.diagnostics.codes import LoadError
from tessera.types.dtype import BY_NAME, DType
from tessera.types.frozen import frozen

# Links our own x86-64 ELF objects into executable memory, without LLVM.

# Reads x86-64 ELF relocatable files: their sections, symbols and relocations as plain records.

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_RELOCATABLE, _X86_64 = 1, 62
SYMTAB, STRTAB, RELA, NOBITS = 2, 3, 4, 8
WRITE, ALLOC, TLS = 0x1, 0x2, 0x400
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2
LOCAL, GLOBAL, WEAK = 0, 1, 2

# Relocation kinds (System V x86-64 psABI, section 4.4.1).
R_64, R_PC32, R_PLT32, R_GOTPCREL, R_32, R_32S, R_PC64 = 1, 2, 4, 9, 10, 11, 24
R_GOTPCRELX, R_REX_GOTPCRELX = 41, 42
R_GOTOFF64, R_GOT64, R_GOTPCREL64, R_GOTPC64, R_PLTOFF64 = 25, 27, 28, 29, 31  # the large code model


class Section(NamedTuple):
    """A piece of the file that occupies memory; `data` is empty for zero-filled ones."""

    name: str
    number: int
    writable: bool
    align: int
    size: int
    data: bytes


class Symbol(NamedTuple):
    """A name, where it is defined (a section number or one of the reserved ones), and its offset there."""

    name: str
    binding: int
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    """A hole at `offset` of section `section`, to be filled from symbol number `symbol`."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile(NamedTuple):
    """What a linker needs of one relocatable file."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes) -> ObjectFile:
    """Parse one relocatable file; raises LoadError (T0704) if it is not one for x86-64."""
    if len(data) < _HEADER.size or data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        raise LoadError("object is not a 64-bit little-endian ELF file", span=None)
    _, kind, machine, _, _, _, table, _, _, _, _, entry, count, names_at = _HEADER.unpack_from(data)
    if kind != _RELOCATABLE or machine != _X86_64 or entry != _SECTION.size:
        raise LoadError(f"object is for machine {machine}, type {kind}; expected a relocatable x86-64 file", span=None)
    if table + count * entry > len(data):
        raise LoadError("object is cut short: its section table is outside the file", span=None)
    headers: list[tuple[int, ...]] = [_SECTION.unpack_from(data, table + index * entry) for index in range(count)]
    names = _bytes_of(data, headers[int(names_at)])
    sections: list[Section] = []
    symbols: tuple[Symbol, ...] = ()
    for index, header in enumerate(headers):
        name_at, kind, flags, _, _, size, link, _, align, _ = header
        if kind == SYMTAB:
            symbols = _symbols(_bytes_of(data, header), _bytes_of(data, headers[link]))
        name = _name(names, name_at)
        # Unwind tables serve exceptions and debuggers; our code raises nothing and is not registered with either.
        if not flags & ALLOC or name == ".eh_frame":
            continue
        if flags & TLS:
            raise LoadError(f"object has thread-local data (`{name}`), which is not linked", span=None)
        contents = b"" if kind == NOBITS else _bytes_of(data, header)
        sections.append(Section(name, index, bool(flags & WRITE), max(align, 1), size, contents))
    placed = {section.number for section in sections}
    relocations = tuple(
        Relocation(header[7], offset, info & 0xFFFFFFFF, info >> 32, addend)
        for header in headers
        if header[1] == RELA and header[7] in placed
        for offset, info, addend in _RELA.iter_unpack(_bytes_of(data, header))
    )
    return ObjectFile(tuple(sections), symbols, relocations)


def _bytes_of(data: bytes, header: tuple[int, ...]) -> bytes:
    offset, size = header[4], header[5]
    if offset + size > len(data):
        raise LoadError("object is cut short: a section is outside the file", span=None)
    return data[offset : offset + size]


def _name(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _symbols(data: bytes, names: bytes) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(_name(names, name_at), info >> 4, section, value, size)
        for name_at, info, _, section, value, size in _SYMBOL.iter_unpack(data)
    )


PAGE = 4096
_READ_WRITE, _READ_EXEC = 3, 5
_PRIVATE_ANONYMOUS, _LOW = 0x22, 0x40

_GOT_BYTES = 8
_STUB = b"\xff\x25"  # jmp [rip + rel32]
_STUB_BYTES = 8

_I32, _U32, _I64, _U64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<Q")
_WORD = (1 << 64) - 1
_NEAR = (1 << 31) - PAGE  # reach of a 32-bit displacement, less the addend

# How each kind of relocation is stored, and what its value is relative to.
_FIELDS = {
    R_64: (_U64, "nothing"),
    R_32: (_U32, "nothing"),
    R_32S: (_I32, "nothing"),
    R_PC32: (_I32, "place"),
    R_PC64: (_I64, "place"),
    R_PLT32: (_I32, "place"),
    R_GOTPCREL: (_I32, "place"),
    R_GOTPCRELX: (_I32, "place"),
    R_REX_GOTPCRELX: (_I32, "place"),
    R_GOTPCREL64: (_I64, "place"),
    R_GOTPC64: (_I64, "place"),
    R_GOT64: (_I64, "table"),
    R_GOTOFF64: (_I64, "table"),
    R_PLTOFF64: (_I64, "table"),
}
_THROUGH_TABLE = frozenset((R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX, R_GOTPCREL64, R_GOT64))
_TABLE_NAME = "_GLOBAL_OFFSET_TABLE_"

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_mprotect = _libc.mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class LinkedCode:
    """Objects linked into one stretch of memory; unmapped when nothing holds it any more."""

    __slots__ = ("_keep", "_unmap", "base", "size", "symbols")

    def __init__(self, base: int, size: int, symbols: Mapping[str, int]) -> None:
        self.base, self.size, self.symbols = base, size, symbols
        self._keep = False
        # Held here because module globals may be gone when the interpreter shuts down.
        self._unmap = _munmap

    def address(self, name: str) -> int:
        """The address of a global symbol; raises LoadError (T0704) if no object defines it."""
        found = self.symbols.get(name)
        if found is None:
            raise LoadError(f"no object of the executable defines `{name}`", span=None)
        return found

    def keep_forever(self) -> None:
        """Never unmap: other threads may be running this code until the process ends."""
        self._keep = True

    def __del__(self) -> None:
        if not self._keep:
            self._unmap(self.base, self.size)


@dataclass(slots=True)
class _Image:
    """The bytes being linked, laid out as they will be in memory."""

    code: bytearray = field(default_factory=bytearray)
    data: bytearray = field(default_factory=bytearray)
    offsets: dict[tuple[int, int], tuple[bool, int]] = field(default_factory=dict[tuple[int, int], tuple[bool, int]])
    data_start: int = 0

    def add(self, key: tuple[int, int], section: Section) -> None:
        """Append a section to its half of the image, aligned, and note where it went."""
        half = self.data if section.writable else self.code
        half.extend(bytes(-len(half) % section.align))
        self.offsets[key] = (section.writable, len(half))
        half.extend(section.data or bytes(section.size))

    def offset(self, key: tuple[int, int]) -> int:
        writable, offset = self.offsets[key]
        return self.data_start + offset if writable else offset


def link(objects: Sequence[bytes], table: Mapping[str, int] | None = None) -> LinkedCode:
    """Link objects with each other, then with `table` (address by name), then with the C library and the process.

    Code and constants end up read-and-execute, variables read-and-write; no page is ever both writable and executable.

    Raises: LoadError (T0704) for a name nothing defines, a doubly defined one, or a relocation out of reach.
    """
    files = [read_object(data) for data in objects]
    image = _Image()
    for number, file in enumerate(files):
        for section in file.sections:
            image.add((number, section.number), section)
    externals = _externals(files)
    got_start, stub_start = _reserve_tables(image, len(externals))
    image.data_start = len(image.code) + (-len(image.code) % PAGE)
    size = max(PAGE, image.data_start + len(image.data) + (-len(image.data) % PAGE))
    base = _map(size)
    try:
        definitions = _definitions(files, image, base)
        own = {_TABLE_NAME: base + got_start, **definitions}
        addresses = {name: _resolve(name, own, table) for name in externals}
        slots = {name: (base + got_start + number * _GOT_BYTES) for number, name in enumerate(externals)}
        stubs = {name: (base + stub_start + number * _STUB_BYTES) for number, name in enumerate(externals)}
        for number, name in enumerate(externals):
            _write_slot(image.code, got_start, stub_start, number, addresses[name])
        scope = _Scope(base, base + got_start, image, addresses, slots, stubs)
        for number, file in enumerate(files):
            _relocate(number, file, scope)
        _install(image, base)
    except BaseException:
        _munmap(base, size)
        raise
    return LinkedCode(base, size, definitions)


def _externals(files: Sequence[ObjectFile]) -> list[str]:
    """Every global name some relocation mentions; each gets a table slot and a stub, whoever defines it."""
    names: dict[str, None] = {}
    for file in files:
        for relocation in file.relocations:
            symbol = file.symbols[relocation.symbol]
            if symbol.binding != LOCAL:
                names[symbol.name] = None
    return list(names)


def _reserve_tables(image: _Image, count: int) -> tuple[int, int]:
    image.code.extend(bytes(-len(image.code) % 16))
    got_start = len(image.code)
    image.code.extend(bytes(count * (_GOT_BYTES + _STUB_BYTES)))
    return got_start, got_start + count * _GOT_BYTES


def _write_slot(code: bytearray, got_start: int, stub_start: int, number: int, address: int) -> None:
    slot, stub = got_start + number * _GOT_BYTES, stub_start + number * _STUB_BYTES
    _U64.pack_into(code, slot, address)
    code[stub : stub + 2] = _STUB
    _I32.pack_into(code, stub + 2, slot - (stub + 6))


def _definitions(files: Sequence[ObjectFile], image: _Image, base: int) -> dict[str, int]:
    """Addresses of all global symbols the objects define; the first weak definition stands unless a strong one is."""
    found: dict[str, tuple[int, int]] = {}
    for number, file in enumerate(files):
        for symbol in file.symbols:
            if symbol.binding == LOCAL or symbol.section == UNDEFINED:
                continue
            if symbol.section == COMMON:
                raise LoadError(f"`{symbol.name}` is a common symbol, which is not linked", span=None)
            known = found.get(symbol.name)
            if known is not None and known[1] == symbol.binding == GLOBAL:
                raise LoadError(f"`{symbol.name}` is defined by two objects", span=None)
            if known is None or (known[1] == WEAK and symbol.binding == GLOBAL):
                address = symbol.value
                if symbol.section != ABSOLUTE:
                    address += base + image.offset((number, symbol.section))
                found[symbol.name] = (address, symbol.binding)
    return {name: address for name, (address, _) in found.items()}


def _resolve(name: str, definitions: Mapping[str, int], table: Mapping[str, int] | None) -> int:
    found = definitions.get(name)
    if found is None and table is not None:
        found = table.get(name)
    if found is None:
        found = process_address(name)
    if found is None:
        raise LoadError(
            f"unresolved symbol `{name}`: neither the objects, the runtime nor the C library define it", span=None
        )
    return found


def process_address(name: str) -> int | None:
    """The address of a name the process itself exports (the C library, the Python C API), or None."""
    try:
        return ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value
    except AttributeError:
        return None


@frozen
class _Scope:
    """What a relocation may refer to."""

    base: int
    table: int
    image: _Image
    addresses: Mapping[str, int]
    slots: Mapping[str, int]
    stubs: Mapping[str, int]


def _relocate(number: int, file: ObjectFile, scope: _Scope) -> None:
    image, base = scope.image, scope.base
    for hole in file.relocations:
        writable, start = image.offsets[(number, hole.section)]
        where = start + hole.offset
        half, place = (image.data, base + image.data_start + where) if writable else (image.code, base + where)
        symbol = file.symbols[hole.symbol]
        if symbol.binding != LOCAL:
            target = scope.addresses[symbol.name]
        elif symbol.section == ABSOLUTE:
            target = symbol.value
        else:
            key = (number, symbol.section)
            if key not in image.offsets:
                raise LoadError(f"relocation against a section that is not loaded (`{symbol.name}`)", span=None)
            target = base + image.offset(key) + symbol.value
        _fill(half, where, hole, symbol.name, place, target, scope)


def _fill(half: bytearray, where: int, hole: Relocation, name: str, place: int, target: int, scope: _Scope) -> None:
    """Compute and store one field."""
    kind = hole.kind
    form = _FIELDS.get(kind)
    if form is None:
        raise LoadError(f"relocation kind {kind} (against `{name}`) is not one the loader knows", span=None)
    writer, origin = form
    if kind in _THROUGH_TABLE:
        if name not in scope.slots:
            raise LoadError("table relocation against a local symbol", span=None)
        target = scope.slots[name]
    # Only a call or jump may go by way of a stub; data that far away has to be reached through the table.
    elif kind == R_PLT32 and name in scope.stubs and not -_NEAR <= target - place < _NEAR:
        target = scope.stubs[name]
    value = target + hole.addend - (place if origin == "place" else scope.table if origin == "table" else 0)
    try:
        writer.pack_into(half, where, value & _WORD if kind == R_64 else value)
    except struct.error:
        raise LoadError(f"`{name}` is out of reach of a relocation of kind {kind}", span=None) from None


def _map(size: int) -> int:
    # Low memory first: there even 32-bit absolute addresses (jump tables of non-PIC code) reach.
    for where in (_LOW, 0):
        base = _mmap(None, size, _READ_WRITE, _PRIVATE_ANONYMOUS | where, -1, 0)
        if base is not None and base != ctypes.c_void_p(-1).value:
            return base
    raise LoadError(f"cannot map {size} bytes for code (errno {ctypes.get_errno()})", span=None)


def _install(image: _Image, base: int) -> None:
    """Copy the finished bytes into place and seal the code half."""
    ctypes.memmove(base, bytes(image.code), len(image.code))
    if image.data:
        ctypes.memmove(base + image.data_start, bytes(image.data), len(image.data))
    if image.data_start and _mprotect(base, image.data_start, _READ_EXEC) != 0:
        raise LoadError(f"the system refuses executable memory (errno {ctypes.get_errno()})", span=None)


MAGIC = b"TESSERAX"
VERSION = 3
_PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the JSON header
_DIGEST_BYTES = 32


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
    """A fact checked at every call: what it is about, and the two sides that must agree."""

    what: str
    left: str
    right: str


@frozen
class Executable:
    """Machine code and everything the runtime must know to call it.

    `objects` are x86-64 ELF relocatable files that define `tessera_check`, `tessera_shapes`, `tessera_workspace` and
    `tessera_entry`. Symbol `k` is bound from number `binding[k]` of all input dims laid end to end. `support` may hold
    the object of the native support code, so that the file runs where nothing can be compiled.

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
        """A versioned file: prefix, JSON header, blobs, and a SHA-256 of all that."""
        blobs = (*self.objects, self.support)
        header = {
            "inputs": [[port.dtype, list(port.dims), port.name] for port in self.inputs],
            "outputs": [[port.dtype, list(port.dims), port.name] for port in self.outputs],
            "symbols": list(self.symbols),
            "binding": list(self.binding),
            "guards": [[guard.what, guard.left, guard.right] for guard in self.guards],
            "metadata": self.metadata,
            "blobs": [len(blob) for blob in blobs],
        }
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
        blobs: list[bytes] = []
        for size in header["blobs"]:
            blobs.append(data[start : start + size])
            start += size
        if start != end:
            raise LoadError(f"executable is damaged: its parts end at byte {start}, the file at {end}", span=None)
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
    return json.loads(data[_PREFIX.size : start]), start
