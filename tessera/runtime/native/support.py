"""The native support code: its source, the object it becomes, and what it gives to Python and to executables."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tessera.diagnostics.codes import LoadError
from tessera.runtime.cache import default_store, key_of
from tessera.runtime.dlpack import CODES, new_capsule
from tessera.runtime.loader import link
from tessera.types.dtype import ALL
from tessera.types.settings import Settings

# What native code assumes of objects of CPython and NumPy, and the check of it for the Python that runs.

OFFSETS: Mapping[str, int] = {
    # object.h: a reference count, then the type.
    "PyObject.ob_type": 8,
    # pycapsule.c: the header of an object, then the pointer.
    "PyCapsule.pointer": 16,
    # ndarraytypes.h, the same since NumPy 1.7 and part of its stable ABI.
    "PyArrayObject.data": 16,
    "PyArrayObject.nd": 24,
    "PyArrayObject.dimensions": 32,
    "PyArrayObject.strides": 40,
    "PyArrayObject.descr": 56,
    "PyArrayObject.flags": 64,
}
"""Bytes from the start of a structure to a field of it."""
FASTCALL, ONE_ARGUMENT = 0x80, 0x08
"""How native code is given its arguments: METH_FASTCALL and METH_O of the C interface."""
_PLAIN = 0x101
"""NumPy's flags of an array that is C-contiguous and aligned."""
_SEARCHED = 128
"""Bytes of an object in which a field is looked for that is not where it should be."""


class MethodDefinition(ctypes.Structure):
    """`PyMethodDef`, which must live as long as builtins made of it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]

    def builtin(self, itself: object, module: object) -> Any:
        """A builtin that gives `itself` to native code; it keeps that and `module` alive, not this definition."""
        return _new_function(ctypes.addressof(self), itself, module)


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]


_flags_of = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(("PyCFunction_GetFlags", ctypes.pythonapi))


def with_offsets(text: str) -> str:
    """LLVM text with the offsets in place of their names."""
    for name, offset in OFFSETS.items():
        text = text.replace(f"${name}", str(offset))
    return text


def check_python(offsets: Mapping[str, int] = OFFSETS) -> None:
    """Raise LoadError (T0704) where this Python lays objects out in another way than native code reads them."""
    sample = MethodDefinition()
    _check(offsets, "PyObject.ob_type", id(sample), id(MethodDefinition))
    name = ctypes.c_char_p(b"tessera.layout")
    capsule = new_capsule(ctypes.addressof(sample), name, None)
    _check(offsets, "PyCapsule.pointer", id(capsule), ctypes.addressof(sample))
    # Python itself says what it reads of a definition of ours, and how its own builtins are called.
    sample.name, sample.flags = b"layout", FASTCALL
    made = sample.builtin(None, None)
    read = made.__name__, *map(_flags_of, (made, len, isinstance))
    if read != ("layout", FASTCALL, ONE_ARGUMENT, FASTCALL):
        raise _refusal("PyMethodDef", f"name and flags of known builtins are read as {read}", 0)


def check_arrays(sample: Any, offsets: Mapping[str, int] = OFFSETS) -> None:
    """Raise LoadError (T0704) where this NumPy lays arrays out in another way; `sample` is one of two dims."""
    start, expected = id(sample), sample.__array_interface__
    _check(offsets, "PyArrayObject.data", start, expected["data"][0])
    _check(offsets, "PyArrayObject.nd", start, sample.ndim, ctypes.c_int)
    _check(offsets, "PyArrayObject.descr", start, id(sample.dtype))
    dims, strides = (_word(start + offsets[f"PyArrayObject.{name}"]) for name in ("dimensions", "strides"))
    # NumPy has both in one piece of memory; what does not look like that is no address, and is not followed.
    words = (ctypes.c_int64 * 4).from_address(dims) if dims and strides == dims + 16 else ()
    if tuple(words) != (*sample.shape, *sample.strides):
        what = f"those of an array are not {sample.shape}, followed by `strides` {sample.strides}"
        raise _refusal("PyArrayObject.dimensions", what, offsets["PyArrayObject.dimensions"])
    flags = ctypes.c_int.from_address(start + offsets["PyArrayObject.flags"]).value
    if flags & _PLAIN != _PLAIN:
        raise _refusal("PyArrayObject.flags", f"the flags of a contiguous array are {flags:#x} there")


def slot_offset(instance: object, value: object) -> int:
    """The bytes from the start of an object to the slot that has a value; raises LoadError (T0704) where none has."""
    words = (ctypes.c_void_p * (type(instance).__basicsize__ // 8)).from_address(id(instance))
    found = [8 * at for at, word in enumerate(words) if word == id(value)]
    if len(found) != 1:
        raise LoadError(
            f"a slot of `{type(instance).__name__}` was found at {found} instead of at one offset",
            span=None,
            fix="use CPython 3.11 or newer with the GIL",
        )
    return found[0]


def _word(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _check(offsets: Mapping[str, int], name: str, start: int, value: int, kind: Any = ctypes.c_void_p) -> None:
    """Raise unless the field of an object that begins at `start` has a value; say where it is instead."""
    expected = offsets[name]
    if kind.from_address(start + expected).value == value:
        return
    step = ctypes.sizeof(kind)
    found = (at for at in range(0, _SEARCHED, step) if kind.from_address(start + at).value == value)
    where = next((f"it was found at byte {at}" for at in found), f"it was not found in {_SEARCHED} bytes")
    raise _refusal(name, where, expected)


def _refusal(name: str, what: str, expected: int | None = None) -> LoadError:
    at = OFFSETS[name] if expected is None else expected
    return LoadError(
        f"`{name}` is expected at byte {at} of its structure: {what}",
        span=None,
        notes=(
            f"native code reads objects of {platform.python_implementation()} {platform.python_version()} in place",
        ),
        fix="use CPython 3.11 or newer with the GIL, and NumPy 1.26 or newer",
    )


ObjectCompiler = Callable[[str], bytes]

_PARTS = ("layout", "memory", "pool", "copy", "tensor", "array", "dlpack", "dlpack_import", "interrupt", "dispatch")
# The copy loop is written once and made for each width of an element.
_TEMPLATE, _WIDTHS = "copy_plane", (8, 16, 32, 64)
_SLOTS = 32  # entries of the tables by dtype code in %Environment
_EXCHANGES = 8  # types of other libraries that calls read in place; tensors of further ones are adopted first
_NO_WORD = 2**32 - 1


class Environment(ctypes.Structure):
    """`%Environment` of the native code."""

    _fields_ = [
        ("tensor_type", ctypes.c_void_p),
        ("handle_offset", ctypes.c_int64),
        ("array_type", ctypes.c_void_p),
        ("report", ctypes.c_void_p),
        ("descriptors", ctypes.c_void_p * _SLOTS),
        ("dlpack", ctypes.c_uint32 * _SLOTS),
        ("item_bytes", ctypes.c_int64 * _SLOTS),
        ("exchanges", (ctypes.c_void_p * 4) * _EXCHANGES),
        ("exchanged", ctypes.c_uint32 * _SLOTS),
    ]


class MemoryStats(ctypes.Structure):
    """`%MemoryStats` of the native code: the allocator's counters, four of bytes, then events."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("limit", "cached", "in_use", "peak", "requests", "hits", "evictions", "cursor")
    ]


