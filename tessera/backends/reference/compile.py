"""The reference backend as a program: a trace run op by op on NumPy, compiled by nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tessera.diagnostics.codes import GuardError, RuntimeArgumentError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.interpret import calling, over_ranks, ranks_of
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import DONATED, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime.donation import Donation, consume
from tessera.runtime.tensor import Tensor
from tessera.types.dim import Dim

# Running a tape on NumPy arrays through the reference semantics of its ops.

Sizes = Mapping[str, int]


def run_tape(tape: Tape, arguments: Sequence[Any], sizes: Sizes | None = None) -> tuple[Array, ...]:
    """The outputs of a tape for these inputs; `sizes` are the dims already bound, inside a body.

    Raises: GuardError (T0702) when an input or a guard contradicts the tape.
    """
    arrays = [np.asarray(argument) for argument in arguments]
    bound = bind_sizes(tape, arrays, sizes)
    values: dict[int, Array] = dict(zip(tape.inputs, arrays, strict=True))
    for record in tape.records:
        spec = REGISTRY[record.op]
        attributes = {name: static_attribute(value, bound) for name, value in record.attributes.items()}
        results = _run(spec, [values[v] for v in record.operands], attributes)
        for number, result in zip(record.results, results, strict=True):
            expected = numpy_dtype(tape.types[number].dtype)
            assert result.dtype == expected, f"`{record.op}` gave {result.dtype}, its rule says {expected}"
            values[number] = result
    return tuple(values[output] for output in tape.outputs)


def _run(spec: OpSpec, operands: Sequence[Array], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    assert spec.reference is not None, f"`{spec.name}` has no reference"
    if ranks_of(spec, attributes) > 1:
        return over_ranks(spec, operands, attributes)
    with np.errstate(all="ignore"):
        result = spec.reference(*operands, **attributes)
    return tuple(np.asarray(item) for item in result) if isinstance(result, tuple) else (np.asarray(result),)


def static_attribute(value: Any, sizes: Sizes) -> Any:
    """An attribute as a reference takes it: dims with their values at this call, bodies as functions on arrays."""
    if isinstance(value, Dim):
        return Dim.constant(value.evaluate(sizes))
    if isinstance(value, Tape):
        return _function_of(value, sizes)
    if isinstance(value, tuple):
        return tuple(static_attribute(item, sizes) for item in cast("tuple[Any, ...]", value))
    return value


def _function_of(body: Tape, sizes: Sizes) -> Callable[..., tuple[Array, ...]]:
    def function(*arrays: Array) -> tuple[Array, ...]:
        return run_tape(body, arrays, sizes)

    return function


def bind_sizes(tape: Tape, arrays: Sequence[Array], sizes: Sizes | None = None) -> dict[str, int]:
    """The value of every symbol, from the inputs' shapes; checks everything that tape and inputs both say."""
    if len(arrays) != len(tape.inputs):
        raise RuntimeArgumentError(f"{len(tape.inputs)} inputs are needed, got {len(arrays)}")
    bound: dict[str, int] = dict(sizes or {})
    for value, array in zip(tape.inputs, arrays, strict=True):
        for dim, size in zip(tape.types[value].shape, array.shape, strict=True):
            if dim.symbol_name is not None:
                bound.setdefault(dim.symbol_name, size)
    for name, value, array in zip(tape.names, tape.inputs, arrays, strict=True):
        for axis, (dim, size) in enumerate(zip(tape.types[value].shape, array.shape, strict=True)):
            if dim.evaluate(bound) != size:
                raise GuardError(f"`{name}.shape[{axis}]` must be `{dim}` = {dim.evaluate(bound)}, got {size}")
    for guard in tape.guards:
        left, right = guard.left.evaluate(bound), guard.right.evaluate(bound)
        if left != right:
            raise GuardError(
                f"{guard.what}: `{guard.left}` is {left} and `{guard.right}` is {right}",
                span=guard.span,
                notes=(f"rule: {guard.left} == {guard.right}",),
            )
    return bound


def _as_array(argument: Any) -> Array:
    """An argument as an array; i4 is stored as i8 here, as tensors of it give it."""
    array = np.asarray(argument)
    return array.astype(np.int8) if array.dtype.name == "int4" else array


class ReferenceProgram:
    """A tape run op by op on NumPy: the oracle, used only when it is asked for by name."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.calls = 0

    def call(self, *tensors: Any) -> Any:
        """NotImplemented: the oracle has the checked path alone."""
        return NotImplemented

    def run(self, arguments: Sequence[Any]) -> Any:
        """The outputs as tensors."""
        arrays, given = [_as_array(argument) for argument in arguments], self.tape.promises.get(DONATED, ())
        if given:
            spans = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays]
            Donation(given, ()).check(self.tape.names, spans)
        try:
            with calling(self.tape.functions):
                outputs = run_tape(self.tape, arrays)
        finally:
            consume(arguments, given)
        types = [self.tape.types[value] for value in self.tape.outputs]
        self.calls += 1
        made = tuple(Tensor.of(output, type.dtype) for output, type in zip(outputs, types, strict=True))
        return made[0] if len(made) == 1 else made


class _Reference:
    """The reference backend, as `compiler/backend.py` describes an interpreter."""

    def program(self, tape: Tape) -> ReferenceProgram:
        return ReferenceProgram(tape)


BACKEND = _Reference()
