"""Fast paths in machine code: each is taken by a flag, and the disassembler finds its instructions and no others."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.compile import NvptxCode
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble, assembler, find_tool

pytestmark = pytest.mark.skipif(
    find_tool("nvdisasm") is None or not assembler(), reason="there is no nvdisasm, or no ptxas, here"
)

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
WGMMA, WMMA, PLAIN = "wgmma", "mma.sync", "multiply-adds"


def product(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def wide_product(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32 if x.dtype == ts.i8 else ts.f32)


def attention(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def instructions(folder: Path, function: Any, arrays: list[Any], overrides: Mapping[str, Any]) -> set[str]:
    """The names of all instructions of a program, without what is behind their first point."""
    jitted: Any = ts.jit(function)
    tape = jitted.trace(*arrays).tape
    parts = lower(tape, Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)).code
    assert isinstance(parts, NvptxCode)
    found: set[str] = set()
    for number, code in enumerate(parts.codes):
        file = folder / f"{number}.cubin"
        file.write_bytes(assemble(compile_text(code.text, parts.backend.code_target), "sm_90a"))
        done = subprocess.run(
            [find_tool("nvdisasm") or "", "-c", "-ndf", str(file)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        for line in done.stdout.splitlines():
            words = line.partition("*/")[2].split()
            if line.lstrip().startswith("/*") and words:
                name = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
                found.add(name.rstrip(";").partition(".")[0])
    return found


ENGINE = {"UTMALDG"}
"""Copies by TMA (TMA)."""
THREADS = {"LDGSTS"}
"""Copies by threads (`cp.async`)."""
UNITS = {"HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA"}
WAYS: list[tuple[Any, Any, str, set[str], set[str]]] = [
    (product, BF16, WGMMA, {"HGMMA"}, ENGINE),
    (product, np.float16, WGMMA, {"HGMMA"}, ENGINE),
    (wide_product, E4M3, WGMMA, {"QGMMA"}, ENGINE),
    (wide_product, np.int8, WGMMA, {"IGMMA"}, ENGINE),
    (product, BF16, WMMA, {"HMMA"}, THREADS),
    (wide_product, np.int8, WMMA, {"IMMA"}, THREADS),
    (product, BF16, PLAIN, set(), set()),
]


@pytest.mark.parametrize(("function", "dtype", "units", "wanted", "copies"), WAYS)
def test_a_flag_takes_a_path_of_a_product(
    function: Any, dtype: Any, units: str, wanted: set[str], copies: set[str], tmp_path: Path
) -> None:
    side = np.zeros((256, 256), dtype)
    found = instructions(tmp_path, function, [side, side], {"matrix.instruction": units})
    assert found & UNITS == wanted
    assert found & (ENGINE | THREADS) == copies
    if units == WGMMA:
        assert {"SYNCS", "UTMASTG"} <= found
    if units == PLAIN:
        assert "FFMA" in found


@pytest.mark.parametrize(("units", "wanted"), [(WGMMA, {"HGMMA", "UTMALDG"}), (WMMA, {"HMMA", "LDGSTS"})])
def test_a_flag_takes_a_path_of_an_attention(units: str, wanted: set[str], tmp_path: Path) -> None:
    heads = np.zeros((1, 2, 256, 64), BF16)
    found = instructions(tmp_path, attention, [heads] * 3, {"matrix.instruction": units})
    assert found & (UNITS | ENGINE | THREADS) == wanted
