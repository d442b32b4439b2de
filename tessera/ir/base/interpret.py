"""Running IR on NumPy arrays through the reference facet of each op: the oracle of every test, and nothing faster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.ir import Block, Region, SSAValue

from tessera.ir.base.arrays import Array, numpy_dtype, static
from tessera.ir.base.op import TAPES, SpecOp
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.types import TensorAttr
from tessera.runtime.ranks import world
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType

# Calls of Python by a program that is run op by op: the functions it was traced with, and what each call does.

_FUNCTIONS: ContextVar[Sequence[Callable[..., Any]]] = ContextVar("functions", default=())


@contextmanager
def calling(functions: Sequence[Callable[..., Any]]) -> Generator[None]:
    """Within it, callbacks find the functions of a program by their slots."""
    token = _FUNCTIONS.set(functions)
    try:
        yield
    finally:
        _FUNCTIONS.reset(token)


def perform(
    call: str, slot: int, text: str, values: Sequence[Array], wanted: Sequence[tuple[DType, Sequence[int]]]
) -> tuple[Array, ...]:
    """What a callback gives for arrays: one for each dtype and shape that is `wanted`."""
    from tessera.runtime import callback  # noqa: PLC0415 - tracing needs no runtime
    from tessera.runtime.callback import check_positions  # noqa: PLC0415
    from tessera.runtime.ranks import world  # noqa: PLC0415
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415

    tensors = [Tensor.of(np.array(value, order="C")) for value in values]
    if call == "debug_print":
        callback.show(text, tensors)
        return ()
    if call == "check_positions":
        check_positions(text, *tensors)
        return ()
    if call == "fresh_key":
        return (np.frombuffer(callback.fresh_key(), np.uint64).copy(),)
    if call == "axis_index":
        return (np.array(world.axis_position(text, slot), np.int64),)
    declared = [(dtype.name, tuple(shape)) for dtype, shape in wanted]
    given = callback.call(_FUNCTIONS.get()[slot], tensors, declared)
    return tuple(np.asarray(one).astype(numpy_dtype(dtype)) for one, (dtype, _) in zip(given, wanted, strict=True))


# The meaning of collectives to one rank: the arrays of all are gathered, and the reference says what each gets.


def ranks_of(spec: OpSpec, attributes: Mapping[str, Any]) -> int:
    """How many ranks an op needs to be computed; 1 for what a rank does by itself."""
    size = attributes.get("size")
    if not isinstance(size, tuple) or not isinstance(attributes.get("axis"), str):
        return 1
    speaks = "collective" in spec.effects or not spec.operands
    return static(size[0]) if speaks and len(size) == 1 else 1  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def over_ranks(spec: OpSpec, operands: Sequence[Array], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """What this rank gets of an op that needs others, who must be at the same op."""
    axis, ranks = attributes["axis"], ranks_of(spec, attributes)
    rank = world.axis_position(axis, ranks)
    if not spec.operands:
        return (np.array(rank, np.int64),)
    own = np.ascontiguousarray(operands[0])
    every = np.empty((ranks, *np.shape(operands[0])), own.dtype)
    memory = (own.ctypes.data, every.ctypes.data, own.nbytes)
    facts = ", ".join(f"{name} {value}" for name, value in attributes.items() if value and name not in ("axis", "size"))
    what = f"{own.dtype} {list(own.shape)} for `{spec.short_name}`" + (f" ({facts})" if facts else "")
    world.wait(world.start("all_gather", axis, ranks, memory, what))
    assert spec.reference is not None
    return (np.asarray(spec.reference(*every, **attributes)[rank]),)


class InterpretError(Exception):
    """A program cannot be run: an op has no meaning here, or arguments do not fit."""


Handler: TypeAlias = "Callable[[Run, SpecOp], Sequence[Any] | None]"
"""Runs one op: reads operands with `run[value]`, and returns the results (None where there are none)."""

HANDLERS: dict[str, Handler] = {}
"""By op name, for ops whose meaning is more than a function of arrays: loops, memory, calls."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Make a function the handler of ops, by full name."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


