"""Every instruction for NVIDIA refuses wrong operands before an assembler sees them: a table that instructions make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.dialect import DIALECT
from tessera.backends.nvptx.pipeline import MmaChoices
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import VectorAttr
from tessera.ir.base.verify import verify
from tests.backends.nvptx.kernels import PROGRAMS, lowered
from tests.backends.nvptx.lines import dot
from tests.backends.nvptx.matrices import BACKEND, causal, full, kernels_of, layer, nn, nt, tn
from tests.contracts import programs
from tests.oracles.nvptx_backend import NvptxBackend
from tests.target.operand_faults import Fault, faults_of

LIT = Path(__file__).parents[2] / "lit"
BF, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
COPIED, INDEX_VECTOR = ", of a block that is only stored", ", an index vector"
"""Circumstances that make a fault another one."""
_STORED = "loads, coordinates and stores take blocks of any shape, and no type between the two of a copy says which"
_LINE = "24 bytes of scratch have a line of 64 to themselves, and offsets there are those of elements"
JUSTIFIED: dict[tuple[str, str, str], str] = {
    ("ttarget.fetch", "width", "operand 0 is of one dim more"): _LINE,
    ("ttarget.fetch", "width", "operand 0 is twice as long along 0"): _LINE,
    ("ttarget.store", "width", "operand 1 is of one dim more"): _LINE,
    ("ttarget.store", "width", "operand 1 is twice as long along 0"): _LINE,
    ("ttarget.load", "width", f"result 0 is twice as long along 0{COPIED}"): _STORED,
    ("ttarget.coordinate", "width", f"result 0 is twice as long along 0{COPIED}"): _STORED,
    ("ttarget.store", "count", f"the last operand stands twice{INDEX_VECTOR}"): "no offset names the second",
}
"""Changes that leave a right kernel, by instruction, kind and what is changed, each with the reason."""


def into_f32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


MATRIX: dict[str, tuple[str, dict[str, Any], Any, list[tuple[int, ...]], Any]] = {
    "nt": ("sm_90a", {}, nt, [(70, 136), (72, 136)], BF),
    "tn": ("sm_90a", {}, tn, [(136, 72), (136, 72)], BF),
    "pairs": ("sm_90a", {"multicast": "always"}, nn, [(512, 256), (256, 512)], BF),
    "beside": ("sm_90a", {}, nt, [(4096, 512), (4096, 512)], BF),
    "alike": ("sm_90a", {"roles": "uniform"}, nt, [(70, 136), (72, 136)], BF),
    "layer": ("sm_90a", {}, layer, [(70, 40), (40, 72), (72,)], BF),
    "8-bit": ("sm_90a", {}, into_f32, [(256, 1024), (256, 1024)], E4M3),
    "apart": ("sm_90a", {"lag": 3}, into_f32, [(128, 1280), (128, 1280)], E4M3),
    "full": ("sm_90a", {}, full, [(1, 2, 300, 128)] * 3, BF),
    "causal": ("sm_90a", {}, causal, [(1, 2, 300, 32)] * 3, BF),
    "warps": ("sm_80", {}, layer, [(70, 40), (40, 72), (72,)], BF),
    "attention of warps": ("sm_80", {}, causal, [(1, 1, 70, 64)] * 3, BF),
    "tensor memory": ("sm_100a", {}, layer, [(128, 136), (136, 80), (80,)], BF),
}
WIDE = ("apart", "tensor memory")
"""Those in blocks of 128 rows and columns."""
ELSEWHERE = {
    "ttarget.gemm": "of processors, whose faults are those of test_mutations.py",
    "ttarget.prefetch": "of processors, which take any address: a hint reads nothing",
    "ttarget.launch": "of host programs, whose arguments test_launch.py checks",
}
"""Ops that no kernel for NVIDIA has."""


def matrix_kernel(name: str) -> SpecOp:
    machine, choices, function, shapes, dtype = MATRIX[name]
    overrides = {"contraction.block": (128, 128, 64)} if name in WIDE else {}
    (kernel,) = kernels_of(function, shapes, dtype, overrides=overrides)
    made = NvptxBackend(GPUS[machine], MmaChoices(**choices)).matrix(kernel)
    assert made is not None
    return made


@cache
def kernels() -> dict[str, SpecOp]:
    """Lowered kernels that together have the instructions, of tensor cores and of threads."""
    found = {name: matrix_kernel(name) for name in MATRIX}
    for name in ("widened", "grouped"):
        found[name] = next(one for one in programs.lowered(name, "cuda").targets if "matrix" in one.name)
    for name in PROGRAMS:
        for number, target in enumerate(lowered(name).targets):
            copy = target.clone()
            assert isinstance(copy, SpecOp)
            found[f"{name} {number}"] = copy
    (by_hand,) = kernels_of(dot("nt", (16, 16, 16)), [(40, 24), (40, 24)], np.float32)
    found["by hand"] = BACKEND.lower(by_hand)
    for text in (LIT / "nvptx" / "lower_kernels.mlir").read_text().split("// -----"):
        tiles = [op for op in parse_module(text).ops if isinstance(op, SpecOp) and op.name == "ttile.kernel"]
        for kernel in tiles:
            found[kernel.value("symbol")] = BACKEND.lower(kernel)
    for op in parse_module((LIT / "target" / "every_op.mlir").read_text()).ops:
        if isinstance(op, SpecOp) and op.name == "ttarget.kernel":
            found[op.value("symbol")] = op
    return found


def test_every_instruction_is_in_the_table() -> None:
    have = {op.name for _, op in instances()} | {kernel.name for kernel in kernels().values()}
    assert {spec.name for spec in DIALECT} - have == set(ELSEWHERE)


def is_copied(op: SpecOp) -> bool:
    """Whether what an op gives is only stored."""
    return {use.operation.name for result in op.results for use in result.uses} == {"ttarget.store"}


def instances() -> Iterator[tuple[SpecOp, SpecOp]]:
    """One op of each name, signature and use of what it gives, with its kernel."""
    seen: set[tuple[Any, ...]] = set()
    for kernel in kernels().values():
        for op in kernel.walk():
            if isinstance(op, SpecOp) and op is not kernel:
                signature = (op.name, is_copied(op), *(value.type.name for value in (*op.operands, *op.results)))
                if signature not in seen:
                    seen.add(signature)
                    yield kernel, op


def is_refused(kernel: SpecOp, op: SpecOp, fault: Fault) -> bool:
    """Whether a kernel is refused whose op has a fault; it is as it was afterwards."""
    operands, properties = list(op.operands), dict(op.properties)
    values = [*operands, *op.results]
    types = [value.type for value in values]
    fault.inject(op)
    try:
        verify(kernel)
    except OpError:
        return True
    finally:
        op.operands, op.properties = operands, properties
        for value, type in zip(values, types, strict=True):
            value._type = type  # pyright: ignore[reportPrivateUsage]
    return False


def circumstances(op: SpecOp, fault: Fault) -> str:
    """What of an op around a fault is part of what is changed."""
    if fault.kind == "width" and fault.what.startswith("result") and is_copied(op):
        return COPIED
    return INDEX_VECTOR if fault.kind == "count" and isinstance(op.operands[-1].type, VectorAttr) else ""


def test_kernels_without_faults_pass() -> None:
    for kernel in kernels().values():
        verify(kernel)


def test_wrong_operands_are_refused() -> None:
    """All of them, of each kind that a fault can be of; what is justified is one of a list, and no more than that."""
    tried: Counter[str] = Counter()
    missed: set[tuple[str, str, str]] = set()
    for kernel, op in list(instances()):
        for fault in faults_of(op):
            tried[fault.kind] += 1
            if not is_refused(kernel, op, fault):
                missed.add((op.name, fault.kind, fault.what + circumstances(op, fault)))
    assert missed == set(JUSTIFIED), "\n".join(map(str, sorted(missed ^ set(JUSTIFIED))))
    assert min(tried[kind] for kind in ("space", "width", "count", "alignment")) >= 20, tried
    assert sum(tried.values()) >= 1500, tried


@pytest.mark.parametrize("name", ["nt", "warps", "tensor memory", "map 0"])
def test_faults_leave_a_kernel_as_it_was(name: str) -> None:
    kernel = kernels()[name]
    before = str(kernel)
    for op in [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel][:40]:
        for fault in faults_of(op):
            is_refused(kernel, op, fault)
    assert str(kernel) == before
    verify(kernel)
