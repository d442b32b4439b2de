"""Library ops run as their kernels, in the interpreter of tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.interpret import bind_dims
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import buffer_type
from tessera.ir.tile.passes.check_bounds import REFUTED, examine
from tessera.ir.tile.passes.check_races import find_race
from tessera.stdlib.kernels import LIBRARY
from tessera.types.dtype import DType
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.graph.eager import infer, registry


def typed(
    arrays: Sequence[Array], shapes: Sequence[Sequence[Any]] | None, dtype: DType | None = None
) -> list[TensorType]:
    """The types of arrays, with dims as given (a number stays, a name is a dynamic size)."""
    shapes = [array.shape for array in arrays] if shapes is None else shapes
    return [
        TensorType.of(shape, dtype if dtype is not None and array.dtype == numpy_dtype(dtype) else dtype_of(array))
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def kernels_of(
    op: str, types: Sequence[TensorType], attributes: Mapping[str, Any], machine: Machine | None = None
) -> list[SpecOp]:
    """The kernels of an op, verified."""
    spec = registry()[op]
    filled = spec.with_defaults(attributes)
    found = LIBRARY[spec.lower.kernel].build(op, types, infer(op, *types, **filled), filled, machine)
    verify(ModuleOp(list(found)))
    return found


def run_library(
    op: str,
    arrays: Sequence[Array],
    attributes: Mapping[str, Any] | None = None,
    shapes: Sequence[Sequence[Any]] | None = None,
    dtype: DType | None = None,
    machine: Machine | None = None,
) -> list[Array]:
    """The results of an op by its kernels."""
    types = typed(arrays, shapes, dtype)
    attributes = attributes or {}
    sizes = bind_dims(types, arrays)
    results = [
        np.full([dim.evaluate(sizes) for dim in type.shape], 99, numpy_dtype(type.dtype))
        for type in infer(op, *types, **registry()[op].with_defaults(attributes))
    ]
    kernels = kernels_of(op, types, attributes, machine)
    given = [*map(np.ascontiguousarray, arrays), *results]
    between = [buffer_type(argument) for argument in kernels[0].regions[0].block.args[len(given) :]]
    given += [np.full([dim.evaluate(sizes) for dim in type.shape], 77, numpy_dtype(type.dtype)) for type in between]
    for kernel in kernels:
        run_kernel(kernel, given, sizes)
    return results


def assert_sound(kernels: Sequence[SpecOp], unknown: int = 0) -> None:
    """No access is outside, at most `unknown` of them undecided, and no two programs meet."""
    for kernel in kernels:
        verdicts = [finding.verdict for finding in examine(kernel)]
        assert REFUTED not in verdicts
        assert verdicts.count("unknown") <= unknown
        assert find_race(kernel) is None
