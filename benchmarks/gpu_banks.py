"""Conflicts of banks, foreseen and counted: squares read by columns in shared memory, in every order that it can have.

Run under `ncu --csv --metrics METRICS` (the script prints the metrics with `--metrics`, what it foresees with
`--foreseen`, and joins both with `--join FILE`); without arguments it runs the kernels.
"""

from __future__ import annotations

import csv
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from tessera.backends.nvptx.bank_lint import shared_accesses
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.target.machine_code import compile_text

METRICS = {
    "loads": "smsp__inst_executed_op_shared_ld.sum",
    "stores": "smsp__inst_executed_op_shared_st.sum",
    "load turns": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store turns": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
CASES = [
    *((32, "f32", vector, swizzle) for vector in (1, 4) for swizzle in (0, 4, 8, 16)),
    *((64, "f32", 1, swizzle) for swizzle in (0, 4)),
    *((64, "f16", 1, swizzle) for swizzle in (0, 4, 16)),
    (32, "f64", 1, 0),
]
"""Sizes of a square, dtype, neighbours of a thread, and bytes of the pieces that are swizzled."""
PROGRAMS = 64

TEXT = """
builtin.module attributes {{tessera.version = 2 : i64}} {{
  ttile.kernel @turn_{number}(%x: !ttile.buffer<[M, {n}, {n}], {dtype}>, %y: !ttile.buffer<[M, {n}, {n}], {dtype}>) attributes {{symbols = ["M"], grid = [M], writes = [1], schedule = {{vector = {vector}}}}} {{
    %p = ttile.program_id {{axis = 0}} : () -> !ttile.index
    %z = ttile.index {{names = [], expr = 0}} : () -> !ttile.index
    %s = ttile.scratch {{space = "shared", swizzle = {swizzle}}} : () -> !ttile.buffer<[{n}, {n}], {dtype}>
    %t = ttile.load %x, %p, %z, %z {{coords = ["p", "a", "b"], axes = ["a", "b"], map = [p, a, b], bounds = [-1, -1]}} : (!ttile.buffer<[M, {n}, {n}], {dtype}>, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[{n}, {n}], {dtype}>
    ttile.store %t, %s, %z, %z {{coords = ["a", "b"], axes = ["a", "b"], map = [a, b], bounds = [-1, -1]}} : (!ttile.tile<[{n}, {n}], {dtype}>, !ttile.buffer<[{n}, {n}], {dtype}>, !ttile.index, !ttile.index) -> ()
    ttile.barrier
    %e = ttile.index {{names = [], expr = {n}}} : () -> !ttile.index
    ttile.for %z, %e {{step = 1}} ({{
    ^bb0(%c: !ttile.index):
      %u = ttile.load %s, %z, %c {{coords = ["a", "c"], axes = ["a"], map = [a, c], bounds = [-1]}} : (!ttile.buffer<[{n}, {n}], {dtype}>, !ttile.index, !ttile.index) -> !ttile.tile<[{n}], {dtype}>
      ttile.store %u, %y, %p, %c, %z {{coords = ["p", "c", "a"], axes = ["a"], map = [p, c, a], bounds = [-1]}} : (!ttile.tile<[{n}], {dtype}>, !ttile.buffer<[M, {n}, {n}], {dtype}>, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttile.yield
    }}) : (!ttile.index, !ttile.index) -> ()
    ttile.return
  }}
}}
"""  # noqa: E501 - IR as it is printed


def kernel(number: int) -> SpecOp:
    """A case, lowered."""
    load_dialects()
    n, dtype, vector, swizzle = CASES[number]
    text = TEXT.format(number=number, n=n, dtype=dtype, vector=vector, swizzle=swizzle)
    module, backend = parse_module(text), NvptxBackend()
    for one in (*backend.tile_passes(), *backend.target_passes()):
        one.run(module)
    (made,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return made


def foreseen() -> list[dict[str, Any]]:
    """Cycles of one store and of one load of a warp, by case."""
    found: list[dict[str, Any]] = []
    for number, case in enumerate(CASES):
        store, load = shared_accesses(kernel(number))
        found.append({"case": list(case), "store": store.wavefronts.taken, "load": load.wavefronts.taken})
    return found


def run() -> None:
    """Launch every case once, and see that it transposes squares."""
    import numpy as np  # noqa: PLC0415 - not wanted where nothing runs

    from tessera.runtime.devices.cuda.assembler import machine_code  # noqa: PLC0415
    from tessera.runtime.devices.cuda.driver import Module, driver  # noqa: PLC0415
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415

    backend = NvptxBackend()
    for number, (n, dtype, _, _) in enumerate(CASES):
        code = backend.code(kernel(number))
        module = Module(machine_code(compile_text(code.text, backend.code_target), "sm_90a"))
        function = module.function(code.name, code.shared)
        given = {"f32": np.float32, "f16": np.float16, "f64": np.float64}[dtype]
        x = np.random.default_rng(number).standard_normal((PROGRAMS, n, n)).astype(given)
        tensors = [CudaTensor.of(x, None), CudaTensor.of(np.zeros_like(x), None)]
        words = [ctypes.c_int64(value) for value in (tensors[0].address, tensors[1].address, PROGRAMS, 0)]
        cells = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        blocks = -(-PROGRAMS // code.programs)
        shape = (blocks, 1, 1, code.threads, 1, 1, code.shared)
        driver().call("cuLaunchKernel", ctypes.c_void_p(function), *shape, None, cells, None)
        driver().call("cuCtxSynchronize")
        np.testing.assert_array_equal(np.asarray(tensors[1]), x.transpose(0, 2, 1))
    print("all squares are transposed")


def join(file: str) -> list[dict[str, Any]]:
    """What was foreseen beside what the profiler counted."""
    counted: dict[int, dict[str, float]] = {}
    names = {metric: name for name, metric in METRICS.items()}
    lines = [line for line in Path(file).read_text().splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        if row["Kernel Name"].startswith("turn_") and row["Metric Name"] in names:
            number = int(row["Kernel Name"].split("_")[1].split("(")[0])
            value = float(row["Metric Value"].replace(",", ""))
            counted.setdefault(number, {})[names[row["Metric Name"]]] = value
    found = foreseen()
    for number, one in enumerate(found):
        here = counted.get(number, {})
        # A column has fewer elements than there are threads: warps that own none execute a load that touches nothing.
        idle = {"load": kernel(number).value("threads") // CASES[number][0], "store": 1}
        for kind in ("load", "store"):
            if here.get(f"{kind}s"):
                one[f"{kind} counted"] = idle[kind] * here[f"{kind} turns"] / here[f"{kind}s"]
    return found


def main() -> None:
    """The command line."""
    if "--metrics" in sys.argv:
        print(",".join(METRICS.values()))
    elif "--foreseen" in sys.argv:
        print(json.dumps(foreseen()))
    elif "--join" in sys.argv:
        cases = join(sys.argv[sys.argv.index("--join") + 1])
        print(json.dumps({"device": "NVIDIA H200", "tool": "ncu", "metrics": METRICS, "cases": cases}, indent=1))
    else:
        run()


if __name__ == "__main__":
    main()
