"""Lower every tile kernel of a module to Target IR."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.cpu.lower import BlockLowering, LoopLowering, Lowering, goes_by_rows
from tessera.backends.cpu.scattered_reads import ScatteredReads
from tessera.backends.cpu.tile_loops import TileLoops
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.build import replace_ops
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.architectures import host_features, machine_of
from tessera.ir.target.limits import registers_of
from tessera.ir.target.typed_ops import ElementwiseOp, ShuffleOp, VoteOp
from tessera.ir.tile.choices import tensor_core_attributes
from tessera.ir.tile.typed_ops import DotOp
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine


@frozen
class LowerKernels(Pass):
    """Replace each `ttile.kernel` by a `ttarget.kernel`, for a machine with `features`, or for this one.

    Before: `ttile.kernel @k` with loads of tiles at index maps. After: `ttarget.kernel @k` with loads of vectors at
    linear offsets, loops of whole steps with tails, contractions as one op. Where `is_checked`, as it is in debug
    builds and with `TESSERA_VERIFY=1`, each kernel must access the memory that its tile kernel does. `unit` is the
    matrix instruction that is asked for.
    """

    is_lowering = True
    features: tuple[str, ...] = ()
    is_checked: bool = False
    unit: str = AUTOMATIC

    def run(self, module: ModuleOp) -> None:
        machine = machine_of(frozenset(self.features) or host_features())
        replace_ops(module, "ttile.kernel", lambda op: self._lower(op, machine))

    def _lower(self, kernel: SpecOp, machine: Machine) -> SpecOp:
        source, target = translate(kernel, machine, self.unit)
        if self.is_checked:
            from tessera.backends.cpu.passes.compare_accesses import compare_accesses  # noqa: PLC0415 - loads isl

            compare_accesses(source, target, has_loops=source is not kernel)
        return target


def lower_kernel(kernel: SpecOp, machine: Machine, unit: str = AUTOMATIC) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel`.

    A contraction, and a kernel whose tiles fit registers, keep their tiles there; one with dots inside keeps them as
    blocks in scratch, and so does a user's kernel that works on tall tiles row by row. A user's kernel that does
    neither, or whose text would be long, goes over its tiles in loops.
    """
    return translate(kernel, machine, unit)[1]


def translate(kernel: SpecOp, machine: Machine, unit: str = AUTOMATIC) -> tuple[SpecOp, SpecOp]:
    """The tile kernel as it is lowered, which may have more loops than it was given with, and what it becomes."""
    _check_units(kernel)
    source, is_blocked = kernel, goes_by_rows(kernel)
    target: SpecOp | None = None
    try:
        target = (BlockLowering if is_blocked else Lowering)(kernel, machine, unit).run()
    except TargetVerifyError:
        if kernel.value("schedule") is None:
            raise
    if target is None or (kernel.value("schedule") is not None and text_estimate(target) > LONGEST):
        source = TileLoops(kernel, machine.lanes).run()
        target = LoopLowering(source, machine).run()
    keep_promises(kernel, target)
    ScatteredReads(target).run()
    return source, target


LONGEST = 3500
"""The largest `text_estimate` of a kernel that is unrolled: about 0.7 s of LLVM for AVX2 (measured)."""
_LARGEST = 512
"""Vectors of the largest tile that is unrolled, well below what `ttarget.kernel` allows on the smallest machine."""
_POLYNOMIAL = 10
"""Instructions of a function that is approximated, at least."""
_LANE = 3
"""Instructions for each lane that exchanges its element: vectors are taken apart and put together again."""
_CARRIED = 16
"""A vector that a loop carries costs as much as so many others: a loop of 512 of them takes LLVM 20 s (measured)."""


def text_estimate(kernel: SpecOp) -> int:
    """How long LLVM takes for a `ttarget.kernel`, in vector instructions that take as long."""
    lanes, total = kernel.value("lanes"), 0
    for op in kernel.walk():
        types = [value.type for value in (*op.results, *op.operands[:1]) if isinstance(value.type, VectorAttr)]
        counts = [registers_of(type.sizes, lanes) * (2 if _is_scalar(type.sizes, lanes) else 1) for type in types]
        if max(counts, default=0) > _LARGEST:
            return LONGEST + 1
        if op.regions:
            total += _CARRIED * sum(counts)
        elif isinstance(op, ElementwiseOp):
            function = SCALAR_FUNCTIONS[op.fn]
            total += max(counts) * (function.flops if function.ulp is None else max(function.flops, _POLYNOMIAL))
        elif isinstance(op, ShuffleOp | VoteOp):
            total += _LANE * prod(types[0].sizes)
        else:
            total += max(counts, default=0)
    return total


def _is_scalar(sizes: Sequence[int], lanes: int) -> bool:
    """Whether rows are not whole vectors: then every element is computed on its own."""
    return bool(sizes) and sizes[-1] > lanes and sizes[-1] % lanes != 0


def _check_units(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for a kernel with choices for tensor cores, which would mean nothing here."""
    names = tensor_core_attributes(kernel)
    for op in kernel.walk():
        if isinstance(op, DotOp) and op.unit not in ("", PLAIN):
            names.append("unit")
            break
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TargetVerifyError(
            f"`@{kernel.value('symbol')}` has {listed}, and CPUs have no tensor cores",
            span=kernel.span,
            fix=f"leave {listed} out",
        )
