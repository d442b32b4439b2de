"""cuFFT through a library that records its calls: plans are made once, kept in order, destroyed, and failures told."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda import cufft
from tessera.runtime.devices.cuda.cufft import FORWARD, INVERSE, Cufft, Shape
from tessera.types.dtype import f32, f64


class Recorder:
    """Gives a number to each plan, and notes what is asked with plain values."""

    def __init__(self, failing: str = "", code: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing, self.code, self.next = failing, code, 100

    def __getattr__(self, name: str) -> Any:
        def answer(*words: Any) -> int:
            if name == self.failing:
                return self.code
            if name == "cufftPlanMany":
                plan, rank, sizes, *layout, kind, batch = words
                plan._obj.value = self.next
                self.next += 1
                assert [one if one is None else one.value for one in layout] == [None, 1, 0] * 2
                self.calls.append((name, rank.value, list(sizes), kind.value, batch.value))
            else:
                self.calls.append((name, *(word.value for word in words)))
            return 0

        return answer

    def names(self) -> list[str]:
        found, self.calls = [call[0] for call in self.calls], []
        return found


def test_a_second_call_makes_no_plan() -> None:
    library = Recorder()
    made = Cufft(library)
    shape = Shape("complex", f32, 1000, 8)
    made.execute(shape, 0x1000, 0x2000, 7)
    assert library.calls == [
        ("cufftPlanMany", 1, [1000], 0x29, 8),
        ("cufftSetStream", 100, 7),
        ("cufftExecC2C", 100, 0x1000, 0x2000, FORWARD),
    ]
    library.calls.clear()
    made.execute(Shape("complex", f32, 1000, 8), 0x3000, 0x4000, 9, INVERSE)
    assert library.calls == [("cufftSetStream", 100, 9), ("cufftExecC2C", 100, 0x3000, 0x4000, INVERSE)]
    assert (made.created, made.reused) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "dtype", "number", "name"),
    [
        ("real", f32, 0x2A, "cufftExecR2C"),
        ("half", f32, 0x2C, "cufftExecC2R"),
        ("real", f64, 0x6A, "cufftExecD2Z"),
        ("half", f64, 0x6C, "cufftExecZ2D"),
        ("complex", f64, 0x69, "cufftExecZ2Z"),
    ],
)
def test_each_kind_has_its_plan_and_its_function(kind: str, dtype: Any, number: int, name: str) -> None:
    library = Recorder()
    Cufft(library).execute(Shape(kind, dtype, 12, 3), 16, 32, 0)
    planned, _, done = library.calls
    assert planned == ("cufftPlanMany", 1, [12], number, 3)
    assert done[:2] == (name, 100)
    assert len(done) == (5 if kind == "complex" else 4)  # the others have one direction


def test_any_other_size_is_another_plan_and_the_oldest_goes() -> None:
    library = Recorder()
    made = Cufft(library, most=2)
    first, second, third = (Shape("real", f32, n, 1) for n in (8, 9, 10))
    for shape in (first, second, first, third):  # the second is the one that was not used for longest
        made.execute(shape, 1, 2, 0)
    assert [call for call in library.calls if call[0] == "cufftDestroy"] == [("cufftDestroy", 101)]
    library.calls.clear()
    made.execute(first, 1, 2, 0)
    assert "cufftPlanMany" not in library.names()
    made.execute(second, 1, 2, 0)
    assert library.names()[:2] == ["cufftDestroy", "cufftPlanMany"]
    made.close()
    assert library.names() == ["cufftDestroy", "cufftDestroy"]
    assert (made.created, made.reused) == (4, 2)


@pytest.mark.parametrize("name", ["cufftPlanMany", "cufftSetStream", "cufftExecR2C"])
def test_a_failure_names_the_function_and_keeps_no_broken_plan(name: str) -> None:
    library = Recorder(name, 8)
    made = Cufft(library)
    with pytest.raises(DeviceError, match=rf"`{name}` failed: the size is not one that it takes \(8\)"):
        made.execute(Shape("real", f32, 8, 1), 1, 2, 0)
    library.failing = ""
    made.execute(Shape("real", f32, 8, 1), 1, 2, 0)
    assert made.created == 1


def test_a_machine_without_the_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> Any:
        raise OSError(path)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    cufft.cufft.cache_clear()
    with pytest.raises(DeviceError, match=r"there is no cuFFT: none of libcufft\.so\.12"):
        cufft.cufft()
