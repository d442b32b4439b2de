"""`KernelDefinition`: a function as a kernel, built into a tile program, and the binding of its calls."""

from __future__ import annotations

import ast
import hashlib
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

from tessera.diagnostics.codes import KernelError, RuntimeArgumentError
from tessera.frontend.annotations import Parameter as Bound
from tessera.frontend.annotations import resolve
from tessera.frontend.bind import Binder, Leaf, dim_name
from tessera.frontend.concrete import concrete_dtype, is_concrete
from tessera.frontend.kernel.block_scope import check_blocks
from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.collectives import check_uniform
from tessera.frontend.kernel.evaluate import Evaluator
from tessera.frontend.kernel.extents import check_positions
from tessera.frontend.kernel.legality import walk
from tessera.frontend.kernel.operands import (
    CACHE_FIELDS,
    CallOperands,
    Parameter,
    bind_operands,
    declare_results,
    parameter_of,
    return_tiles,
)
from tessera.frontend.kernel.source import Source, called_names, source_of, written_names
from tessera.frontend.pytree import Tree, as_tuple, flatten
from tessera.ir.tile.records import Body, KernelProgram, without_unused
from tessera.runtime.foreign import adopt, tensor_advice
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.schedule import NAMES, Schedule
from tessera.types.shape import TensorType

# Whether the K block of a kernel is numeric. A sum of dots does not depend on the K block of its loop: it is one chain
# of multiply-adds. A dot that is scaled or rounded in each iteration does, so `k` is then part of the result.

K_SIZE = "k"


def uses_partial_dots(body: Body) -> bool:
    """Whether a loop over k uses a partial dot for more than accumulation."""
    return any(_uses_partial_dots(op.body) for op, _ in walk(body) if op.body is not None)


def _uses_partial_dots(body: Body) -> bool:
    if K_SIZE not in _loop_coordinates(body):
        return False
    sums = dict(zip(body.arguments[1:], body.results, strict=True))
    return any(op.name == "dot" and sums.get(op.operands[2]) != op.results[0] for op in body.ops)


def _loop_coordinates(body: Body) -> set[str]:
    """The names of the coordinates by which loads depend on the loop."""
    loads = [op for op in body.ops if op.name == "load"]
    return {
        name.lstrip("_")
        for op in loads
        for name, index in zip(op.values["coords"], op.operands[1:], strict=False)
        if index == body.arguments[0]
    }


Rows: TypeAlias = "Sequence[tuple[int, int, int]]"
"""Operand, axis, and the elements of a tile that holds all of that dim."""

DOT_FUNCTIONS = ("dot", "softmax_accumulate")

WIDE = 128
"""Elements of a head; above it, blocks have half as many keys."""


