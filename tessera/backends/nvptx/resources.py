"""What a kernel takes of a GPU in numbers: threads, registers, shared memory, and the blocks that there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.backends.nvptx.gpus import MULTIPROCESSORS
from tessera.backends.nvptx.register_estimate import RegisterEstimate, estimate_registers
from tessera.types.frozen import frozen
from tessera.types.occupancy import Occupancy, Usage, occupancy


@frozen
class Resources:
    """A kernel on a multiprocessor; `resident` is how many of its blocks are launched at most, 0 for one a program."""

    name: str
    threads: int
    shared: int
    resident: int
    registers: RegisterEstimate
    occupancy: Occupancy

    @property
    def launch(self) -> str:
        """How programs come to blocks."""
        return (
            f"persistent, at most {self.resident} blocks take programs in turn"
            if self.resident
            else "one block a program"
        )

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.threads} threads a block, {self.registers}, {self.shared} bytes of shared memory, "
            f"{self.occupancy}; launched {self.launch}"
        )


def resources_of(fact: Mapping[str, Any], ptx: str, architecture: str) -> Resources:
    """The resources of a kernel from what is known of its launch, and its PTX."""
    estimate = estimate_registers(ptx, architecture)
    usage = Usage(fact["threads"], estimate.registers, fact["shared"])
    return Resources(
        fact["name"],
        fact["threads"],
        fact["shared"],
        fact.get("resident", 0),
        estimate,
        occupancy(MULTIPROCESSORS[architecture], usage),
    )


def resources_in(metadata: Mapping[str, Any], objects: Sequence[bytes]) -> list[Resources]:
    """Those of all kernels of an executable for a GPU; what is machine code already is left out."""
    _, *kernels, _ = objects
    return [
        resources_of(fact, code.decode(), metadata["architecture"])
        for fact, code in zip(metadata["kernels"], kernels, strict=True)
        if code.lstrip().startswith(b"//") or b".version" in code[:400]
    ]
