"""Reads x86-64 ELF relocatable files: their sections, symbols and relocations as plain records."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tessera.diagnostics.codes import LoadError

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
