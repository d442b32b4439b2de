"""The loader: links relocatable ELF objects into executable memory without LLVM, by a table of the architecture.

A cached program and a deployed bundle are objects as LLVM wrote them, so a process that only runs them needs a linker
and no compiler. Objects are laid end to end in one mapping (code and constants, then variables), every global name that
a relocation mentions gets a slot in a table of addresses and a stub that jumps through it, and relocations are filled
in before the code half is sealed. All that is true of one instruction set only is its `Architecture`: another one is
another table.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from tessera.diagnostics.codes import LoadError
from tessera.types.frozen import frozen

PAGE = 4096
_WORD = (1 << 64) - 1
_I32, _U32, _I64, _U64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<Q")


class RelocationRule(NamedTuple):
    """How one kind of relocation is computed, and how its value is stored at an offset.

    The value counts from `origin`: 0, the address of the field itself (the psABI's "place"), or the table of addresses.
    What it points to is the symbol, or (`through`) its slot in the table, or its stub where a call does not reach it.
    """

    store: Callable[[bytearray, int, int], None]
    origin: str = "zero"
    through: str = "nothing"


@frozen
class Architecture:
    """What loading depends on of an instruction set."""

    name: str
    machines: tuple[str, ...]
    """What `platform.machine()` calls it."""
    elf_machine: int
    """`e_machine` of its object files."""
    relocations: Mapping[int, RelocationRule]
    stub_bytes: int
    write_stub: Callable[[bytearray, int, int], None]
    """Writes, at an offset, a jump to the address in the slot at another."""
    reach: int
    """Bytes from a call to the farthest target that it reaches without a stub, less the addend."""
    flags_field: str
    """The field of `/proc/cpuinfo` that lists features."""
    flag_names: Mapping[str, str]
    """How Linux spells features that LLVM spells otherwise, by more than punctuation."""


def _store_word(data: bytearray, offset: int, value: int) -> None:
    _U64.pack_into(data, offset, value & _WORD)


def _write_x86_stub(code: bytearray, stub: int, slot: int) -> None:
    code[stub : stub + 2] = b"\xff\x25"  # jmp [rip + rel32], relative to the end of the instruction
    _I32.pack_into(code, stub + 2, slot - (stub + 6))


_X86_64 = Architecture(
    name="x86-64",
    machines=("x86_64", "AMD64"),
    elf_machine=62,
    # System V x86-64 psABI, section 4.4.1; those from 25 on belong to the large code model.
    relocations={
        1: RelocationRule(_store_word),  # R_X86_64_64
        2: RelocationRule(_I32.pack_into, "place"),  # PC32
        4: RelocationRule(_I32.pack_into, "place", "stub"),  # PLT32
        9: RelocationRule(_I32.pack_into, "place", "slot"),  # GOTPCREL
        10: RelocationRule(_U32.pack_into),  # 32
        11: RelocationRule(_I32.pack_into),  # 32S
        24: RelocationRule(_I64.pack_into, "place"),  # PC64
        25: RelocationRule(_I64.pack_into, "table"),  # GOTOFF64
        27: RelocationRule(_I64.pack_into, "table", "slot"),  # GOT64
        28: RelocationRule(_I64.pack_into, "place", "slot"),  # GOTPCREL64
        29: RelocationRule(_I64.pack_into, "place"),  # GOTPC64
        31: RelocationRule(_I64.pack_into, "table"),  # PLTOFF64
        41: RelocationRule(_I32.pack_into, "place", "slot"),  # GOTPCRELX
        42: RelocationRule(_I32.pack_into, "place", "slot"),  # REX_GOTPCRELX
    },
    stub_bytes=8,
    write_stub=_write_x86_stub,
    reach=(1 << 31) - PAGE,
    flags_field="flags",
    flag_names={"bmi": "bmi1", "lzcnt": "abm", "sse3": "pni", "crc32": "sse42", "64bit": "lm"},
)
ARCHITECTURES = (_X86_64,)


@cache
def host_architecture() -> Architecture:
    """The architecture of this process; raises LoadError (T0704) where there is no table for it."""
    found = [one for one in ARCHITECTURES if platform.machine() in one.machines and platform.system() == "Linux"]
    if not found:
        names = " or ".join(one.name for one in ARCHITECTURES)
        raise LoadError(f"executables of this kind run on {names} Linux alone", span=None)
    return found[0]


# CPU features: code that needs one that is not there is refused before it is run.


def _plain(name: str) -> str:
    """`avx512_bf16`, `avx512bf16` and `amx-tile` without what Linux and LLVM disagree on."""
    bare = name.removeprefix("+").lower().replace("_", "").replace("-", "").replace(".", "")
    return host_architecture().flag_names.get(bare, bare)


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""The system call of x86-64, its request for register state, and that of tile registers (Linux 5.16, x86/xstate)."""


@cache
def can_use_tiles() -> bool:
    """Whether Linux lets this process use the tile registers of AMX: it must be asked once, for all threads."""
    if platform.system() != "Linux" or platform.machine() not in _X86_64.machines:
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes, call.restype = [ctypes.c_long] * 3, ctypes.c_long
    return call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def usable_flags(field_name: str) -> list[str] | None:
    """The features that Linux lists of this CPU and lets this process use, as it spells them; None where it does not.

    What a process is not permitted is as if the CPU lacked it: code for it is neither made nor loaded here.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            # All CPUs are alike; the file has a block for each.
            flags = next((line.partition(":")[2].split() for line in lines if line.startswith(field_name)), None)
    except OSError:
        return None
    if flags is None or not any(flag.startswith("amx") for flag in flags) or can_use_tiles():
        return flags
    return [flag for flag in flags if not flag.startswith("amx")]


@cache
def host_features() -> frozenset[str] | None:
    """The features of this CPU that this process may use, as `missing_features` spells them; None where nobody says."""
    flags = usable_flags(host_architecture().flags_field)
    return None if flags is None else frozenset(map(_plain, flags))


def missing_features(needed: Iterable[str]) -> list[str]:
    """Which of LLVM's feature names this CPU lacks; none where it does not say what it has."""
    host = host_features()
    # `-name` in a feature list means code made without it, which runs anywhere.
    return [] if host is None else [name for name in needed if name[:1] != "-" and _plain(name) not in host]


# Relocatable ELF files: their sections, symbols and relocations as plain records (System V ABI, chapter 4).

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_RELOCATABLE = 1
_SYMTAB, _RELA_TABLE, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _TLS = 0x1, 0x2, 0x400
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_MOST_BYTES, _ALIGNMENTS = 1 << 30, tuple(1 << power for power in range(13))
"""What a section may have: LLVM aligns nothing to more than a page, and no program of ours comes near a gigabyte."""


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
    """Parse one relocatable file; raises LoadError (T0704) if it is damaged, or not one for this architecture."""
    try:
        found = _read_object(data)
    except (struct.error, ValueError, IndexError) as error:  # a table that leads outside the file, or to no name
        raise LoadError(f"object is damaged: {error}", span=None) from error
    sizes = {section.number: section.size for section in found.sections}
    for symbol in found.symbols:
        if symbol.section in sizes and symbol.value > sizes[symbol.section]:
            raise LoadError(f"object is damaged: `{symbol.name}` is outside its section", span=None)
    if any(one.symbol >= len(found.symbols) for one in found.relocations):
        raise LoadError("object is damaged: a relocation is against a symbol that there is not", span=None)
    return found


def _read_object(data: bytes) -> ObjectFile:
    if len(data) < _HEADER.size or data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        raise LoadError("object is not a 64-bit little-endian ELF file", span=None)
    _, kind, machine, _, _, _, table, _, _, _, _, entry, count, names_at = _HEADER.unpack_from(data)
    host = host_architecture()
    if kind != _RELOCATABLE or machine != host.elf_machine or entry != _SECTION.size:
        what = f"object is for machine {machine}, type {kind}; expected a relocatable {host.name} file"
        raise LoadError(what, span=None)
    if table + count * entry > len(data):
        raise LoadError("object is cut short: its section table is outside the file", span=None)
    headers: list[tuple[int, ...]] = [_SECTION.unpack_from(data, table + index * entry) for index in range(count)]
    names = _bytes_of(data, headers[int(names_at)])
    sections: list[Section] = []
    symbols: tuple[Symbol, ...] = ()
    for index, header in enumerate(headers):
        name_at, kind, flags, _, _, size, link, _, align, _ = header
        if kind == _SYMTAB:
            symbols = _symbols(_bytes_of(data, header), _bytes_of(data, headers[link]))
        name = _name(names, name_at)
        # Unwind tables serve exceptions and debuggers; our code raises nothing and is not registered with either.
        if not flags & _ALLOC or name == ".eh_frame":
            continue
        if flags & _TLS:
            raise LoadError(f"object has thread-local data (`{name}`), which is not linked", span=None)
        if size > _MOST_BYTES or max(align, 1) not in _ALIGNMENTS:
            raise LoadError(f"object is damaged: `{name}` has {size} bytes, aligned to {align}", span=None)
        contents = b"" if kind == _NOBITS else _bytes_of(data, header)
        sections.append(Section(name, index, bool(flags & _WRITE), max(align, 1), size, contents))
    loaded = {section.number for section in sections}
    relocations = tuple(
        Relocation(header[7], offset, info & 0xFFFFFFFF, info >> 32, addend)
        for header in headers
        if header[1] == _RELA_TABLE and header[7] in loaded
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


# The linker.

_READ_WRITE, _READ_EXEC = 3, 5
_PRIVATE_ANONYMOUS, _LOW = 0x22, 0x40
_SLOT_BYTES = 8
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
        if found is None or not self.base <= found < self.base + self.size:
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
    architecture = host_architecture()
    image.code.extend(bytes(-len(image.code) % 16))
    got_start = len(image.code)
    stub_start = got_start + len(externals) * _SLOT_BYTES
    image.code.extend(bytes(len(externals) * (_SLOT_BYTES + architecture.stub_bytes)))
    image.data_start = len(image.code) + (-len(image.code) % PAGE)
    size = max(PAGE, image.data_start + len(image.data) + (-len(image.data) % PAGE))
    base = _map(size)
    try:
        definitions = _definitions(files, image, base)
        own = {_TABLE_NAME: base + got_start, **definitions}
        addresses = {name: _resolve(name, own, table) for name in externals}
        slots = {name: got_start + number * _SLOT_BYTES for number, name in enumerate(externals)}
        stubs = {name: stub_start + number * architecture.stub_bytes for number, name in enumerate(externals)}
        for name in externals:
            _U64.pack_into(image.code, slots[name], addresses[name])
            architecture.write_stub(image.code, stubs[name], slots[name])
        scope = _Scope(architecture, base, base + got_start, image, addresses, slots, stubs)
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
            if symbol.binding != _LOCAL:
                names[symbol.name] = None
    return list(names)


def _definitions(files: Sequence[ObjectFile], image: _Image, base: int) -> dict[str, int]:
    """Addresses of all global symbols the objects define; the first weak definition stands unless a strong one is."""
    found: dict[str, tuple[int, int]] = {}
    for number, file in enumerate(files):
        for symbol in file.symbols:
            if symbol.binding == _LOCAL or symbol.section == _UNDEFINED:
                continue
            if symbol.section == _COMMON:
                raise LoadError(f"`{symbol.name}` is a common symbol, which is not linked", span=None)
            known = found.get(symbol.name)
            if known is not None and known[1] == symbol.binding == _GLOBAL:
                raise LoadError(f"`{symbol.name}` is defined by two objects", span=None)
            if known is None or (known[1] == _WEAK and symbol.binding == _GLOBAL):
                address = symbol.value
                if symbol.section != _ABSOLUTE:
                    if (number, symbol.section) not in image.offsets:
                        raise LoadError(f"`{symbol.name}` is in a section that is not loaded", span=None)
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
    """What a relocation may refer to; slots and stubs are offsets from `base`."""

    architecture: Architecture
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
        half, address = (image.data, base + image.data_start + where) if writable else (image.code, base + where)
        symbol = file.symbols[hole.symbol]
        if symbol.binding != _LOCAL:
            target = scope.addresses[symbol.name]
        elif symbol.section == _ABSOLUTE:
            target = symbol.value
        else:
            key = (number, symbol.section)
            if key not in image.offsets:
                raise LoadError(f"relocation against a section that is not loaded (`{symbol.name}`)", span=None)
            target = base + image.offset(key) + symbol.value
        _fill(half, where, hole, symbol.name, address, target, scope)


def _fill(half: bytearray, where: int, hole: Relocation, name: str, address: int, target: int, scope: _Scope) -> None:
    """Compute and store one field."""
    rule = scope.architecture.relocations.get(hole.kind)
    if rule is None:
        raise LoadError(f"relocation kind {hole.kind} (against `{name}`) is not one the loader knows", span=None)
    if rule.through == "slot":
        if name not in scope.slots:
            raise LoadError("table relocation against a local symbol", span=None)
        target = scope.base + scope.slots[name]
    # Only a call or jump may go by way of a stub; data that far away has to be reached through the table.
    elif rule.through == "stub" and name in scope.stubs:
        reach = scope.architecture.reach
        target = target if -reach <= target - address < reach else scope.base + scope.stubs[name]
    origin = address if rule.origin == "place" else scope.table if rule.origin == "table" else 0
    try:
        rule.store(half, where, target + hole.addend - origin)
    except struct.error:
        raise LoadError(f"`{name}` is out of reach of a relocation of kind {hole.kind}", span=None) from None


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
