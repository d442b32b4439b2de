"""A dozen tile kernels of all kinds, and what they become on two machines: for tests that look at Target IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.base.op import SpecOp
from tessera.ir.target.architectures import machine_of
from tessera.stdlib.kernels import LIBRARY
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.backends.cpu.bodies import Writer, kernels_of

_HALF = ("avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx")
_WHOLE = (*_HALF, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
MACHINES = {"avx2": machine_of(frozenset(_HALF)), "avx512": machine_of(frozenset(_WHOLE))}

M, N, K = (Dim.symbol(name) for name in "MNK")


def _bias(w: Writer) -> int:
    return w.relu(w.add(w.input([M, N], dt.bf16), w.input([N], dt.bf16)))


def _flat(w: Writer) -> int:
    return w.mul(w.input([M, N, 4]), w.input([M, N, 4]))


def _transpose(w: Writer) -> int:
    return w.sub(w.transpose(w.input([N, M]), axes=(1, 0)), w.flip(w.input([M, N]), axes=(1,)))


def _softmax(w: Writer) -> int:
    x = w.input([M, N])
    powers = w.exp(w.sub(x, w.max(x, axes=(1,), keepdims=True)))
    return w.div(powers, w.sum(powers, axes=(1,), keepdims=True))


def _columns(w: Writer) -> int:
    return w.sum(w.input([M, K, N]), axes=(1,))


def _apart(w: Writer) -> int:
    return w.max(w.input([M, K, N]), axes=(0, 2))


def _matmul(w: Writer) -> int:
    return w.relu(w.add(w.matmul(w.input([M, K], dt.bf16), w.input([K, N], dt.bf16)), w.input([N], dt.bf16)))


def _batch(w: Writer) -> int:
    left, right = w.input([3, M, K]), w.transpose(w.input([3, N, K]), axes=(0, 2, 1))
    return w.mul(w.matmul(left, right), w.input([3, M, 1]))


def _windows(w: Writer) -> int:
    one = (Dim.constant(1),) * 2
    kernel, image = w.input([M, 3, 3, 3]), w.input([2, 3, N, K])
    return w.conv_windows(kernel, image, stride=(1, 1), dilation=(1, 1), low=one, high=one, grouped=False)


def _concat(w: Writer) -> int:
    return w.concat(w.input([M, N]), w.input([M, 4]), axis=1)


def _gather(w: Writer) -> int:
    return w.index_legal(w.input([M, N]), w.input([K], dt.i32), axes=(1,), out_axis=1)


BODIES: dict[str, Callable[[Writer], int]] = {
    "bias": _bias,
    "flat": _flat,
    "turned": _transpose,
    "softmax": _softmax,
    "columns": _columns,
    "apart": _apart,
    "product": _matmul,
    "batched": _batch,
    "windows": _windows,
    "joined": _concat,
    "gathered": _gather,
}
NAMES = (*BODIES, "attention", "causal")


def tile_kernels(name: str, machine: Machine) -> Sequence[SpecOp]:
    """The tile kernels of a sample."""
    if name in BODIES:
        w = Writer()
        return kernels_of(w.body(BODIES[name](w)), machine, name)
    head = [TensorType.of([2, 4, length, 64], dt.f32) for length in (M, N, N)]
    attributes = {"causal": name == "causal", "scale": None}
    return LIBRARY["attention"].build(name, head, [head[0]], attributes)


def lower_samples(name: str, machine: Machine) -> list[tuple[SpecOp, SpecOp]]:
    """Each tile kernel with what it becomes."""
    return [(kernel, lower_kernel(kernel, machine)) for kernel in tile_kernels(name, machine)]
