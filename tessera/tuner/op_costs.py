"""What an op costs under a plan of its user, and what a model knows of machines that are not here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tessera.diagnostics.codes import TuningError
from tessera.diagnostics.error import find_nearest
from tessera.tuner.cost_model import Hardware, KernelWork
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import Multiprocessor, Usage
from tessera.types.rates import Rates, rates_of

_THREADS, _REGISTERS = 256, 168
"""Of a block of a kernel on tensor cores, as the compiler makes them for Hopper."""
PAYLOADS: Mapping[str, int] = {"off": 0, "bf16": 16, "fp8": 8, "int8": 8}
"""What an exchange between ranks carries, by bits; `off` is the elements as they are."""


@frozen
class OpCost:
    """What a plan of an op does: its kernels, what goes over links, and the bytes that it needs together."""

    kernels: tuple[KernelWork, ...]
    link: float
    memory: float
    overlaps: bool

    @property
    def bytes_moved(self) -> float:
        """Bytes from and to memory, and over links."""
        return sum(work.memory for work in self.kernels) + self.link


@frozen
class Op:
    """An op that plans are searched for: the names of its dims, and its cost."""

    dims: tuple[str, ...]
    cost: Callable[[Sequence[int], DType, Mapping[str, int], Mapping[str, Any]], OpCost]
    tile: tuple[int, int, int]
    """The tile of a plan that names none."""


def _split(size: int, ranks: int, what: str) -> int:
    if size % ranks:
        raise TuningError(
            f"{ranks} ranks of `tp` do not divide {size} {what}",
            notes=("rule: a shard has the same size on every rank",),
            fix=f"take a mesh of {math.gcd(size, ranks)} ranks, or pad {what} to {-(-size // ranks) * ranks}",
        )
    return size // ranks


def _sizes_of(plan: Mapping[str, Any], usual: Sequence[int]) -> tuple[int, int, int]:
    tile = tuple(plan.get("tiles", usual))
    rows, columns, depth = (*tile, *usual[len(tile) :])
    return rows, columns, depth


def _exchange_bytes(elements: float, dtype: DType, ranks: int, plan: Mapping[str, Any]) -> float:
    """Bytes that a reduce-scatter and an all-gather of so many elements send from each rank."""
    bits = PAYLOADS[plan.get("a2a_quant", "off")] or max(16, dtype.bits)
    return 2 * elements * bits / 8 * (ranks - 1) / ranks if ranks > 1 else 0.0


def _bias(elements: float, element: float, plan: Mapping[str, Any]) -> list[KernelWork]:
    """The kernel that adds a bias where the one before it does not."""
    if plan.get("fuse_bias", True):
        return []
    return [KernelWork(elements, "f32", 2 * elements * element, blocks=max(1, int(elements) // 4096))]


def _matmul_cost(shape: Sequence[int], dtype: DType, mesh: Mapping[str, int], plan: Mapping[str, Any]) -> OpCost:
    ranks = mesh.get("tp", 1)
    rows, columns, depth = shape[0], _split(shape[1], ranks, "columns"), shape[2]
    BM, BN, BK = _sizes_of(plan, (128, 128, 64))
    element = dtype.bits / 8
    blocks = -(-rows // BM) * -(-columns // BN)
    moved = (rows * depth + depth * columns + rows * columns) * element
    work = KernelWork(
        2.0 * blocks * BM * BN * depth,
        str(dtype.bits),
        moved,
        l2=blocks * (BM + BN) * depth * element,
        blocks=blocks,
        usage=Usage(_THREADS, _REGISTERS, int(3 * (BM + BN) * BK * element)),
        in_flight=2 * (BM + BN) * BK * element,
        steps=-(-depth // BK),
    )
    link = _exchange_bytes(rows * shape[1], dtype, ranks, plan)
    kernels = (work, *_bias(rows * columns, element, plan))
    return OpCost(kernels, link, moved + link, bool(plan.get("rsmmag", False)))


def _attention_cost(shape: Sequence[int], dtype: DType, mesh: Mapping[str, int], plan: Mapping[str, Any]) -> OpCost:
    ranks = mesh.get("tp", 1)
    batch, heads, length, width = shape[0], _split(shape[1], ranks, "heads"), shape[2], shape[3]
    batch = -(-batch // mesh.get("dp", 1))
    BM, BN, _ = _sizes_of(plan, (128, 128, 64))
    element = dtype.bits / 8
    blocks = batch * heads * -(-length // BM)
    steps = -(-length // BN)
    elements = batch * heads * length * width
    work = KernelWork(
        4.0 * blocks * BM * steps * BN * width,
        str(dtype.bits),
        4 * elements * element,
        l2=blocks * (2 * BM + 2 * steps * BN) * width * element,
        blocks=blocks,
        usage=Usage(_THREADS, _REGISTERS, int((BM + 4 * BN) * width * element)),
        in_flight=2 * BN * width * element,
        steps=steps,
    )
    link = _exchange_bytes(elements, dtype, ranks, plan)
    kernels = (work, *_bias(elements, element, plan))
    return OpCost(kernels, link, 4 * elements * element + link, bool(plan.get("rsmmag", False)))


def _row_cost(shape: Sequence[int], dtype: DType, mesh: Mapping[str, int], plan: Mapping[str, Any]) -> OpCost:
    rows, columns = shape
    element, moved = dtype.bits / 8, 2 * rows * columns * dtype.bits / 8
    kernels = (KernelWork(8.0 * rows * columns, "f32", moved, blocks=rows), *_bias(rows * columns, element, plan))
    return OpCost(kernels, 0.0, moved, overlaps=False)


OPS: Mapping[str, Op] = {
    **dict.fromkeys(("matmul", "gemm"), Op(("M", "N", "K"), _matmul_cost, (128, 128, 64))),
    **dict.fromkeys(("flash_attention", "attention"), Op(("B", "H", "L", "D"), _attention_cost, (128, 128, 64))),
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm"), Op(("R", "C"), _row_cost, (1, 1, 1))),
}
"""Ops of which the cost under a plan is known."""


# Machines that are not here.


@cache
def _vendor_machines() -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name("machines.json").read_text(encoding="utf-8"))


def known_machines() -> tuple[str, ...]:
    """Machines that a model can rank plans for although they are not here."""
    return tuple(_vendor_machines())


def hardware_of(arch: str) -> tuple[Hardware, float]:
    """What the model knows of a machine, and the bytes of its memory: as measured, or by what its vendor says.

    Raises TuningError (T0803) for one that nobody described.
    """
    found = _vendor_machines().get(arch)
    measured = rates_of(arch.partition("-")[0]) if found is None else None
    if measured is not None:
        memory = _vendor_machines()["H200"]["memory_bytes"] if arch.startswith("sm_90") else 64e9
        return Hardware(measured), memory
    if found is None:
        near = find_nearest(arch, _vendor_machines())
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise TuningError(
            f"`{arch}` is not this machine, and nothing is known of its rates",
            fix=f"{guess}a model knows {', '.join(_vendor_machines())}; leave `arch` out for this machine",
        )
    rates = Rates(
        units=found["units"],
        curve=((1 << 20, found["l2"]), (1 << 30, found["memory"])),
        unit_curve=(),
        flops=tuple(found["flops"].items()),
        launch=found["launch"],
        latency=found["latency"],
        chain=0.0,
    )
    unit = Multiprocessor(found["warps"], found["blocks"], found["shared"])
    return Hardware(rates, unit, link=found["link"]), float(found["memory_bytes"])
