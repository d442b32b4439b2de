"""Run op declarations on arrays without a compiler: shape rules with guards, references, decompositions."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

import tessera.ir.graph.ops
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.spec import Attributes, OpSpec, Registry
from tessera.ir.graph.ops.random import fold_key
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType
from tessera.types.shape import TensorType


class RuleError(Exception):
    """A shape rule said no."""


class RuleDTypeError(Exception):
    """A dtype rule said no."""


class Rules:
    """An `InferContext` that keeps its guards."""

    def __init__(self) -> None:
        self.guards: list[tuple[Dim, Dim]] = []

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        if left == right:
            return left
        if (left - right).value:
            raise RuleError(f"{what}: {left} and {right}")
        self.guards.append((left, right))
        return left

    def fail(self, message: str, *, help: str = "") -> Exception:
        return RuleError(message)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        return RuleDTypeError(message)


@cache
def registry() -> Registry:
    """Every declared graph op."""
    found = Registry("tgraph")
    for module in pkgutil.iter_modules(tessera.ir.graph.ops.__path__, "tessera.ir.graph.ops."):
        for spec in getattr(importlib.import_module(module.name), "SPECS", ()):
            found.add(spec)
    return found


def make_key(seed: int, *path: int) -> Array:
    """A key, u64[2], from a seed and numbers that say where it is used: function, site, iteration, step."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, 0], np.uint64)
    for number in path:
        key = fold_key(key, np.array(number & 0xFFFFFFFFFFFFFFFF, np.uint64))
    return key


def infer(name: str, *types: TensorType, rules: Rules | None = None, **attributes: Any) -> Sequence[TensorType]:
    """The result types of an op."""
    spec = registry()[name]
    return spec.infer(rules or Rules(), types, spec.with_defaults(attributes))


def tensor(*dims: DimLike, dtype: DType) -> TensorType:
    return TensorType.of(dims, dtype)


def type_of(array: Array) -> TensorType:
    return TensorType.of(array.shape, dtype_of(array))


def reference(name: str, *arrays: Array, **attributes: Any) -> Any:
    """What the op means, checked against what its shape rule promises."""
    spec = registry()[name]
    filled = spec.with_defaults(attributes)
    return _check_result(spec, arrays, filled, _reference_of(spec, arrays, filled))


class Eager:
    """A `Builder` whose values are arrays: an op with a lowering runs its reference, another its decomposition."""

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        spec = registry()[name]
        filled = spec.with_defaults(attributes)
        if spec.lower is None and spec.decompose is not None:
            return _check_result(spec, operands, filled, spec.decompose(self, operands, filled))
        return _check_result(spec, operands, filled, _reference_of(spec, operands, filled))

    def type_of(self, value: Any) -> TensorType:
        return type_of(value)


def run_decomposition(name: str, *arrays: Array, **attributes: Any) -> Any:
    """What the op gives when its decomposition is followed down to ops with a lowering."""
    spec = registry()[name]
    assert spec.decompose is not None
    filled = spec.with_defaults(attributes)
    return _check_result(spec, arrays, filled, spec.decompose(Eager(), arrays, filled))


def _reference_of(spec: OpSpec, arrays: Sequence[Array], attributes: Attributes) -> Any:
    assert spec.reference is not None, f"`{spec.name}` has no reference"
    return spec.reference(*arrays, **attributes)


def _check_result(spec: OpSpec, arrays: Sequence[Array], attributes: Mapping[str, Any], result: Any) -> Any:
    promised = spec.infer(Rules(), [type_of(array) for array in arrays], attributes)
    given: list[Any] = [result] if hasattr(result, "dtype") else list(result)
    assert len(promised) == len(given), spec.name
    for type, array in zip(promised, given, strict=True):
        assert tuple(dim.value for dim in type.shape) == array.shape, f"{spec.name}: {type} and {array.shape}"
        assert numpy_dtype(type.dtype) == array.dtype, f"{spec.name}: {type} and {array.dtype}"
    return result
