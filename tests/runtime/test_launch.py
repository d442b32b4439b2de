"""Launching: the fast path and the slow one agree, and whatever does not fit is explained precisely."""

from __future__ import annotations

import ctypes
import gc
import math
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import GuardError, LoadError, OutOfMemoryError, RuntimeArgumentError
from tessera.runtime.executable import Executable, Guard, Port
from tessera.runtime.launch import LoadedExecutable
from tessera.runtime.loader import link
from tessera.runtime.native.support import Support
from tessera.runtime.tensor import Tensor
from tests.runtime.programs import add_executable, compile_text, constant_text


def array(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def add() -> LoadedExecutable:
    return LoadedExecutable(add_executable())


@given(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_one_executable_serves_every_shape_of_arrays_and_tensors(n: int, d: int, first: bool, second: bool) -> None:
    loaded = LoadedExecutable(add_executable())
    x, y = array(n, d), array(n, d)
    z = loaded.call(Tensor.of(x) if first else x, Tensor.of(y) if second else y)
    assert isinstance(z, Tensor)
    assert z.address % 64 == 0
    np.testing.assert_array_equal(z.numpy(), x + y)


def test_the_fast_path_refuses_what_it_cannot_do_and_the_slow_one_does_it(add: LoadedExecutable) -> None:
    x, y = array(6, 4), array(6, 4)
    cases = [
        (x[::-1], y),
        (np.asfortranarray(x), y),
        (array(12, 4)[::2], y),
        (Tensor.from_dlpack(array(4, 6).T), y),
        (x.astype(">f4"), y),
    ]
    for a, b in cases:
        before = add.copies
        assert add.call(a, b) is NotImplemented
        np.testing.assert_array_equal(add(a, b).numpy(), np.asarray(a) + b)
        assert add.copies == before + 1
    before = add.copies
    add(x, y)
    assert add.copies == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((array(2, 3),), "expected 2 arguments, got 1"),
        ((array(2, 3), array(2, 3), array(2, 3)), "expected 2 arguments, got 3"),
        ((array(2, 3).astype("f8"), array(2, 3)), r"argument 0 \(`x`\) has dtype f64; the compiled function takes f32"),
        ((array(2, 3), array(2, 3, 1)), r"argument 1 \(`y`\) has rank 3; the compiled function takes rank 2"),
        ((array(2, 3), array(4, 3)), r"argument 1 \(`y`\) has size 4 in dim 0; expected N = 2"),
        ((array(2, 3), array(2, 5)), r"argument 1 \(`y`\) has size 5 in dim 1; expected D = 3"),
        ((1.0, array(2, 5)), r"argument 0 \(`x`\) is a number; expected a tensor \[N, D\] f32"),
        ((None, array(2, 5)), r"argument 0 \(`x`\): a NoneType is not a tensor"),
        ((array(2, 3), np.ones((2, 3), complex)), r"argument 1 \(`y`\): arrays of NumPy dtype `complex128`"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(add: LoadedExecutable, arguments: Any, text: str) -> None:
    assert add.call(*arguments) is NotImplemented
    with pytest.raises(RuntimeArgumentError, match=text):
        add(*arguments)


def load_body(body: str, outputs: int = 1, **fields: Any) -> LoadedExecutable:
    """A program whose outputs are numbers."""
    text = constant_text((), body, workspace=fields.pop("workspace", 0), extra=fields.pop("extra", ""))
    return LoadedExecutable(
        Executable((compile_text(text),), fields.pop("inputs", ()), (Port("i64", ()),) * outputs, **fields)
    )


STORE = """
  %o{n}.at = getelementptr ptr, ptr %outputs, i64 {n}
  %o{n} = load ptr, ptr %o{n}.at
  store i64 {value}, ptr %o{n}
"""


def test_several_outputs_are_a_tuple() -> None:
    body = "".join(STORE.format(n=n, value=n * 10) for n in range(3)) + "  ret i64 0"
    result: tuple[Tensor, ...] = load_body(body, 3)()
    assert type(result) is tuple
    assert [tensor.item() for tensor in result] == [0, 10, 20]
    assert load_body("  ret i64 0", 0)() == ()


def test_want_of_scratch_is_raised_and_nothing_leaks(support: Support) -> None:
    program = load_body("  ret i64 5", workspace=1000)
    used = support.memory.in_use
    for call in (program, program.call):
        with pytest.raises(OutOfMemoryError, match="no memory for 5 bytes of working memory of a kernel"):
            call()
    assert support.memory.in_use == used


@pytest.mark.parametrize(
    ("bytes", "shown"), [(1 << 50, f"{1 << 50} bytes"), (-1, "more than 9223372036854775807 bytes")]
)
def test_want_of_a_workspace_is_raised_and_nothing_leaks(support: Support, bytes: int, shown: str) -> None:
    program = load_body("  ret i64 0", workspace=bytes)
    used = support.memory.in_use
    with pytest.raises(OutOfMemoryError, match=f"no memory for {shown} of temporaries"):
        program()
    assert support.memory.in_use == used
    assert program.calls == 0


@pytest.mark.parametrize("shape", [(1 << 31, 1 << 31), (1 << 62, 4), (3, 1 << 45)])
def test_outputs_too_large_to_count_or_to_have_are_refused(support: Support, shape: tuple[int, ...]) -> None:
    text = constant_text(shape, "  store i8 1, ptr null\n  ret i64 0")
    outputs = (Port("f32", ()), Port("f32", tuple(map(str, shape))))
    program = LoadedExecutable(Executable((compile_text(text),), (), outputs))
    used = support.memory.in_use
    with pytest.raises(OutOfMemoryError) as caught:
        program()
    assert isinstance(caught.value, MemoryError)
    assert str(4 + 4 * math.prod(shape)) in caught.value.message
    assert support.memory.in_use == used


def test_numbers_fit_inputs_of_rank_0() -> None:
    body = """
  %x.at = load ptr, ptr %inputs
  %x = load double, ptr %x.at
  %whole = fptosi double %x to i64
  %o = load ptr, ptr %outputs
  store i64 %whole, ptr %o
  ret i64 0"""
    program = load_body(body, inputs=(Port("f64", (), "x"),))
    assert [program(value).item() for value in (7, 7.9, np.float64(8), np.array(9.0))] == [7, 7, 8, 9]


def test_a_failed_guard_shows_lhs_and_rhs() -> None:
    text = constant_text((), "  ret i64 0").replace("ret i64 0", "ret i64 1", 1)
    program = LoadedExecutable(
        Executable(
            (compile_text(text),),
            (Port("f32", ("B", "S"), "x"),),
            (Port("f32", ()),),
            symbols=("B", "S"),
            binding=(0, 1),
            guards=(Guard("heads divide the width", "S % 8", "0"),),
        )
    )
    with pytest.raises(GuardError) as caught:
        program(array(2, 12))
    assert caught.value.message == "heads divide the width: `S % 8` (= 4) and `0` must agree"
    assert caught.value.notes == ("here `B` = 2, `S` = 12",)


def test_static_dims_are_explained() -> None:
    text = constant_text((), "  ret i64 0").replace("ret i64 0", "ret i64 1", 1)
    program = LoadedExecutable(Executable((compile_text(text),), (Port("f32", ("64",), "x"),), (Port("f32", ()),)))
    with pytest.raises(RuntimeArgumentError, match=r"argument 0 \(`x`\) has size 3 in dim 0; expected 64"):
        program(array(3))


def test_i4_arrays_are_checked_at_each_call() -> None:
    program = load_body("  ret i64 0", inputs=(Port("i4", ("3",), "x"),))
    assert program.call(np.zeros(3, np.int8)) is NotImplemented
    program(np.array([-8, 0, 7], np.int8))
    program(Tensor.of([1, 2, 3], "i4"))
    with pytest.raises(RuntimeArgumentError, match=r"argument 0 \(`x`\): i4 holds -8..7"):
        program(np.array([-8, 0, 8], np.int8))


def test_narrow_floats_take_the_fast_path_once_seen() -> None:
    program = load_body("  ret i64 0", inputs=(Port("bf16", ("3",), "x"),))
    value = Tensor.of([1.0, 2.0, 3.0], "bf16").numpy()
    program(value)
    assert program.call(value) is not NotImplemented


def test_other_threads_run_while_compiled_code_does() -> None:
    sleep = """
  %ignored = call i32 @usleep(i32 200000)
  ret i64 0"""
    program = load_body(sleep, extra="declare i32 @usleep(i32)")
    beats: list[float] = []
    caller = threading.Thread(target=program)
    caller.start()
    while caller.is_alive():
        beats.append(time.monotonic())
        time.sleep(0.005)
    assert len(beats) > 10


# Multiplies two numbers whose product is too small to be normal, on each of two threads.
DENORMAL = """
define internal void @multiply(ptr %outputs, i64 %task, i64 %tasks, ptr %scratch) {
  %a = load volatile double, ptr @small
  %b = fmul double %a, 1.0e-160
  %bits = bitcast double %b to i64
  %o.at = getelementptr ptr, ptr %outputs, i64 %task
  %o = load ptr, ptr %o.at
  store i64 %bits, ptr %o
  %ignored = call i32 @usleep(i32 20000)
  ret void
}
@small = internal global double 1.0e-160
declare i32 @usleep(i32)
declare void @tessera_pool_run(ptr, ptr, i64, i64)
"""
MODE = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define i64 @set(i64 %mode) {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %old = load i32, ptr %at
  %new = trunc i64 %mode to i32
  store i32 %new, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  %wide = zext i32 %old to i64
  ret i64 %wide
}
"""


def test_denormals_are_kept_on_every_thread_whatever_the_caller_has_set(support: Support) -> None:
    body = f"  call void @tessera_pool_run(ptr @multiply, ptr %outputs, i64 {2 | 1 << 62}, i64 0)\n  ret i64 0"
    before = support.threads()
    support.configure(2)
    program, code = load_body(body, 2, extra=DENORMAL), link([compile_text(MODE)])
    exchange = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("set"))
    flushing = 0x9FC0
    old = exchange(flushing)
    try:
        results = program.call()
    finally:
        after = exchange(old)
        support.configure(before)
    assert after == flushing
    (bits,) = struct.unpack("<q", struct.pack("<d", 1e-160 * 1e-160))
    assert [tensor.item() for tensor in results] == [bits, bits]
    assert bits != 0


def test_code_for_a_cpu_with_more_features_is_refused() -> None:
    executable = replace(add_executable(), metadata={"features": ["+sse2", "amx-cheese"]})
    with pytest.raises(LoadError, match="made for a CPU with amx-cheese, which this one lacks"):
        LoadedExecutable(executable)
    LoadedExecutable(replace(executable, metadata={"features": ["+sse2", "sse4.1", "-avx512f", "lzcnt", "fma"]}))


def test_the_builtin_keeps_its_code_alive_and_lets_it_go() -> None:
    def count_mappings() -> int:
        """Bytes of code in memory that no file gives; how many ranges they are in is the kernel's choice."""
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "r-xp 00000000 00:00 0" in line]
        ends = [line.split()[0].split("-") for line in lines]
        return sum(int(high, 16) - int(low, 16) for low, high in ends)

    gc.collect()
    before = count_mappings()
    call = LoadedExecutable(add_executable()).call
    gc.collect()
    x = array(2, 2)
    np.testing.assert_array_equal(call(x, x).numpy(), x + x)
    assert count_mappings() > before
    del call
    gc.collect()
    assert count_mappings() == before


def test_calls_from_many_threads_agree(add: LoadedExecutable) -> None:
    x, y = array(50, 50), array(50, 50)
    wrong: list[int] = []

    def caller() -> None:
        for _ in range(100):
            if not np.array_equal(add(x, y).numpy(), x + y):
                wrong.append(1)

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_does_not_grow_with_calls(add: LoadedExecutable, support: Support) -> None:
    x = array(100, 100)
    add(x, x)
    used = support.memory.in_use
    for _ in range(1000):
        add(x, x)
    assert support.memory.in_use == used
