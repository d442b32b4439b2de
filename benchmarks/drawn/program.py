"""`Program`: a few ops on drawn arguments, and the function that each library makes of it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

import tessera as ts
from tessera.api.jit import Jit
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tessera.types.shape import TensorType
from tests.graph.eager import Rules
from tests.numerics.forms import unwatched

Values: TypeAlias = "Callable[[np.random.Generator, tuple[int, ...], DType], Array]"
OPS = "ops."
"""What the names of functions that are written with ops begin with, among ops: some ops have the same names."""
PERIOD = 1_000_003
"""Random numbers that an argument has before they come again; a prime, so that rows of no ordinary length repeat."""


@dataclass(frozen=True)
class Argument:
    """A tensor that a program is called with, and what fills it."""

    shape: tuple[int, ...]
    dtype: str
    values: Values

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def block(self, rng: np.random.Generator) -> Array:
        """The numbers that fill it, in a line, up to a period of them."""
        count = min(self.count, PERIOD)
        made = self.values(rng, (count,), BY_NAME[self.dtype])
        return np.resize(made, (count,))

    def array(self, rng: np.random.Generator) -> Array:
        """All of its numbers."""
        return np.resize(self.block(rng), self.shape) if self.count else np.zeros(self.shape, self.block(rng).dtype)


@dataclass(frozen=True)
class Step:
    """One op on earlier values: `a0`, `a1` are arguments, `s0`, `s1` results of steps."""

    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def spec(self) -> OpSpec:
        return REGISTRY[self.op]

    @property
    def plain(self) -> dict[str, Any]:
        """All attributes, with dims as numbers and dtypes by name: what other libraries can take."""
        return {name: plain(value) for name, value in self.spec.with_defaults(self.attributes).items()}


@dataclass(frozen=True)
class Call(Step):
    """A function of `tessera.ops` that is written with ops: `op` is `ops.` and its name, `attributes` its arguments.

    `tape` is what it does with such operands. Where it `takes_list` they come as one argument.
    """

    tape: Tape
    takes_list: bool

    @property
    def function(self) -> Callable[..., Any]:
        """The function of its operands, with arguments by name as a person writes them.

        Its text names nothing but the function and the arguments: a jitted function looks at each call whether what it
        captures has changed, so that more names would be timed as well.
        """
        found = getattr(ts.ops, self.op.removeprefix(OPS))
        taken = inspect.signature(inspect.unwrap(found)).parameters.values()
        if self.takes_list:
            given = ["[*operands]"]
        elif any(one.kind is one.VAR_POSITIONAL for one in taken):
            given = ["*operands"]
        else:
            # By name, as arguments may stand between operands.
            free = [one.name for one in taken if one.name not in self.attributes]
            given = [f"{name}=operands[{at}]" for at, name in enumerate(free[: len(self.inputs)])]
        scope: dict[str, Any] = {
            "__name__": __name__,
            "call": found,
            **{f"given_{name}": one for name, one in self.attributes.items()},
        }
        given += [f"{name}=given_{name}" for name in self.attributes]
        exec(f"def run(*operands):\n    return call({', '.join(given)})", scope)
        return scope["run"]

    @property
    def plain(self) -> dict[str, Any]:
        return {name: plain(value) for name, value in self.attributes.items()}


def plain(value: Any) -> Any:
    """An attribute without types of the compiler."""
    if isinstance(value, Dim):
        return value.value
    if isinstance(value, DType):
        return value.name
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in cast("Sequence[Any]", value))
    return value


@dataclass(frozen=True)
class Program:
    """What is computed, from what, and what it costs by the rules of the ops."""

    kind: str
    label: str
    dtype: str
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    results: tuple[TensorType, ...]
    flops: float
    bytes: float

    @property
    def name(self) -> str:
        """What a row is called: the ops, and the shapes of the arguments."""
        shown = self.arguments[:1] if self.kind == "model" else self.arguments
        shapes = " ".join("x".join(map(str, one.shape)) or "scalar" for one in shown)
        made = "x".join(str(dim) for dim in self.results[0].shape) or "scalar"
        return f"{self.label} {shapes}{' ' * bool(shapes)}-> {made} {self.dtype}"

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.steps)

    def bind(self, functions: Sequence[Callable[..., Any]], *, by_name: bool = False) -> Callable[..., Any]:
        """One function of the arguments, from a function for each step; its parameters have names if `by_name`."""
        names = [f"a{number}" for number in range(len(self.arguments))]
        if not by_name and len(functions) == 1 and list(self.steps[0].inputs) == names:
            return functions[0]
        scope: dict[str, Any] = {f"f{number}": function for number, function in enumerate(functions)}
        lines = [f"s{number} = f{number}({', '.join(step.inputs)})" for number, step in enumerate(self.steps)]
        body = "\n    ".join([*lines, f"return s{len(lines) - 1}"])
        # Unrolled, so that a library that traces Python sees calls alone and no loop over steps.
        exec(f"def run({', '.join(names)}):\n    {body}", scope)
        return scope["run"]

    def arrays(self, seed: int = 0) -> list[Array]:
        """The arguments, the same at every call."""
        rng = np.random.default_rng(seed)
        return [argument.array(rng) for argument in self.arguments]


def cost_of(tape: Tape) -> float:
    """The operations of a tape, by the rules of its ops; what stands in loops counts once."""
    total = 0.0
    for record in tape.records:
        spec = REGISTRY.find(record.op)
        if spec is not None and spec.cost is not None:
            operands, results = ([tape.types[one] for one in own] for own in (record.operands, record.results))
            total += spec.cost(operands, results, spec.with_defaults(record.attributes)).flops.value or 0
        total += sum(map(cost_of, record.bodies))
    return total


@dataclass
class Builder:
    """A program as it is put together; shape rules are checked at every step."""

    arguments: list[Argument] = field(default_factory=list[Argument])
    steps: list[Step] = field(default_factory=list[Step])
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    last: Sequence[TensorType] = ()
    flops: float = 0.0

    def argument(self, shape: Sequence[int], dtype: str, values: Values) -> str:
        """One more argument."""
        name = f"a{len(self.arguments)}"
        self.arguments.append(Argument(tuple(shape), dtype, values))
        self.types[name] = TensorType.of(tuple(shape), BY_NAME[dtype])
        return name

    def do(self, op: str, *inputs: str, **attributes: Any) -> str:
        """One more step; raises where the op's rule refuses it."""
        spec, name = REGISTRY[op], f"s{len(self.steps)}"
        filled, types = spec.with_defaults(attributes), [self.types[one] for one in inputs]
        self.last = spec.infer(Rules(), types, filled)
        self.steps.append(Step(op, inputs, attributes))
        self.types[name] = self.last[0]
        if spec.cost is not None:
            self.flops += spec.cost(types, self.last, filled).flops.value or 0
        return name

    def call(self, function: str, *inputs: str, takes_list: bool = False, **arguments: Any) -> str:
        """One more step, a function that is written with ops: its tape says what it gives, and what that costs."""
        name, empty = f"s{len(self.steps)}", Tape()
        traced = Call(f"{OPS}{function}", inputs, arguments, empty, takes_list)
        given = [self.types[one] for one in inputs]
        shapes = [tuple(dim.value or 0 for dim in one.shape) for one in given]
        # Of no memory, however large: a trace reads no numbers.
        arrays = [
            np.broadcast_to(np.zeros((), numpy_dtype(one.dtype)), shape)
            for one, shape in zip(given, shapes, strict=True)
        ]
        called = traced.function
        # What has no operands says so in its parameters.
        tape = Jit(unwatched(called) if arrays else lambda: called()).trace(*arrays).tape
        self.last = [tape.types[one] for one in tape.outputs]
        self.steps.append(replace(traced, tape=tape))
        self.types[name] = self.last[0]
        self.flops += cost_of(tape)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a value."""
        return tuple(dim.value or 0 for dim in self.types[name].shape)

    @property
    def bytes(self) -> float:
        """What arguments and results take: what must move at least."""
        types = [*(self.types[f"a{number}"] for number in range(len(self.arguments))), *self.last]
        return float(sum(math.prod(dim.value or 0 for dim in one.shape) * one.dtype.bits / 8 for one in types))

    def program(self, kind: str, label: str, dtype: str) -> Program:
        """What was put together."""
        arguments, steps = tuple(self.arguments), tuple(self.steps)
        return Program(kind, label, dtype, arguments, steps, tuple(self.last), self.flops, self.bytes)
