"""Programs of one op made from its samples, run by the interpreter, and their derivatives by central differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.interpret import interpret
from tessera.ir.base.spec import Attributes, OpSpec, Sample
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.transforms.linearize import linearize
from tessera.ir.graph.transforms.reverse import vjp_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types import dtype as dt
from tessera.types.shape import TensorType

Array = np.ndarray[Any, Any]


def in_f64(sample: Sample, seed: int = 0) -> list[Array]:
    """The operands of a sample, floats as f64."""
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(seed))]
    return [array.astype(np.float64) if dtype_of(array).is_float else array for array in arrays]


def program_of(spec: OpSpec, sample: Sample, arrays: Sequence[Array]) -> Tape:
    """A tape of one record, that of a sample."""
    return differentiable_tape(spec, sample.attributes, arrays)


def differentiable_tape(spec: OpSpec, attributes: Attributes, arrays: Sequence[Array]) -> Tape:
    """A tape of one record, in f64 where narrower floats are asked for."""
    builder = TapeBuilder()
    types = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
    operands = add_inputs(builder.tape, types, [f"x{at}" for at in range(len(types))])
    given = {
        name: dt.f64 if value in (dt.f32, dt.bf16, dt.f16, dt.f8e4m3, dt.f8e5m2) else value
        for name, value in attributes.items()
    }
    results = builder.append(spec, operands, spec.with_defaults(given))
    builder.tape.outputs = list(results)
    return builder.tape


def run(tape: Tape, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a tape, by the references of its ops; it is verified first."""
    module = from_tape(tape)
    verify(module)
    with np.errstate(all="ignore"):
        return [np.asarray(one) for one in interpret(symbol_table(module)["main"], *arrays)]


def active_inputs(tape: Tape) -> list[int]:
    """The numbers of the inputs that are floats."""
    return [at for at, value in enumerate(tape.inputs) if tape.types[value].dtype.is_float]


def tangents_of(tape: Tape, arrays: Sequence[Array], directions: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The outputs of a tape and their tangents, by its rules."""
    count = len(tape.outputs)
    found = run(linearize(tape, active_inputs(tape)).jvp_tape(), [*arrays, *directions])
    return found[:count], found[count:]


def cotangents_of(tape: Tape, arrays: Sequence[Array], seeds: Sequence[Array]) -> list[Array]:
    """The cotangents of the float inputs of a tape, by its rules."""
    count = len(tape.outputs)
    return run(vjp_tape(linearize(tape, active_inputs(tape))), [*arrays, *seeds])[count:]


def differences(tape: Tape, arrays: Sequence[Array], directions: Sequence[Array], step: float = 1e-6) -> list[Array]:
    """The tangents of a tape's outputs by central differences."""

    def moved(by: float) -> list[Array]:
        given, left = list(arrays), iter(directions)
        for at in active_inputs(tape):
            given[at] = given[at] + by * next(left)
        return run(tape, given)

    with np.errstate(all="ignore"):
        return [
            (ahead - behind) / (2 * step) if dtype_of(ahead).is_float else np.zeros(ahead.shape)
            for ahead, behind in zip(moved(step), moved(-step), strict=True)
        ]
