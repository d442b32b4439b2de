"""Host programs of a GPU that call Python, with host memory in place of the device's and launches that do nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CaptureError, PositionError
from tessera.runtime.devices.cuda import program as cuda_callback
from tessera.runtime.devices.cuda import program as cuda_program
from tessera.runtime.devices.cuda.program import CudaProgram
from tessera.runtime.devices.cuda.streams import CURRENT
from tessera.runtime.launch import CALLBACK, FAILED
from tessera.runtime.loader import link

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
_FIRST = 0x77
"""The handle of the first kernel."""
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was copied between the memories, with bytes; here both are one."""
    found: list[tuple[str, int]] = []

    def copy(direction: str) -> Callable[..., None]:
        def run(target: int, source: int, size: int, stream: int) -> None:
            found.append((direction, size))
            ctypes.memmove(target, source, size)

        return run

    monkeypatch.setattr(cuda_callback, "copy_out", copy("out"))
    monkeypatch.setattr(cuda_callback, "copy_in", copy("in"))
    return found


class Program:
    """A program whose kernels are left out, but for what looks at positions, which writes one record."""

    def __init__(self, function: Callable[..., Any], arrays: Sequence[Any], *, debug: bool) -> None:
        tape = ts.jit(function).trace(*arrays).tape
        made = compile_tape(tape, Options.of(backend="cuda", features=("sm_90a",), debug=debug))
        found = cuda_program.CudaCallbacks.of(made.metadata, tape.functions)
        assert found is not None
        self.executable, self.callbacks = made, found
        self.launches, self.record = 0, [0, 0, 0, 0]
        self.code = link([made.objects[0]], {CALLBACK: found.address})
        self.entry = _ENTRY(self.code.address("tessera_entry"))
        self.launch = _LAUNCH(self._launch)
        words = [0] * len(made.metadata["state"])
        words[1] = ctypes.cast(self.launch, ctypes.c_void_p).value or 0
        words += range(_FIRST, _FIRST + len(made.metadata["called"]))
        self.constants = ctypes.create_string_buffer(made.objects[-1], len(made.objects[-1]) + 1)
        start = ctypes.addressof(self.constants)
        for size in made.metadata["constants"]:
            words.append(start)
            start += size
        self.state = (ctypes.c_void_p * len(words))(*words)
        self.room = ctypes.create_string_buffer(1 << 16)

    def _launch(self, *given: int) -> int:
        self.launches += 1
        if self.executable.metadata["called"][given[0] - _FIRST].endswith("_watch"):
            # Its arguments are the indices and the records.
            parameters = (ctypes.c_void_p * 2).from_address(given[9])
            place = ctypes.c_uint64.from_address(parameters[1] or 0).value
            (ctypes.c_int64 * 4).from_address(place)[:] = self.record
        return 0

    def run(self, *arrays: Any) -> int:
        given = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        outputs = [ctypes.create_string_buffer(1 << 12) for _ in self.executable.outputs]
        made = (ctypes.c_void_p * max(1, len(outputs)))(*map(ctypes.addressof, outputs))
        return self.entry(given, made, (ctypes.c_int64 * 1)(), ctypes.addressof(self.room), self.state)


def pick(x: Any, i: Any) -> Any:
    return x[i]


def test_an_out_of_bounds_index_is_named_before_it_is_used(copies: list[tuple[str, int]]) -> None:
    program = Program(pick, [X, np.array([0, 1, 2])], debug=True)
    assert program.run(X, np.array([3, -4, 0])) == 0
    launches = program.launches
    assert copies == [("out", 32), ("out", 24)]
    program.record = [0, (1 << 63) - 1 - 4, 5, 0]
    assert program.run(X, np.array([0, 4, 2])) == FAILED
    assert launches > program.launches - launches  # the kernel that uses them is not launched
    raised = program.callbacks.take_exception()
    assert isinstance(raised, PositionError)
    assert "index 4 is outside of an axis of 4 elements" in raised.message
    assert raised.notes[0].startswith("kernel `index_legal")
    assert raised.notes[0].endswith("program [0] of [1]")
    assert raised.span is not None
    assert raised.span.file == __file__


def print_all(x: Any) -> Any:
    ts.debug_print("all of {}", x)
    return x * 2.0


def test_a_program_prints_what_is_on_the_device(capfd: pytest.CaptureFixture[str]) -> None:
    x = np.array([2.5, 3.0], np.float32)
    program = Program(print_all, [x], debug=False)
    assert program.run(x) == 0
    assert capfd.readouterr().out == "all of [2.5, 3]\n"


def negate(x: Any) -> Any:
    return ts.io_callback(np.negative, x, result=x) * 2.0


def test_what_python_gives_goes_to_the_device(copies: list[tuple[str, int]]) -> None:
    program = Program(negate, [X], debug=False)
    assert program.run(X) == 0
    assert ("out", 48) in copies
    assert ("in", 48) in copies


def test_what_python_raises_ends_the_program() -> None:
    def wrong(x: Any) -> Any:
        raise KeyError("no such thing")

    def failing(x: Any) -> Any:
        return ts.io_callback(wrong, x, result=x) * 2.0

    program = Program(failing, [X], debug=False)
    assert program.run(X) == FAILED
    assert isinstance(program.callbacks.take_exception(), KeyError)
    assert program.launches == 0


class Driver:
    """A device that is there."""

    def enter(self) -> bool:
        return False


def test_programs_that_call_python_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = Program(negate, [X], debug=False), object.__new__(CudaProgram)
    plan = {"_plan": _nothing, "_tensor": _nothing}
    made.__dict__.update(executable=program.executable, _callbacks=program.callbacks, _donation=None, **plan)
    monkeypatch.setattr(cuda_program, "driver", Driver)
    monkeypatch.setattr(CURRENT, "capture", object(), raising=False)
    with pytest.raises(CaptureError, match="calls Python cannot be captured"):
        made.run([X])


def _nothing(*_: Any) -> None:
    """What is not looked at."""
