"""Rows of a vocabulary on a GPU: in registers of a cluster, and not spilled."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tests.backends.nvptx.kernels import parts_of

OPTIONS = Options.of(backend="cuda", features=("sm_90a",))
LOGITS, LABELS = np.zeros((64, 50304), ml_dtypes.bfloat16), np.zeros((64,), np.int64)


def loss(x: Any, labels: Any) -> Any:
    return ts.ops.cross_entropy(x.cast(ts.f32), labels)


def kernel_of(function: Any, *arrays: Any) -> tuple[Any, Any]:
    """The backend, and the kernel of a function that computes exponentials."""
    jitted: Any = ts.jit(function)
    parts = parts_of(lower(jitted.trace(*arrays).tape, OPTIONS))
    (code,) = [one for one in parts.codes if "exp" in one.name]
    return parts.backend, code


def test_blocks_of_a_cluster_share_a_row() -> None:
    code = kernel_of(ts.ops.softmax, LOGITS)[1]
    assert (code.threads, code.grid.value) == (10 * 32, 5 * 64)


def test_cross_entropy_with_its_gradient_spills_next_to_nothing() -> None:
    backend, code = kernel_of(ts.value_and_grad(loss), LOGITS, LABELS)
    assert code.grid.value == 5 * 64
    ptx = compile_text(code.text, backend.code_target)
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    words = assemble_with_words(ptx, backend.machine.cpu)[1]
    (spilled,) = map(int, re.findall(r"(\d+) bytes spill stores", words))
    assert spilled <= 16
