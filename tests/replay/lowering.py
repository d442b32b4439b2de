"""What the compiler makes of a case: the one place of the replay that knows names inside of the compiler."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import tessera as ts
from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.ir.base import passes
from tessera.ir.target.architectures import machine_of
from tessera.ir.target.passes import check_kernels
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


VERIFIED = ("cpu-avx512", "gpu-sm_90a")
"""Machines for which the IR on the way is verified, a third of the time; the other machines get the same programs."""


def lowered_texts(case: Case | Sample, machine: str) -> list[str]:
    """The final LLVM text of the host program and of each kernel, in the order of the program."""
    if machine in VERIFIED:
        return _lowered_texts(case, MACHINES[machine])
    with patch.object(passes, "verify", _accept), patch.object(check_kernels, "verify", _accept):
        return _lowered_texts(case, MACHINES[machine])


def _accept(module: object) -> None:
    """A verifier that looks at nothing."""


def _lowered_texts(case: Case | Sample, options: dict[str, Any]) -> list[str]:
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
