"""Binding calls of kernels: which dims are free and which are numbers, fused dims taken apart, caches flattened."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.frontend.annotations import Parameter as Bound
from tessera.frontend.bind import Binder, Leaf, dim_name
from tessera.frontend.concrete import concrete_dtype
from tessera.frontend.kernel.definition import KernelDefinition
from tessera.frontend.kernel.operands import CACHE_FIELDS, Parameter
from tessera.frontend.tree import Tree, flatten
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim, product


def factors(dim: Dim) -> tuple[Dim, ...]:
    """The names that a fused dim such as `B*H` is made of, in order; the dim itself where it is not fused."""
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) > 1:
        names = [atom.name for atom in dim.terms[0][0]]
        if all(names):
            return tuple(Dim.symbol(name) for name in names)
    return (dim,)


def apart(annotation: TensorAnnotation) -> tuple[Dim, ...]:
    """The dims of an annotation with fused ones taken apart."""
    return tuple(part for dim in annotation.dims for part in factors(dim))


class KernelBinder(Binder):
    """Binds calls of one kernel; `numbers` are the dims that its tiles need as numbers."""

    def __init__(self, definition: KernelDefinition, parameters: Sequence[Bound], signature: inspect.Signature) -> None:
        super().__init__(parameters, signature, dynamic=False)
        self.kinds: dict[str, Parameter] = {parameter.name: parameter for parameter in definition.inputs}
        self.values = {parameter.name for parameter in definition.statics}
        self.numbers: set[str] = set()

    def _bind_argument(self, parameter: Bound, value: Any, leaves: list[Leaf], tensors: list[Any]) -> Tree:
        kind = self.kinds.get(parameter.name)
        if kind is None:
            if parameter.name in self.values and concrete_dtype(value) is not None:
                raise RuntimeArgumentError(
                    f"`{parameter.name}` is a Python value of the kernel, and is given a tensor",
                    notes=("parameters of a kernel that take tensors are annotated",),
                    fix=f'write `{parameter.name}: KTile["M", "N"]`, a name for each dim',
                )
            return super()._bind_argument(parameter, value, leaves, tensors)
        flat, tree = flatten(value)
        is_cache = kind.kind == "cache"
        names = [f"{kind.name}_{field}" for field in CACHE_FIELDS] if is_cache else [kind.name]
        if len(flat) != len(names):
            wanted = "a KVCache" if is_cache else "a tensor"
            fix = (
                "begin with `KVCache.empty(...)`" if is_cache else "`ts.array(...)` makes a tensor of numbers in lists"
            )
            raise RuntimeArgumentError(f"`{kind.name}` must be {wanted}, got {type(value).__name__}", fix=fix)
        for name, leaf in zip(names, flat, strict=True):
            dtype = concrete_dtype(leaf)
            if dtype is None:
                raise RuntimeArgumentError(
                    f"`{kind.name}` must be a tensor, got {type(leaf).__name__}",
                    fix="`ts.array(...)` makes a tensor of numbers in lists",
                )
            wanted = kind.annotation.dtype if kind.annotation is not None and not is_cache else None
            if wanted is not None and wanted is not dtype:
                raise RuntimeArgumentError(
                    f"`{kind.name}` must be {wanted}, got {dtype}",
                    notes=(f"it is declared {kind.annotation}",),
                    fix=f"cast it, as in `tessera.ops.cast({kind.name}, {wanted})`",
                )
            leaves.append(Leaf(dtype, self._dims(kind, name, leaf.shape)))
            tensors.append(leaf)
        return tree

    def _dims(self, kind: Parameter, name: str, shape: Sequence[int]) -> tuple[int | Dim | None, ...]:
        annotation = kind.annotation if kind.kind != "cache" else None
        declared = None if annotation is None else annotation.dims
        if annotation is not None and len(shape) == len(apart(annotation)):
            declared = apart(annotation)
        if annotation is not None and declared is not None and len(declared) != len(shape):
            raise RuntimeArgumentError(
                f"`{name}` must have {len(declared)} dims, got {len(shape)}: {list(shape)}",
                notes=(f"it is declared {annotation}",),
                fix=f"give it {len(declared)} dims, as `reshape` does" if len(shape) < len(declared) else None,
            )
        found: list[int | Dim | None] = []
        for axis, size in enumerate(shape):
            dim = declared[axis] if declared is not None else None
            if dim is not None and dim.value is not None and dim.value != size:
                raise RuntimeArgumentError(
                    f"`{name}.shape[{axis}]` must be {dim}, got {size}", notes=(f"it is declared {annotation}",)
                )
            symbols = {f"{name}_{axis}"} if dim is None else {dim_name(part) for part in dim.symbols}
            found.append(size if symbols <= self.numbers or (dim is not None and dim.value is not None) else dim)
        return tuple(found)


def fused_shape(kind: Parameter, shape: Sequence[Any]) -> list[Any] | None:
    """The shape that the kernel sees, where it differs from the tensor's: heads of a cache, and fused dims, joined."""
    if kind.kind == "cache":
        return [_joined(shape[:2]), *shape[2:]] if len(shape) == 4 else None
    annotation = kind.annotation
    if annotation is None or len(shape) == annotation.rank or len(shape) != len(apart(annotation)):
        return None
    found: list[Any] = []
    rest = list(shape)
    for dim in annotation.dims:
        count = len(factors(dim))
        found.append(_joined(rest[:count]))
        rest = rest[count:]
    return found


def _joined(sizes: Sequence[Any]) -> Any:
    total = sizes[0]
    for size in sizes[1:]:
        total = total * size
    return total


__all__ = ["KernelBinder", "factors", "fused_shape", "product"]
