"""Limits of each GPU: a kernel at the limit is accepted, and one beyond it is refused with both numbers."""

from __future__ import annotations

import pytest

from tessera.backends.nvptx.pipeline import MmaChoices, target_passes
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.text import parse_module
from tessera.ir.target.limits import MAX_REGISTERS_OF_THREAD, MAX_THREADS
from tessera.ir.target.passes.check_kernels import CheckKernels

SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90a": 227, "sm_100a": 227, "sm_120a": 99}
"""KiB of shared memory of a block (CUDA C++ Programming Guide, technical specifications per compute capability)."""
MACHINES = sorted(SHARED)


def gpu_kernel(machine: str, shared: int = 0, **changes: object) -> str:
    """A kernel of one warp, with a part of shared memory of so many bytes, or with other attributes."""
    features = str([one for one in GPUS[machine].features if one.startswith("sm_")]).replace("'", '"')
    scratch = -(-shared // 64) * 64
    values = {"lanes": 32, "features": features, "threads": 32, "align": 16, "scratch": scratch, **changes}
    given = ", ".join(f"{name} = {value}" for name, value in values.items())
    part = f'%s = ttarget.scratch {{offset = 0, space = "shared"}} : () -> !ttile.buffer<[{shared}], i8>\n'
    return f"""
ttarget.kernel @k() attributes {{symbols = [], writes = [], {given}}} {{
  ttarget.programs {{grid = [1]}} ({{
  ^bb0(%p: !ttile.index):
    {part if shared else ""}ttarget.yield
  }})
  ttarget.return
}}"""


def check(machine: str, text: str) -> None:
    """The last pass of the pipeline of that machine, as it is made there."""
    load_dialects()
    (last,) = [one for one in target_passes(GPUS[machine], MmaChoices()) if isinstance(one, CheckKernels)]
    last.run(parse_module(text))


def message_of(machine: str, text: str) -> str:
    with pytest.raises(TargetVerifyError) as caught:
        check(machine, text)
    return caught.value.message


def test_the_table_has_every_gpu() -> None:
    assert {name: machine.shared for name, machine in GPUS.items()} == {name: kib << 10 for name, kib in SHARED.items()}


@pytest.mark.parametrize("machine", MACHINES)
def test_shared_memory_of_a_block(machine: str) -> None:
    limit = SHARED[machine] << 10
    check(machine, gpu_kernel(machine, limit))
    assert message_of(machine, gpu_kernel(machine, limit + 1)) == (
        f"a block has {limit} bytes of shared memory here, and `@k` takes {limit + 1}"
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("threads", [MAX_THREADS + 32, 33, 31, 2048, -32])
def test_threads_of_a_block(machine: str, threads: int) -> None:
    for allowed in (1, 32, MAX_THREADS):
        check(machine, gpu_kernel(machine, threads=allowed))
    assert f"whole warps of up to {MAX_THREADS} threads, got {threads}" in message_of(
        machine, gpu_kernel(machine, threads=threads)
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("registers", [MAX_REGISTERS_OF_THREAD + 1, 15, 512, -1])
def test_registers_of_a_thread(machine: str, registers: int) -> None:
    for allowed in (16, MAX_REGISTERS_OF_THREAD):
        check(machine, gpu_kernel(machine, max_registers=allowed))
    assert message_of(machine, gpu_kernel(machine, max_registers=registers)) == (
        f"`max_registers` is 16 to {MAX_REGISTERS_OF_THREAD} of a thread, got {registers}"
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_a_cap_of_shared_memory_holds(machine: str) -> None:
    check(machine, gpu_kernel(machine, 4096, max_shared=4096))
    assert message_of(machine, gpu_kernel(machine, 4160, max_shared=4096)) == (
        "`max_shared` allows 4096 bytes, and its shared scratch alone takes 4160"
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("vector", "align"), [(3, 16), (32, 16), (4, 2), (4, 32), (0, 16)])
def test_accesses_of_a_thread(machine: str, vector: int, align: int) -> None:
    assert message_of(machine, gpu_kernel(machine, vector=vector, align=align)).startswith("`vector` is a power of two")


@pytest.mark.parametrize("warps", [33, 64])
def test_warps_that_share_a_row(warps: int) -> None:
    check("sm_90a", gpu_kernel("sm_90a", warps_per_row=4))
    assert message_of("sm_90a", gpu_kernel("sm_90a", warps_per_row=warps)).startswith(
        "loops are shared by 1 to 32 warps"
    )
