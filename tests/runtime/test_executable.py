"""Executables survive the disk, and what is not one is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import LoadError
from tessera.runtime.callback import Callbacks
from tessera.runtime.executable import MAGIC, VERSION, Executable, Guard, Port
from tessera.types import numerics
from tests.runtime.programs import add_executable

names = st.text(max_size=6)
ports = st.builds(Port, st.sampled_from(["f32", "bf16", "i4", "bool"]), st.lists(names, max_size=3).map(tuple), names)


@st.composite
def executables(draw: st.DrawFn) -> Executable:
    inputs = tuple(draw(st.lists(ports, max_size=4)))
    dims = sum(port.rank for port in inputs)
    symbols = tuple(draw(st.lists(names, max_size=3 if dims else 0)))
    return Executable(
        objects=tuple(draw(st.lists(st.binary(max_size=40), max_size=3))),
        inputs=inputs,
        outputs=tuple(draw(st.lists(ports, max_size=3))),
        symbols=symbols,
        binding=tuple(draw(st.integers(0, dims - 1)) for _ in symbols),
        guards=tuple(draw(st.lists(st.builds(Guard, names, names, names), max_size=3))),
        metadata=draw(st.dictionaries(names, st.integers() | names | st.lists(names, max_size=2), max_size=3)),
        support=draw(st.binary(max_size=10)),
    )


@given(executables())
def test_reading_what_was_written_gives_the_same_value(executable: Executable) -> None:
    assert Executable.from_bytes(executable.to_bytes()) == executable


def test_equal_executables_are_equal_bytes() -> None:
    assert add_executable().to_bytes() == add_executable().to_bytes()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_refused(version: int) -> None:
    data = bytearray(add_executable().to_bytes())
    data[len(MAGIC)] = version
    with pytest.raises(LoadError, match=f"has format version {version}, this Tessera reads version {VERSION}"):
        Executable.from_bytes(bytes(data))


def test_code_of_another_recipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would add floats in another order than what is compiled here."""
    monkeypatch.setattr(numerics, "VERSION", numerics.VERSION - 1)
    data = add_executable().to_bytes()
    monkeypatch.undo()
    with pytest.raises(LoadError, match=f"by version {numerics.VERSION - 1} of the recipes.*by version"):
        Executable.from_bytes(data)


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(add_executable().to_bytes())
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(LoadError):
        Executable.from_bytes(bytes(whole))


@given(st.integers(0, len(add_executable().to_bytes()) - 1))
def test_a_file_cut_short_is_refused(length: int) -> None:
    with pytest.raises(LoadError):
        Executable.from_bytes(add_executable().to_bytes()[:length])


def test_a_binding_outside_the_input_dims_is_refused() -> None:
    with pytest.raises(LoadError, match="outside the 1 input dims"):
        Executable((), (Port("f32", ("N",)),), (), symbols=("N",), binding=(1,))


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(LoadError, match="unknown dtype `f31`"):
        Port("f31", ())


NO_CALLBACKS: list[Any] = [
    *(7, "no list", {"a": 1}, [None], [[]]),
    *(
        [["print", 0, "x", []]],
        [["print", "0", "x", [], []]],
        [["print", 0, "x", 3, []]],
        [["print", 0, "x", [[1]], []]],
    ),
]


@pytest.mark.parametrize("callbacks", NO_CALLBACKS)
def test_callbacks_that_are_none_are_refused(callbacks: Any) -> None:
    with pytest.raises(LoadError, match="callback"):
        Callbacks.of({"callbacks": callbacks}, ())