class KernelDefinition:
    """A kernel before it has operands: its source, its parameters, its declared results."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.source: Source = source_of(function)
        self.signature = inspect.signature(function)
        called = called_names(self.source.tree)
        self.has_dots = bool(called & set(DOT_FUNCTIONS)) or any(
            isinstance(node, ast.MatMult) for node in ast.walk(self.source.tree)
        )
        self.is_random = "dropout_in_kernel" in called
        self.is_online = "softmax_accumulate" in called
        written = written_names(self.source.tree)
        self.parameters = [parameter_of(function, item, written) for item in self.signature.parameters.values()]
        self.is_unordered = "atomic_add" in called and any(map(_may_round, self.parameters))
        self.returns = resolve(function, "return", self.signature.return_annotation)
        if written and not any(parameter.kind == "result" for parameter in self.parameters):
            raise KernelError(
                f"`{self.name}` stores to `{min(written)}`, which is not one of its parameters",
                span=self.source.span(self.source.tree),
            )
        self.vjp: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.jvp: Callable[..., Any] | None = None
        """Its derivatives, where it was given any: `vjp` is one function, or what comes before `backward`."""
        self.digest = hashlib.sha256(ast.unparse(self.source.tree).encode()).hexdigest()[:16]

    @property
    def inputs(self) -> list[Parameter]:
        """Parameters that take tensors."""
        return [parameter for parameter in self.parameters if parameter.kind in ("tensor", "tile", "cache")]

    @property
    def statics(self) -> list[Parameter]:
        """Parameters that are Python values, known at compile time."""
        return [parameter for parameter in self.parameters if parameter.kind == "static"]

    @property
    def results(self) -> list[Parameter]:
        """Parameters that the kernel stores to."""
        return [parameter for parameter in self.parameters if parameter.kind == "result"]

    def complete(
        self, schedule: Schedule | None, kind: str = "cpu", types: Sequence[TensorType] | None = None
    ) -> Schedule:
        """A schedule with all block sizes, by default those that perform well on this kind of machine.

        Accumulators of a wide head leave fewer registers for keys; since the key block is numeric, it is so on all
        machines.
        """
        given = schedule or Schedule()
        sizes = self._usual(kind, types)
        choices: dict[str, Any] = {**given.choices(), "block": (*given.block, *sizes[len(given.block) :])}
        return Schedule(**choices)

    def _usual(self, kind: str, types: Sequence[TensorType] | None) -> tuple[int, int, int]:
        """Default blocks for a kind of machine, and for operand types where they are known."""
        ranks = [parameter.rank for parameter in self.inputs if parameter.rank is not None]
        is_cpu, is_flat = kind == "cpu", max(ranks, default=2) < 2
        if not self.has_dots:
            return ((256, 256, 64) if is_flat else (16, 256, 64)) if is_cpu else (1024 if is_flat else 4, 1024, 64)
        m, n, k = (64, 128, 64) if is_cpu else (128, 128, 64)
        if types is None:
            return m, n, k
        whole = CallOperands(self, types).whole_dim if self.is_online else None
        if whole is not None and (whole.value or 0) > WIDE:
            n //= 2
        matrices = [type.dtype for type in types if type.rank > 1]
        if not is_cpu and matrices and all(dtype.is_integer and dtype.bytes == 1 for dtype in matrices):
            k *= 2  # as many bytes per MMA as 2-byte floats have; integer sums do not depend on the block
        return m, n, k

    def build(
        self, types: Sequence[TensorType], statics: Mapping[str, Any], schedule: Schedule, rows: Rows = ()
    ) -> KernelProgram:
        """The tile program for operands of these types: tensors in order of parameters, a random key last.

        `rows` says of symbolic dims, by operand and axis, how many elements a tile has that holds all of one.

        Raises NeedsNumber where a dim must be static, and errors of the user's program at their span.
        """
        b = KernelBuilder(self.name, types, schedule, {})
        b.blocks.rows = {types[operand].shape[axis]: size for operand, axis, size in rows}
        given = CallOperands(self, types)
        with b.active():
            env = self.environment(b, given, statics)
            value = Evaluator(b, self.source, env).run()
            return_tiles(b, self, given, value)
            check_positions(b)
            check_uniform(b)
        return self._finish(b, types)

    def environment(self, b: KernelBuilder, given: CallOperands, statics: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the function: tensors, static values, block sizes and results."""
        b.whole_dim = given.whole_dim
        env: dict[str, Any] = bind_operands(b, given)
        for parameter in self.statics:
            env[parameter.name] = statics.get(parameter.name, parameter.default)
            if env[parameter.name] is inspect.Parameter.empty:
                raise KernelError(f"`{self.name}` needs `{parameter.name}`", span=None)
        for parameter in self.parameters:
            if parameter.kind == "block":
                env[parameter.name] = getattr(b.extents(), NAMES[parameter.name])
        declare_results(b, self, given, env)
        return env

    def _finish(self, b: KernelBuilder, types: Sequence[TensorType]) -> KernelProgram:
        ops, grid = b.grid()
        b.body.ops[:0] = [*ops, *b.prologue]
        without_unused(b.body)
        pinned, fixed = check_blocks(b, b.body)
        results = b.result_buffers
        arguments = (*types, *(tensor.type for tensor in results))
        return KernelProgram(
            name=b.name,
            arguments=arguments,
            inputs=len(types),
            buffers=(*range(len(types)), *(tensor.number for tensor in results)),
            grid=grid or (Dim.constant(1),),
            body=b.body,
            types=b.types,
            schedule=tuple(sorted(b.schedule.choices().items())),
            numeric=tuple(
                dict.fromkeys([*b.numeric, *([K_SIZE] if uses_partial_dots(b.body) else []), *pinned, *fixed])
            ),
            fixed=fixed,
            equalities=tuple(b.equalities),
            zeroed=tuple(b.zeroed),
            blocks=b.blocks.loops | {b.coords[name]: b.axes[name].extent for name in ("_m", "_n") if name in b.axes},
        )