_pointer, _long, _int, _object = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.py_object


class Support:
    """The loaded support code; there is one per process, and it is never unloaded."""

    def __init__(self, data: bytes) -> None:
        check_python()
        self.object = data
        self.code = link([data])
        # Workers run this code until the process ends.
        self.code.keep_forever()
        address = self.code.address
        self.environment = Environment.from_address(address("tessera_environment"))
        self.memory = MemoryStats.from_address(address("tessera_memory_stats"))
        self._definitions: list[MethodDefinition] = []
        self._dispatch = self._definition("call", "tessera_dispatch", FASTCALL)
        self.shape: Callable[[object], tuple[int, ...]] = self._builtin("shape", "tessera_tensor_shape")
        self.form: Callable[[object], bytes] = self._builtin("form", "tessera_tensor_form")
        self.strides: Callable[[object], tuple[int, ...]] = self._builtin("strides", "tessera_tensor_strides")
        self.describe: Callable[[object], tuple[int, int, int, int, int, int]] = self._builtin(
            "describe", "tessera_tensor_describe"
        )
        self.from_array: Callable[[object], Any] = self._builtin("from_array", "tessera_tensor_from_array")
        self.from_capsule: Callable[[object], Any] = self._builtin("from_capsule", "tessera_tensor_from_capsule")
        self.from_exchange: Callable[[object], Any] = self._builtin("from_exchange", "tessera_tensor_from_exchange")
        self._kept: list[tuple[object, ...]] = []
        self.array_struct: Callable[[object], object] = self._builtin("array_struct", "tessera_array_struct")
        # PYFUNCTYPE keeps the GIL: these touch Python objects, or are too short to be worth letting it go.
        self.tensor_new = self._with_gil("tessera_tensor_new", _pointer, _int, _int, _pointer)
        self.tensor_make = self._with_gil(
            "tessera_tensor_make", _pointer, _pointer, _int, _int, _pointer, _pointer, _pointer, _int, _int
        )
        self.tensor_handle = self._with_gil("tessera_tensor_handle", _object, _pointer)
        self.dlpack_export = self._with_gil("tessera_dlpack_export", _object, _object, _int)
        self.alloc = self._with_gil("tessera_alloc", _pointer, _long)
        self.free = self._with_gil("tessera_free", None, _pointer)
        self.trim = self._with_gil("tessera_memory_trim", None, _long)
        self.threads = self._with_gil("tessera_threads", _long)
        self._configure = self._without_gil("tessera_pool_configure", None, _long, _long)
        self.pool_run = self._without_gil("tessera_pool_run", _long, _pointer, _pointer, _long, _long)
        self.copy_strided = self._without_gil(
            "tessera_copy_strided", None, _pointer, _pointer, _int, _pointer, _pointer, _long
        )
        self._fill_tables()
        ctypes.c_uint64.from_address(address("tessera_main_thread")).value = threading.main_thread().ident or 0
        settings = Settings.from_environment()
        self.memory.limit = settings.memory_bytes
        self._spin = settings.spin_microseconds * 1000
        self.configure(settings.threads)
        self._register_fork_handlers()

    def configure(self, threads: int) -> None:
        """Use this many threads, the caller included, from the next kernel on."""
        self._configure(threads, self._spin)

    def dispatcher(self, program: object, owner: object) -> Callable[..., Any]:
        """The builtin that calls one executable: `program` is the capsule of its record, `owner` keeps both alive."""
        return self._dispatch.builtin(program, owner)

    def _definition(self, name: str, symbol: str, flags: int) -> MethodDefinition:
        definition = MethodDefinition(name.encode(), self.code.address(symbol), flags, None)
        self._definitions.append(definition)
        return definition

    def _builtin(self, name: str, symbol: str) -> Callable[[object], Any]:
        return self._definition(name, symbol, ONE_ARGUMENT).builtin(None, None)

    def _with_gil(self, symbol: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.PYFUNCTYPE(result, *arguments)(self.code.address(symbol))

    def _without_gil(self, symbol: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(self.code.address(symbol))

    def read_in_place(self, kind: type[Any], table: int, gradient: str | None, negative: str | None) -> None:
        """Let calls read tensors of another library's type, whose `DLPackExchangeAPI` is at `table`, as they are.

        `gradient` is an attribute, and `negative` a method, that must give False; None where there is none.
        """
        at = len(self._kept)
        if at == _EXCHANGES or any(kept[0] is kind for kept in self._kept):
            return
        self._kept.append((kind, gradient, negative))
        names = [0 if name is None else id(name) for name in (gradient, negative)]
        self.environment.exchanges[at][1:] = [table, *names]
        # The type last: native code takes an entry to be complete that has one.
        self.environment.exchanges[at][0] = id(kind)

    def _fill_tables(self) -> None:
        self.environment.exchanged[:] = [_NO_WORD] * _SLOTS
        for code, dtype in enumerate(ALL):
            kind, bits = CODES[dtype.name]
            self.environment.dlpack[code] = kind | bits << 8 | 1 << 16
            if dtype.name != "i4":  # which DLPack has no name for
                self.environment.exchanged[code] = self.environment.dlpack[code]
            self.environment.item_bytes[code] = dtype.bytes

    def _register_fork_handlers(self) -> None:
        lock = self._with_gil("tessera_memory_lock", None)
        unlock = self._with_gil("tessera_memory_unlock", None)
        restart = self._with_gil("tessera_pool_after_fork", None)

        def in_child() -> None:
            unlock()
            restart()

        os.register_at_fork(before=lock, after_in_parent=unlock, after_in_child=in_child)


def source() -> str:
    """The support code as one LLVM module."""
    template = _native(_TEMPLATE)
    loops = [template.replace("$BITS", str(bits)).replace("$BYTES", str(bits // 8)) for bits in _WIDTHS]
    return with_offsets("\n".join([_native(part) for part in _PARTS] + loops))


def _native(part: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{part}.ll"), encoding="utf-8") as file:
        return file.read()


_lock = threading.RLock()
_loaded: Support | None = None
_compiler: ObjectCompiler | None = None


def set_object_compiler(compiler: ObjectCompiler) -> None:
    """Say who compiles LLVM text to an object when the support code is not in the cache."""
    global _compiler
    _compiler = compiler


def load_support(compile_text: ObjectCompiler | None = None, embedded: bytes = b"") -> Support:
    """The support code of this process, loaded at the first call.

    Its object comes from `embedded`, else from the disk cache, else from `compile_text` or the compiler set before.

    Raises: LoadError (T0704) when there is none of these.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            try:
                _loaded = Support(embedded or support_object(compile_text))
            except LoadError:
                if embedded:
                    raise
                # The cache has something else under its key: it is made again.
                default_store().remove(key_of("support", source()))
                _loaded = Support(support_object(compile_text))
    return _loaded


def missing_source() -> str | None:
    """The support code as text where there is no object of it yet, so that somebody may start on it early."""
    if _loaded is not None:
        return None
    text = source()
    return None if default_store().get(key_of("support", text)) is not None else text


def support_object(compile_text: ObjectCompiler | None = None) -> bytes:
    """The support code as an object, for loading here or for carrying along in a bundle."""
    if _loaded is not None:
        return _loaded.object
    text = source()
    store, key = default_store(), key_of("support", text)
    found = store.get(key)
    if found is not None:
        return found
    compiler = compile_text or _compiler
    if compiler is None:
        raise LoadError(
            "the native support code is not in the cache and there is no compiler to make it",
            span=None,
            notes=(f"looked in {store.folder}",),
            fix="run a compiled function once where the compiler is installed, or export with the support code",
        )
    made = compiler(text)
    store.put(key, made)
    return made
