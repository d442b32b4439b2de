"""What a machine can do, as a value: passes read it, and never import a backend."""

from __future__ import annotations

from tessera.types.frozen import frozen


@frozen
class Machine:
    """A machine that code is made for.

    `lanes` is how many f32 one vector register holds; on a GPU, a warp's. Sizes are bytes; `threads` is not here: it
    never changes code. Of a GPU, `shared` is what one block may have, `blocks` how many multiprocessors there are,
    and `isa` the instruction set its assembler is told.
    """

    name: str
    kind: str = "cpu"
    lanes: int = 8
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    features: tuple[str, ...] = ()
    cpu: str = ""
    max_scratch: int = 64 << 20
    shared: int = 0
    blocks: int = 0
    isa: str = ""

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def is_gpu(self) -> bool:
        return self.kind == "gpu"

    @property
    def is_proven(self) -> bool:
        """Whether code for it was ever executed by who wrote it; for other GPUs it was assembled and no more."""
        return not self.is_gpu or self.cpu in PROVEN


def _gpu(cpu: str, isa: str, shared: int, blocks: int, l2: int, features: tuple[str, ...]) -> Machine:
    return Machine(
        f"cuda-{cpu}", "gpu", 32, 255, 0, l2, features, cpu, max_scratch=1 << 40, shared=shared, blocks=blocks, isa=isa
    )


PROVEN = ("sm_90a",)
"""GPUs that code was run on."""
_AMPERE = ("sm_80", "cp.async", "ldmatrix", "mma.sync")
_HOPPER = ("sm_90", "tma", "mbarrier", "cluster")

GPUS: dict[str, Machine] = {
    machine.cpu: machine
    for machine in (
        _gpu("sm_80", "+ptx80", 163 << 10, 108, 40 << 20, _AMPERE),
        _gpu("sm_86", "+ptx80", 99 << 10, 84, 6 << 20, _AMPERE),
        _gpu("sm_89", "+ptx80", 99 << 10, 128, 72 << 20, _AMPERE),
        _gpu("sm_90a", "+ptx87", 227 << 10, 132, 50 << 20, (*_AMPERE, *_HOPPER, "sm_90a", "wgmma", "setmaxnreg")),
        _gpu("sm_100a", "+ptx87", 227 << 10, 148, 126 << 20, (*_AMPERE, *_HOPPER, "sm_100a", "tcgen05")),
        _gpu("sm_120a", "+ptx87", 99 << 10, 170, 96 << 20, (*_AMPERE, *_HOPPER)),
    )
}
"""GPUs by architecture (CUDA C++ Programming Guide, compute capabilities); only sm_90a was ever executed."""
