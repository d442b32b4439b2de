"""What native code assumes of objects of CPython and NumPy, and the check of it for the Python that runs.

The call path reads objects in place, since a call of the C interface for each field would cost more than all the rest
of it. `OFFSETS` is all that it relies on beyond documented interfaces; the LLVM text in this folder names
each (`$PyCapsule.pointer`), so that there is one table. `check_python` and `check_arrays` look at real objects of this
process before any native code does, and refuse a Python or NumPy that lays them out in another way: a free-threaded
build, say, whose object header is longer. `docs/contributing/native-calls.md` has the whole story.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from typing import Any

from tessera.diagnostics.codes import LoadError

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

_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


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
    capsule = _capsule_new(ctypes.addressof(sample), name, None)
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
