"""`KernelDefinition`: a function as a kernel; from the types of its operands and a schedule to a program on tiles."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import AnnotationError, KernelError
from tessera.frontend.annotations import resolve
from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.counts import check_positions
from tessera.frontend.kernel.evaluate import Evaluator
from tessera.frontend.kernel.operands import Given, Parameter, Whole, bound_operands, parameter_of
from tessera.frontend.kernel.results import declare_results, return_tiles
from tessera.frontend.kernel.source import Source, called_names, source_of, written_names
from tessera.frontend.kernel.stepped_sums import DEPTH, uses_parts
from tessera.frontend.several import several
from tessera.ir.tile.records import KernelProgram, without_unused
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.schedule import NAMES, Schedule
from tessera.types.tensor_type import TensorType

PRODUCTS = ("dot", "softmax_accumulate")

WIDE = 128
"""Elements of a head, of which half as many keys are looked at in a step where it has more."""


class KernelDefinition:
    """What is known of a kernel before it is given operands: its source, its parameters, its declared results."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.source: Source = source_of(function)
        self.signature = inspect.signature(function)
        called = called_names(self.source.tree)
        self.has_products = bool(called & set(PRODUCTS)) or "@" in _operators(self.source)
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
        self.digest = hashlib.sha256(ast.unparse(self.source.tree).encode()).hexdigest()[:16]

    @property
    def inputs(self) -> list[Parameter]:
        """Parameters that are given tensors."""
        return [parameter for parameter in self.parameters if parameter.kind in ("tensor", "tile", "cache")]

    @property
    def statics(self) -> list[Parameter]:
        """Parameters that are Python values, known when the kernel is compiled."""
        return [parameter for parameter in self.parameters if parameter.kind == "static"]

    @property
    def results(self) -> list[Parameter]:
        """Parameters that the kernel stores to."""
        return [parameter for parameter in self.parameters if parameter.kind == "result"]

    def complete(
        self, schedule: Schedule | None, kind: str = "cpu", types: Sequence[TensorType] | None = None
    ) -> Schedule:
        """A schedule with every block size said: what is not chosen is what does well on such a machine.

        Sums of a wide head leave room for fewer keys at a time; as those are part of the result, it is so everywhere.
        """
        given = schedule or Schedule()
        sizes = self._usual(kind, types)
        choices: dict[str, Any] = {**given.choices(), "block": (*given.block, *sizes[len(given.block) :])}
        return Schedule(**choices)

    def _usual(self, kind: str, types: Sequence[TensorType] | None) -> tuple[int, int, int]:
        """Blocks that do well on a kind of machine, for operands of some types where they are known."""
        ranks = [parameter.rank for parameter in self.inputs if parameter.rank is not None]
        is_cpu, is_flat = kind == "cpu", max(ranks, default=2) < 2
        if not self.has_products:
            return ((256, 256, 64) if is_flat else (16, 256, 64)) if is_cpu else (1024 if is_flat else 4, 1024, 64)
        m, n, k = (64, 128, 64) if is_cpu else (128, 128, 64)
        if types is None:
            return m, n, k
        whole = Given(self, types).whole if self.is_online else None
        if whole is not None and (whole.value or 0) > WIDE:
            n //= 2
        matrices = [type.dtype for type in types if type.rank > 1]
        if not is_cpu and matrices and all(dtype.is_integer and dtype.bytes == 1 for dtype in matrices):
            k *= 2  # as many bytes of a row as matrix units read at once; sums of whole numbers are the same
        return m, n, k

    def build(
        self, types: Sequence[TensorType], statics: Mapping[str, Any], schedule: Schedule, name: str = ""
    ) -> KernelProgram:
        """The program for operands of these types: tensors in the order of parameters, a random key last.

        Raises NeedsNumber where a dim must be a number, and what the user did wrong, at its span.
        """
        b = KernelBuilder(name or self.name, types, schedule, {})
        given = Given(self, types)
        with b.active():
            env = self.environment(b, given, statics)
            value = Evaluator(b, self.source, env).run()
            return_tiles(b, self, given, value)
            check_positions(b)
        return self._finished(b, types)

    def environment(self, b: KernelBuilder, given: Given, statics: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the function: tensors, static values, sizes of blocks and results."""
        b.whole = given.whole
        env: dict[str, Any] = bound_operands(b, given)
        for parameter in self.statics:
            env[parameter.name] = statics.get(parameter.name, parameter.default)
            if env[parameter.name] is inspect.Parameter.empty:
                raise KernelError(f"`{self.name}` needs `{parameter.name}`", span=None)
        for parameter in self.parameters:
            if parameter.kind == "block":
                env[parameter.name] = getattr(b.extents(), NAMES[parameter.name])
        declare_results(b, self, given, env)
        return env

    def _finished(self, b: KernelBuilder, types: Sequence[TensorType]) -> KernelProgram:
        ops, grid = b.grid()
        b.body.ops[:0] = [*ops, *b.prologue]
        without_unused(b.body)
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
            numeric=(*b.numeric, *([DEPTH] if uses_parts(b.body) else [])),
            equalities=tuple(b.equalities),
            zeroed=tuple(b.zeroed),
        )


def _may_round(parameter: Parameter) -> bool:
    """Whether a result may hold floats, whose sums depend on their order; integers and extremes give one result."""
    dtype = parameter.annotation.dtype if parameter.annotation is not None else None
    return parameter.kind == "result" and (dtype is None or dtype.is_float)


def _operators(source: Source) -> str:
    return "@" if any(isinstance(node, ast.MatMult) for node in ast.walk(source.tree)) else ""


def result_annotations(definition: KernelDefinition) -> list[TensorAnnotation]:
    """What the function is declared to return, one for each tensor."""
    returns = definition.returns
    if returns is None or returns is inspect.Signature.empty:
        return []
    return [item for item in several(returns) if isinstance(item, TensorAnnotation)]


__all__ = ["AnnotationError", "KernelDefinition", "Whole", "result_annotations"]
