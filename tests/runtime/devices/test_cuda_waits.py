"""What errors of a GPU say: where a kernel hangs, read off its record, and what to do about the driver's numbers."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.ampere.emit import emit_warp_kernel
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.waits import ELSEWHERE, LIMIT, RECORD, Waits
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import DeviceError, OutOfMemoryError
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda import metrics as cuda_waits
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.runtime.devices.cuda.driver import error_of
from tests.backends.nvptx.matrices import BACKEND, causal, matrix_of, nt
from tests.backends.nvptx.units import kernel_of, lower_kernel, of

WAITS = ("the producer in `ttarget.acquire` of ring 0 (4 stages) at model.py:3:5", "a consumer in `ttarget.await`")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The record of one kernel, as the device would write it."""
    words = (ctypes.c_uint32 * 16)()
    monkeypatch.setattr(cuda_waits, "_WATCHED", [cuda_waits.Watched("matmul", WAITS, ctypes.addressof(words))])
    return words


def test_a_kernel_that_does_not_hang_is_not_reported(record: Any) -> None:
    assert cuda_waits.hanging() == ""
    found = error_of(719, "cuStreamSynchronize")
    assert isinstance(found, DeviceError)
    assert "run the program with `debug=True`" in found.render()


def test_who_waits_for_what_is_reported(record: Any) -> None:
    record[:6] = (1, 0, 7, 0, 1024, 1)
    found = error_of(719, "cuStreamSynchronize")
    assert isinstance(found, DeviceError)
    text = found.render()
    assert f"`matmul` waits for a barrier that never opens: {WAITS[0]}, thread 0 of CTA 7, barrier at shared " in text
    assert "phase 1" in text
    assert "`cuStreamSynchronize` failed: error 719" in text
    assert "count arrivals, and stages acquired against stages released" in text


def test_a_wait_for_another_cta_is_reported(record: Any) -> None:
    record[:6] = (1, 0, 3, 0, ELSEWHERE, 0)
    text = cuda_waits.hanging()
    assert text == f"`matmul` waits for another CTA, which says nothing: {WAITS[0]}, thread 0 of CTA 3"


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


def assemble(text: str, architecture: str) -> bytes:
    """The PTX of a kernel, which the assembler takes, where there is one."""
    ptx = compile_text(text, NvptxBackend(GPUS[architecture]).code_target)
    if assembler() is not None:
        assert not PROBLEM.search(assemble_with_words(ptx, architecture)[1])
    return ptx


def test_bounded_waits_know_their_op_and_are_taken_by_the_assembler() -> None:
    """Every wait has a number, which stands for role, op, ring and line; without `debug` there is none of it."""
    kernel = matrix_of(nt, [(512, 256)] * 2, overrides={"contraction.block": (128, 256, 64)})
    code = emit_matrix_kernel(kernel, BACKEND.machine, bounded=True)
    assert any("the producer in `ttarget.acquire` of ring 0" in told for told in code.waits)
    assert any("a consumer in `ttarget.await` of ring 0" in told for told in code.waits)
    options = Options.of(
        backend="cuda", features=("sm_90a",), debug=True, overrides={"contraction.block": (128, 256, 64)}
    )
    lowering = lower(ts.jit(nt).trace(*[np.zeros((512, 256), np.float16)] * 2).tape, options)
    waits = [wait for fact in lowering.code.metadata(lowering.program)["kernels"] for wait in fact["waits"]]
    assert waits
    assert all("matrices.py" in wait for wait in waits)
    assert str(LIMIT) in code.text
    plain = BACKEND.code(kernel)
    assert (plain.waits, RECORD in plain.text, plain.shared) == ((), False, code.shared)
    assert f".visible .global .align 8 .u64 {RECORD}".encode() in assemble(code.text, "sm_90a")


SQUARE, HEADS = [(512, 256)] * 2, [(1, 2, 512, 128)] * 3
KINDS: dict[str, tuple[str, Any, Any, list[str]]] = {
    "warps": ("sm_80", nt, SQUARE, ["a consumer in `ttarget.wait_copies`"]),
    "warps, attention": ("sm_80", causal, HEADS, ["a consumer in `ttarget.wait_copies`"]),
    "tensor memory": (
        "sm_100a",
        nt,
        SQUARE,
        [
            "the producer in `ttarget.acquire` of ring 0",
            "a consumer in `ttarget.await` of ring 0",
            "a consumer in `ttarget.tensor_wait`",
            "a consumer in `ttarget.tensor_alloc`",
        ],
    ),
    "alternating warp groups and a count": (
        "sm_90a",
        causal,
        HEADS,
        [
            "a consumer in `ttarget.pingpong`",
            "a consumer in `ttarget.tiles`",
            "the producer in `ttarget.tiles`",
            "for the first CTA to begin the count of programs",
        ],
    ),
}
UNENDING = ("bar.arrive", "ld.acquire.gpu.global.u64 seen, [$0+8]; setp.ne", "bra AGAIN; DONE")
"""How waits read that nobody ends."""


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_kernel_has_waits_that_end(name: str) -> None:
    architecture, function, shapes, wanted = KINDS[name]
    kernel = kernel_of(of(function, shapes, architecture))
    plain = NvptxBackend(GPUS[architecture]).code(kernel)
    code = NvptxBackend(GPUS[architecture], bounded=True).code(kernel)
    for words in wanted:
        assert any(words in told for told in code.waits), code.waits
    assert (plain.waits, RECORD in plain.text) == ((), False)
    assert plain.shared < code.shared <= GPUS[architecture].shared  # barriers at which threads meet are behind all else
    assert "mbarrier.test_wait.shared::cta.b64" in code.text
    assert "mbarrier.test_wait" not in plain.text
    assert not [words for words in UNENDING if words in code.text]
    before, after = (text.count("bar.sync") for text in (plain.text, code.text))
    assert after <= before  # threads meet once before all, where they made barriers
    assemble(code.text, architecture)


def test_barriers_are_unwatched_where_shared_memory_is_full() -> None:
    kernel = kernel_of(lower_kernel("nt", "sm_80"))
    full = replace(GPUS["sm_80"], shared=kernel.value("shared") + 7)
    code = emit_warp_kernel(kernel, full, bounded=True)
    assert code.shared == kernel.value("shared")
    assert "mbarrier" not in code.text
    assert "bar.sync" in code.text


def test_barriers_for_watching_begin_at_multiples_of_eight_bytes() -> None:
    waits = Waits(1001, 1100)
    assert waits.allocate_barriers((256, 256)) == 1008
    assert waits.shared == 1024
    assert waits.allocate_barriers((128,) * 10) is None
    assert waits.shared == 1024
