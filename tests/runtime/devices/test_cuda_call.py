"""Calls of compiled programs by their builtin, with a driver that only writes down what it is asked for."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.memory import FreeList, Pool
from tessera.runtime.devices.cuda.program import NativeCall, Plan
from tessera.runtime.devices.cuda.streams import current_stream, stream
from tessera.runtime.devices.cuda.tensor import CudaTensor, Form, form_of
from tessera.runtime.loader import link
from tessera.types.dtype import f32

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
SHAPE = (4, 64)
OTHER = 1 << 40
"""The handle of a stream, which is no small number."""


def sum_rows(x: Any, y: Any) -> Any:
    return x + y


def both(x: Any, y: Any) -> Any:
    return x + y, (x * y).sum(axis=0)


def sum_pairs(x: Any, y: Any) -> Any:
    return ts.ops.relu(x @ y.T) @ y


@cache
def executable(function: Callable[..., Any]) -> Any:
    arrays = [np.zeros(SHAPE, np.float32)] * 2
    return compile_tape(ts.jit(function).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))


class Called:
    """A program whose launches are written down: the addresses that each kernel is given."""

    def __init__(self, function: Callable[..., Any], answer: int = 0, workspace: int = 0) -> None:
        made = executable(function)
        self.launches: list[list[int]] = []
        self.answer = answer
        self.code = link([made.objects[0]], {})
        self.native = NativeCall(self.code.address("tessera_call"), self.code)
        self.call = self.native.builtin
        self.launch = _LAUNCH(self._launch)
        words = [0] * len(made.metadata["state"])
        words[1] = ctypes.cast(self.launch, ctypes.c_void_p).value or 0
        words += [0x77] * len(made.metadata["called"])
        self.state = (ctypes.c_void_p * len(words))(*words)
        self.pool = Pool()
        self.forms = [form_of(f32, tuple(int(dim) for dim in port.dims)) for port in made.outputs]
        self.free_lists = [self._home(form, at) for at, form in enumerate(self.forms)]
        self.own = self._home(Form(f32, (workspace,)), 9) if workspace else None

    def _home(self, form: Form, number: int) -> FreeList:
        free_list = FreeList(self.pool, form.bytes)
        free_list.free += [0x1000000 * (number + 1) + 0x10000 * at for at in range(4)]
        return free_list

    def _launch(self, *args: int) -> int:
        parameters = (ctypes.c_void_p * 3).from_address(args[9])
        self.launches.append([ctypes.c_uint64.from_address(place or 0).value for place in parameters])
        return self.answer

    def plan(self, shape: tuple[int, ...] = SHAPE, handle: int = 0) -> None:
        forms = [form_of(f32, shape)] * 2
        outputs = list(zip(self.forms, self.free_lists, strict=True))
        self.native.add(Plan(handle, forms, (ctypes.c_int64 * 1)(), outputs, self.own, self.state))


def tensor(address: int, shape: tuple[int, ...] = SHAPE, handle: int = 0) -> CudaTensor:
    return CudaTensor(address, form_of(f32, shape), handle, None)


def _half_made() -> CudaTensor:
    """A tensor that has neither memory nor a form yet."""
    made = object.__new__(CudaTensor)
    made._owner = None  # pyright: ignore[reportPrivateUsage]
    return made


def test_tensors_that_fit_a_plan_go_straight_to_the_entry() -> None:
    program, x, y = Called(sum_rows), tensor(0x10000), tensor(0x20000)
    assert program.call(x, y) is NotImplemented
    program.plan()
    made = program.call(x, y)
    assert isinstance(made, CudaTensor)
    assert (made.address, made.form, made.stream, made.lane) == (0x1030000, program.forms[0], 0, 0)
    assert program.launches == [[0x10000, 0x20000, 0x1030000]]
    assert program.native.calls == 1
    del made
    gc.collect()
    assert program.free_lists[0].free[-1] == 0x1030000


@pytest.mark.parametrize(
    "given",
    [
        (),
        (tensor(0x10000),),
        (tensor(0x10000),) * 3,
        (tensor(0x10000), 3),
        (tensor(0x10000), np.zeros(SHAPE, np.float32)),
        (tensor(0x10000), tensor(0x20000, (64, 4))),
        (tensor(0x10000), tensor(0x20004)),
        (tensor(0x10000), tensor(0x20000, handle=OTHER)),
        (_half_made(), tensor(0x10000)),
    ],
    ids=["none", "one", "three", "number", "array", "form", "anywhere", "stream", "empty"],
)
def test_anything_else_is_refused(given: tuple[Any, ...]) -> None:
    program = Called(sum_rows)
    program.plan()
    assert program.call(*given) is NotImplemented
    assert program.launches == []
    assert len(program.free_lists[0].free) == 4


def test_a_plan_is_for_one_stream() -> None:
    program = Called(sum_rows)
    with stream(OTHER):
        handle = current_stream()
        program.plan(handle=handle)
        x = tensor(0x10000, handle=handle)
    assert program.call(x, x) is NotImplemented
    with stream(int(str(OTHER))):
        assert program.call(x, x).stream == OTHER


def test_the_plan_is_found_among_many() -> None:
    program = Called(sum_rows)
    for rows in range(1, 20):
        program.plan((rows, 64))
    x = tensor(0x10000)
    assert program.call(x, x).address == 0x1030000
    program.native.clear()
    assert program.call(x, x) is NotImplemented


def test_several_results_are_a_tuple() -> None:
    program, x = Called(both), tensor(0x10000)
    program.plan()
    made = program.call(x, x)
    assert [one.shape for one in made] == [SHAPE, (64,)]
    assert len({one.address for one in made}) == 2


def test_a_workspace_is_taken_for_the_call() -> None:
    program, x = Called(sum_pairs, workspace=4096), tensor(0x10000)
    assert program.own is not None
    program.plan()
    free = list(program.own.free)
    made = program.call(x, x)
    assert program.own.free == free
    first, second = program.launches
    assert first[2] == free[-1] == second[0]
    assert second[2] == made.address


def test_without_free_memory_python_is_asked() -> None:
    program, x = Called(sum_rows), tensor(0x10000)
    program.plan()
    held = [program.call(x, x) for _ in range(4)]
    assert all(isinstance(one, CudaTensor) for one in held)
    assert program.call(x, x) is NotImplemented
    assert program.free_lists[0].free == []


def test_results_and_the_workspace_may_share_a_home() -> None:
    program, x = Called(both), tensor(0x10000)
    program.free_lists[:] = [program.free_lists[0]] * 2
    program.own = program.free_lists[0]
    program.plan()
    free = program.free_lists[0].free
    free[:] = free[:2]
    assert program.call(x, x) is NotImplemented
    assert len(free) == 2
    free.append(0x5000000)
    first, second = program.call(x, x)
    assert first.address != second.address
    assert len(free) == 1


def test_a_launch_that_fails_leaves_nothing_behind() -> None:
    program, x = Called(sum_rows, answer=701), tensor(0x10000)
    program.plan()
    assert program.call(x, x) is NotImplemented
    gc.collect()
    assert sorted(program.free_lists[0].free) == [0x1000000 + 0x10000 * at for at in range(4)]
    assert program.native.calls == 0


def test_calls_hold_on_to_nothing() -> None:
    program, x = Called(both), tensor(0x10000)
    program.plan()
    watched = [x, program.forms[0], program.free_lists[0], program.free_lists[1]]

    def counts() -> list[int]:
        return [sys.getrefcount(one) for one in watched]

    program.call(x, x)
    before = counts()
    for _ in range(100):
        program.call(x, x)
    assert counts() == before


def test_the_builtin_outlives_its_program() -> None:
    program, x = Called(sum_rows), tensor(0x10000)
    program.plan()
    call, launches = program.call, program.launches
    state, launch = program.state, program.launch
    del program
    gc.collect()
    assert call(x, x).shape == SHAPE
    assert len(launches) == 1
    assert state[1] == ctypes.cast(launch, ctypes.c_void_p).value
