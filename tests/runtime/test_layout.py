"""The offsets that native code reads are checked for the Python that runs, and a wrong one is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics.codes import LoadError
from tessera.runtime.native import support
from tessera.runtime.native.support import OFFSETS, check_arrays, check_python, slot_offset, with_offsets

NATIVE = Path(support.__file__).parent
SAMPLE = np.zeros((2, 3), np.float32)
PYTHON = [name for name in OFFSETS if not name.startswith("PyArray")]
ARRAYS = [name for name in OFFSETS if name.startswith("PyArray")]


class _Slots:
    __slots__ = ("first", "second")


def test_this_python_and_this_numpy_are_as_native_code_expects() -> None:
    check_python()
    check_arrays(SAMPLE)


@pytest.mark.parametrize("name", PYTHON)
def test_a_wrong_offset_of_python_is_refused(name: str) -> None:
    with pytest.raises(LoadError, match=re.escape(f"`{name}` is expected at byte {OFFSETS[name] + 8}")):
        check_python({**OFFSETS, name: OFFSETS[name] + 8})


def test_another_layout_of_method_definitions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "FASTCALL", support.FASTCALL | 2)
    with pytest.raises(LoadError, match="`PyMethodDef` is expected"):
        check_python()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_wrong_offset_of_numpy_is_refused(name: str) -> None:
    with pytest.raises(LoadError, match=r"`PyArrayObject\.\w+` is expected at byte"):
        check_arrays(SAMPLE, {**OFFSETS, name: OFFSETS[name] + 8})


def test_the_error_says_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(LoadError) as found:
        check_python({**OFFSETS, "PyCapsule.pointer": 24})
    assert "`PyCapsule.pointer` is expected at byte 24 of its structure: it was found at byte 16" in found.value.message
    assert "CPython" in found.value.render()


def test_a_slot_is_found_where_it_is() -> None:
    instance, marker = _Slots(), object()
    instance.second = marker
    assert slot_offset(instance, marker) == 24
    instance.first = marker
    with pytest.raises(LoadError, match=r"found at \[16, 24\]"):
        slot_offset(instance, marker)


def test_every_offset_in_the_text_is_one_of_the_table() -> None:
    """So that none is written as a number where the check would not see it."""
    texts = {path.name: path.read_text() for path in sorted(NATIVE.glob("*.ll"))}
    named = {name for text in texts.values() for name in re.findall(r"\$(Py\w+\.\w+)", text)}
    assert named
    assert named <= OFFSETS.keys()
    assert not any("$Py" in with_offsets(text) for text in texts.values())
    for file, text in texts.items():
        fields = re.findall(r"getelementptr i8, ptr %(?:object|self|handle), i64 (\S+)", text)
        assert all(field.startswith(("$Py", "%slot")) for field in fields), file
