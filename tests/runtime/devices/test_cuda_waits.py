"""What errors of a GPU say: where a kernel hangs, read off its record, and what to do about the driver's numbers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tessera.backends.nvptx.hopper_emit import emit_matrix_kernel
from tessera.backends.nvptx.waits import LIMIT, RECORD
from tessera.diagnostics.codes import DeviceError, OutOfMemoryError
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices import cuda_waits
from tessera.runtime.devices.cuda_assembler import PROBLEM, assemble_with_words, assembler
from tessera.runtime.devices.cuda_driver import error_of
from tests.backends.nvptx.matrices import BACKEND, matrix_of, nt

WAITS = ("the producer in `ttarget.acquire` of ring 0 (4 stages) at model.py:3:5", "a consumer in `ttarget.await`")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The record of one kernel, as the device would write it."""
    words = (ctypes.c_uint32 * 16)()
    monkeypatch.setattr(cuda_waits, "_WATCHED", [cuda_waits.Watched("matmul", WAITS, ctypes.addressof(words))])
    return words


def test_nothing_is_said_of_a_kernel_that_does_not_hang(record: Any) -> None:
    assert cuda_waits.hanging() == ""
    found = error_of(719, "cuStreamSynchronize")
    assert isinstance(found, DeviceError)
    assert "run the program with `debug=True`" in found.render()


def test_who_waits_for_what_is_said(record: Any) -> None:
    record[:6] = (1, 0, 7, 0, 1024, 1)
    found = error_of(719, "cuStreamSynchronize")
    assert isinstance(found, DeviceError)
    text = found.render()
    assert f"`matmul` waits for a barrier that never opens: {WAITS[0]}, thread 0 of CTA 7, barrier at shared " in text
    assert "phase 1" in text
    assert "`cuStreamSynchronize` failed: error 719" in text
    assert "count arrivals, and stages acquired against stages released" in text


def test_other_errors_are_not_blamed_on_a_hang(record: Any) -> None:
    record[:6] = (1, 0, 7, 0, 1024, 1)
    found = error_of(700, "cuStreamSynchronize")
    assert isinstance(found, DeviceError)
    assert "never opens" not in found.message


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (2, OutOfMemoryError, "free tensors that are no longer needed"),
        (700, DeviceError, "run the program with `debug=True` to see where"),
        (701, DeviceError, "choose smaller tiles"),
        (702, DeviceError, "ran too long for a device that drives a display"),
        (719, DeviceError, "waits that never end say where"),
        (222, DeviceError, "update the NVIDIA driver"),
    ],
)
def test_errors_say_what_to_do(code: int, kind: type[Exception], advice: str) -> None:
    found = error_of(code, "cuLaunchKernel")
    assert isinstance(found, kind)
    assert isinstance(found, DeviceError | OutOfMemoryError)
    assert advice in found.render()


def test_bounded_waits_know_their_op_and_are_taken_by_the_assembler() -> None:
    """Every wait has a number, which stands for role, op, ring and line; without `debug` there is none of it."""
    kernel = matrix_of(nt, [(512, 256)] * 2, overrides={"contraction.block": (128, 256, 64)})
    code = emit_matrix_kernel(kernel, BACKEND.machine, bounded=True)
    assert any("the producer in `ttarget.acquire` of ring 0" in told for told in code.waits)
    assert any("a consumer in `ttarget.await` of ring 0" in told for told in code.waits)
    assert all("matrices.py" in told for told in code.waits)
    assert str(LIMIT) in code.text
    plain = BACKEND.code(kernel)
    assert (plain.waits, RECORD in plain.text) == ((), False)
    ptx = compile_text(code.text, BACKEND.code_target)
    assert f".visible .global .align 8 .u64 {RECORD}".encode() in ptx
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    assert not PROBLEM.search(assemble_with_words(ptx, "sm_90a")[1])
