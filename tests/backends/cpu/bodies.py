"""Bodies of groups written as a program would be, and the kernels they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tessera.backends.reference.compile import run_tape
from tessera.ir.base.arrays import Array
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.ir.graph.dialect import DIALECT
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import Request
from tessera.ir.schedule.kinds import KernelKind, kind_for
from tessera.ir.tile.facets import Assembly, Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType, f32
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.backends.cpu.native import Native, assert_close, build, interpret, machines, values_of


@dataclass(frozen=True)
class _Rules:
    """Dims that may be equal are, by a guard of the tape."""

    tape: Tape

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        if left != right:
            assert not (left - right).value, what
            self.tape.guards.append(Guard(left, right, what))
        return left

    def fail(self, message: str, *, help: str = "") -> Exception:
        return AssertionError(message)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        return AssertionError(message)


@dataclass
class Writer:
    """Writes a tape: `w.sum(w.input([M, N]), axes=(1,))`."""

    tape: Tape = field(default_factory=Tape)

    def input(self, shape: Sequence[DimLike], dtype: DType = f32) -> int:
        value = self.tape.new_value(TensorType.of(shape, dtype))
        self.tape.inputs.append(value)
        self.tape.names.append(f"x{value}")
        return value

    def op(self, name: str, *operands: int, **attributes: Any) -> int:
        spec = DIALECT[name]
        filled = spec.with_defaults(attributes)
        types = spec.infer(_Rules(self.tape), [self.tape.types[operand] for operand in operands], filled)
        results = tuple(self.tape.new_value(type) for type in types)
        self.tape.records.append(Record(spec.name, operands, filled, results))
        return results[0]

    def __getattr__(self, name: str) -> Any:
        return partial(self.op, name)

    def body(self, *outputs: int) -> Tape:
        self.tape.outputs = list(outputs)
        return self.tape


def kernels_of(body: Tape, machine: Machine, name: str = "k", **overrides: Any) -> list[SpecOp]:
    """The tile kernels of a body, by what is in it."""
    chooser = StaticChooser(overrides)
    facet, axes = Pointwise, tuple[int, ...]()
    for record in body.records:
        lower = spec_of(record).lower
        if isinstance(lower, Contraction | Assembly | Reduction):
            facet = type(lower)
            if isinstance(lower, Reduction):
                axes = lower.axes(body.types[record.operands[0]], record.attributes)
            break
    kind = kind_for(facet)
    assert isinstance(kind, KernelKind)
    return list(kind.emit(Request(name, body, machine, chooser, axes=axes)))


def kernel_of(body: Tape, machine: Machine, name: str = "k", **overrides: Any) -> SpecOp:
    (kernel,) = kernels_of(body, machine, name, **overrides)
    return kernel


def arrays_of(body: Tape, sizes: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Inputs full of numbers."""
    rng = np.random.default_rng(seed)
    types = [body.types[value] for value in body.inputs]
    return [values_of(rng, tuple(dim.evaluate(sizes) for dim in type.shape), type.dtype) for type in types]


def check(
    body: Tape,
    sizes: Mapping[str, int],
    *,
    inputs: Sequence[Array] | None = None,
    ulps: int = 0,
    reference_ulps: int | None = None,
    threads: int = 1,
    **overrides: Any,
) -> None:
    """All agree on a body: the interpreter of tiles, machine code of every width, and what its ops mean.

    Machine code equals the interpreter up to `ulps`; both equal the ops' references up to `reference_ulps`, where the
    order of sums may differ.
    """
    given = list(inputs if inputs is not None else arrays_of(body, sizes))
    expected = run_tape(body, given, sizes)
    for machine in machines():
        outputs = [np.full(array.shape, 1, array.dtype) for array in expected]
        tiles, native = [*given, *outputs], [*given, *outputs]
        for built in _build(body, machine, overrides):
            tiles = interpret(built.kernel, tiles, sizes)
            native = built.run(native, sizes, threads)
            assert_close(native, tiles, ulps)
        assert_close(native[len(given) :], expected, ulps if reference_ulps is None else reference_ulps)


_BUILT: list[tuple[Tape, Any, list[Native]]] = []
"""The kernels made last: one body is checked at several sizes, and its kernels are the same for all of them."""
_KEPT = 4


def _build(body: Tape, machine: Machine, overrides: Mapping[str, Any]) -> list[Native]:
    made_of = machine, dict(overrides), list(body.records), list(body.outputs)
    for other, key, found in _BUILT:
        if other is body and key == made_of:
            return found
    found = [build(kernel, machine) for kernel in kernels_of(body, machine, **overrides)]
    _BUILT.append((body, made_of, found))
    del _BUILT[:-_KEPT]
    return found
