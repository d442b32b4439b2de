"""What the compiler makes of a case: the one place of the replay that knows names inside of the compiler."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.ir.target.architectures import machine_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.replay.case import Case, Sample
from tests.target.samples import tile_kernels

AVX2 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "popcnt", "sse4.2")
AVX512 = (*AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
MACHINES: dict[str, dict[str, Any]] = {
    "cpu-avx2": {"backend": "cpu", "features": AVX2},
    "cpu-avx512": {"backend": "cpu", "features": AVX512},
    "gpu-sm_80": {"backend": "cuda", "features": ("sm_80",)},
    "gpu-sm_90a": {"backend": "cuda", "features": ("sm_90a",)},
    "gpu-sm_100a": {"backend": "cuda", "features": ("sm_100a",)},
}
"""The options that name each machine: never what this computer happens to be."""


def lowered_texts(case: Case | Sample, machine: str) -> list[str]:
    """The final LLVM text of the host program and of each kernel, in the order of the program."""
    options = MACHINES[machine]
    if isinstance(case, Sample):
        return _sample_texts(case, options)
    with case.context():
        jitted: Any = ts.jit(case.function, **case.options, **options)
        lowering = lower(jitted.trace(*case.arguments()).tape, jitted.options)
    return [lowering.host, *lowering.texts]


def _sample_texts(case: Sample, options: dict[str, Any]) -> list[str]:
    """The text of tile kernels that no graph was scheduled for."""
    if options["backend"] == "cpu":
        host = CpuBackend(machine_of(frozenset(options["features"])))
        texts, shared = host.parts([host.lower(kernel) for kernel in tile_kernels(case.name, host.machine)])
        return [*texts, *shared.values()]
    device = NvptxBackend(GPUS[options["features"][0]])
    return [device.code(device.lower(kernel)).text for kernel in tile_kernels(case.name, device.machine)]