def _may_round(parameter: Parameter) -> bool:
    """Whether a result may be float, whose sums depend on their order; integer sums and min/max do not."""
    dtype = parameter.annotation.dtype if parameter.annotation is not None else None
    return parameter.kind == "result" and (dtype is None or dtype.is_float)


def result_annotations(definition: KernelDefinition) -> list[TensorAnnotation]:
    """The return annotations, one for each tensor."""
    returns = definition.returns
    if returns is None or returns is inspect.Signature.empty:
        return []
    return [item for item in as_tuple(returns) if isinstance(item, TensorAnnotation)]


# Binding calls of kernels: which dims are symbolic and which static, fused dims split, caches flattened.


def factors(dim: Dim) -> tuple[Dim, ...]:
    """The factors of a fused dim such as `B*H`, in order; the dim itself where it is not fused."""
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) > 1:
        names = [atom.name for atom in dim.terms[0][0]]
        if all(names):
            return tuple(Dim.symbol(name) for name in names)
    return (dim,)


def split_fused_dims(annotation: TensorAnnotation) -> tuple[Dim, ...]:
    """The dims of an annotation with fused ones split."""
    return tuple(part for dim in annotation.dims for part in factors(dim))


class KernelBinder(Binder):
    """Binds calls of one kernel; `numbers` are the dims that its tiles need to be static."""

    def __init__(self, definition: KernelDefinition, parameters: Sequence[Bound], signature: inspect.Signature) -> None:
        super().__init__(parameters, signature, dynamic=False)
        self.traces_floats = False  # parameters of a kernel that take no tensor are part of its program
        self.kinds: dict[str, Parameter] = {parameter.name: parameter for parameter in definition.inputs}
        self.values = {parameter.name for parameter in definition.statics}
        self.numbers: set[str] = set()

    def _bind_argument(self, parameter: Bound, value: Any, leaves: list[Leaf], tensors: list[Any]) -> Tree:
        kind = self.kinds.get(parameter.name)
        if kind is None:
            if parameter.name in self.values and is_concrete(value):
                raise RuntimeArgumentError(
                    f"`{parameter.name}` is a static parameter of the kernel, got a tensor",
                    notes=("parameters of a kernel that take tensors have an annotation",),
                    fix=f'write `{parameter.name}: KTile["M", "N"]`, a name for each dim',
                )
            return super()._bind_argument(parameter, value, leaves, tensors)
        flat, tree = flatten(value)
        is_cache = kind.kind == "cache"
        names = [f"{kind.name}_{field}" for field in CACHE_FIELDS] if is_cache else [kind.name]
        if len(flat) != len(names):
            wanted = "a KVCache" if is_cache else "a tensor"
            fix = "create one with `KVCache.empty(...)`" if is_cache else tensor_advice(value)
            raise RuntimeArgumentError(f"`{kind.name}` must be {wanted}, got {type(value).__name__}", fix=fix)
        for name, leaf in zip(names, map(adopt, flat), strict=True):
            dtype = concrete_dtype(leaf)
            if dtype is None:
                raise RuntimeArgumentError(
                    f"`{kind.name}` must be a tensor, got {type(leaf).__name__}",
                    fix=tensor_advice(leaf),
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
        if annotation is not None and len(shape) == len(split_fused_dims(annotation)):
            declared = split_fused_dims(annotation)
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
    """The shape that the kernel sees, where it differs from the tensor's: heads of a cache, and fused dims, merged."""
    if kind.kind == "cache":
        return [shape[0] * shape[1], *shape[2:]] if len(shape) == 4 else None
    annotation = kind.annotation
    if annotation is None or len(shape) == annotation.rank or len(shape) != len(split_fused_dims(annotation)):
        return None
    found: list[Any] = []
    tail = list(shape)
    for dim in annotation.dims:
        count = len(factors(dim))
        found.append(reduce(operator.mul, tail[:count]))
        tail = tail[count:]
    return found