class Run:
    """The state of one execution: values by SSA value, sizes by symbol, functions by name.

    `world` is for handlers: whatever the ops of a dialect share beyond values (memory, a random key, ranks).
    """

    def __init__(
        self,
        dims: Mapping[str, int] | None = None,
        functions: Mapping[str, SpecOp] | None = None,
        world: dict[str, Any] | None = None,
    ) -> None:
        self.dims: dict[str, int] = dict(dims or {})
        self.functions: Mapping[str, SpecOp] = functions or {}
        self.world: dict[str, Any] = {} if world is None else world
        self._values: dict[SSAValue, Any] = {}

    def __getitem__(self, value: SSAValue) -> Any:
        return self._values[value]

    def __setitem__(self, value: SSAValue, content: Any) -> None:
        self._values[value] = content

    def operands(self, op: SpecOp) -> list[Any]:
        return [self._values[value] for value in op.operands]

    def block(self, block: Block, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a block on arguments; what its terminator passes on."""
        if len(arguments) != len(block.args):
            raise InterpretError(f"a block takes {len(block.args)} arguments, got {len(arguments)}")
        for argument, content in zip(block.args, arguments, strict=True):
            self._values[argument] = content
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if op.spec.is_terminator:
                return tuple(self.operands(op))
            self.op(op)
        return ()

    def op(self, op: SpecOp) -> None:
        """Run one op and keep its results."""
        handler = HANDLERS.get(op.name, _reference)
        results = handler(self, op) or ()
        if len(results) != len(op.results):
            raise InterpretError(f"`{op.name}` gave {len(results)} results, not {len(op.results)}")
        for result, content in zip(op.results, results, strict=True):
            if isinstance(result.type, TensorAttr):
                self._check(op, result.type.data, content)
            self._values[result] = content

    def function(self, region: Region) -> Callable[..., tuple[Any, ...]]:
        """A body as a function of arrays: what `reference` gets in place of a tape."""
        return lambda *arguments: self.block(region.block, arguments)

    def size(self, dim: Dim) -> int:
        """The number a dim is in this run."""
        return dim.evaluate(self.dims)

    def attributes(self, op: SpecOp) -> dict[str, Any]:
        """All attributes with sizes put in, and functions for bodies."""
        found: dict[str, Any] = {}
        at = 0
        for attribute in op.spec.attributes:
            if attribute.kind not in TAPES:
                found[attribute.name] = self._substitute_sizes(op.value(attribute.name))
                continue
            count = 1 if attribute.kind == "tape" else len(op.regions) - at - len(op.spec.regions)
            bodies = tuple(self.function(region) for region in op.regions[at : at + count])
            found[attribute.name] = bodies[0] if attribute.kind == "tape" else bodies
            at += count
        return found

    def _substitute_sizes(self, value: Any) -> Any:
        if isinstance(value, Dim):
            return value.substitute(self.dims)
        if isinstance(value, TensorType):
            return value.substitute(self.dims)
        if isinstance(value, tuple):
            return tuple(self._substitute_sizes(item) for item in cast("Sequence[Any]", value))
        return value

    def _check(self, op: SpecOp, type: TensorType, content: Array) -> None:
        shape = tuple(self.size(dim) for dim in type.shape)
        if tuple(content.shape) != shape or content.dtype != numpy_dtype(type.dtype):
            got = f"{list(content.shape)} of {content.dtype}"
            raise InterpretError(f"the reference of `{op.name}` gave {got}, its type is {list(shape)} of {type.dtype}")


def _reference(run: Run, op: SpecOp) -> Sequence[Any]:
    reference = op.spec.reference
    if reference is None:
        raise InterpretError(f"`{op.name}` has no reference, and no handler is registered for it")
    attributes = run.attributes(op)
    if ranks_of(op.spec, attributes) > 1:
        return over_ranks(op.spec, run.operands(op), attributes)
    found = reference(*run.operands(op), **attributes)
    return found if isinstance(found, tuple) else (found,)


def interpret(
    function: SpecOp,
    *arguments: Any,
    functions: Mapping[str, SpecOp] | None = None,
    world: dict[str, Any] | None = None,
) -> tuple[Any, ...]:
    """The results of a function of Graph IR on arrays; sizes of symbols are read off the arrays.

    Raises InterpretError where arguments do not fit the types, or a guard does not hold.
    """
    block = function.regions[0].block
    if len(arguments) != len(block.args):
        raise InterpretError(f"`@{function.value('symbol')}` takes {len(block.args)} arguments, got {len(arguments)}")
    types: list[TensorType] = []
    for argument in block.args:
        assert isinstance(argument.type, TensorAttr)
        types.append(argument.type.data)
    run = Run(bind_dims(types, arguments), functions, world)
    for left, right, what in function.value("guards") or ():
        if run.size(left) != run.size(right):
            raise InterpretError(f"{what}: {left} is {run.size(left)}, {right} is {run.size(right)}")
    return run.block(block, arguments)


def bind_dims(types: Sequence[TensorType], arrays: Sequence[Array]) -> dict[str, int]:
    """The size of each symbol, from the arrays that have it as a dim; all dims must then agree."""
    dims: dict[str, int] = {}
    for type, array in zip(types, arrays, strict=True):
        if len(array.shape) != type.rank:
            raise InterpretError(f"an argument is {type}, got an array of rank {len(array.shape)}")
        if array.dtype != numpy_dtype(type.dtype):
            raise InterpretError(f"an argument is {type}, got an array of {array.dtype}")
        for dim, size in zip(type.shape, array.shape, strict=True):
            if dim.symbol_name is not None:
                dims.setdefault(dim.symbol_name, size)
    for type, array in zip(types, arrays, strict=True):
        for dim, size in zip(type.shape, array.shape, strict=True):
            if dim.symbols <= dims.keys() and dim.evaluate(dims) != size:
                raise InterpretError(f"an argument is {type}, got an array of shape {list(array.shape)}")
    return dims
