"""Tracing: a Python function run on tracers, and what it does kept as a tape.

The function runs once, as plain Python, on tracers: values with a dtype and a shape of symbolic dims, but no data. Each
op that it calls runs its shape rule and appends a record to the tape, the trace as a list of plain records, which holds
no IR: hashing it gives the key of the disk cache, so a program that is found there loads no compiler. Tensors that the
function captures are lifted to inputs, so that a later call sees their new values.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from tessera.diagnostics.codes import ArgumentError, EscapedTracerError, PytreeError, TracingError
from tessera.diagnostics.error import Span, TesseraError, user_span
from tessera.diagnostics.frames import guard_class
from tessera.frontend.arguments import check_attributes
from tessera.frontend.bind import Signature, arguments_of, input_types, size_expressions
from tessera.frontend.concrete import Tracer, concrete_type, is_concrete
from tessera.frontend.fixes import fixes_of
from tessera.frontend.methods import TensorMethods, function_named
from tessera.frontend.pytree import Tree, Unflattener, as_tuple, flatten, leaf_paths, make_unflattener, unflatten
from tessera.frontend.shape_inference import Assumption, Facts, Inference, check_bytes, check_sizes
from tessera.frontend.size import length_of, loop_range, size_of
from tessera.frontend.traced_number import NeedsValue, TracedNumber, settle_numbers
from tessera.ir.base import dispatch
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import POLICY, Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime.operators import NoAttribute, advice_for
from tessera.types.device import DEVICE
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f64
from tessera.types.effect import Effects
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy, PolicyType
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.types.constraint import Constraint


# `TracedTensor`: the tracer that a function is run on, which has a type but no data.


@guard_class
class TracedTensor(Tracer, TensorMethods):
    """The tracer of a tensor: while a function is traced, every op on it is recorded on the tape.

    It has a shape, a dtype and all ops, but no value, so `if x:`, `float(x)` and `np.asarray(x)` raise `TracingError`
    (T0201), each with what to write instead.
    """

    __slots__ = ("policy", "recorder", "type", "value")

    def __init__(self, recorder: Trace, value: int, type: TensorType, policy: Policy = SILENT) -> None:
        self.recorder, self.value, self.type, self.policy = recorder, value, type, policy

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims: ints where static, sizes (`B`, `S + 1`) where symbolic."""
        return tuple(size_of(self.recorder.resolve(dim)) for dim in self.type.shape)

    @property
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Any:
        """The number of elements: an int, or a symbolic size."""
        return size_of(self.recorder.resolve(self.type.size))

    if not TYPE_CHECKING:  # a type checker would take it to mean that every attribute exists

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(NoAttribute("a traced tensor", name, type(self)), name=name, obj=self)

    def __repr__(self) -> str:
        dims = ", ".join(str(dim) if dim.is_static else f'"{size_of(dim)}"' for dim in self.type.shape)
        return f"Traced[{dims}{', ' if dims else ''}{PolicyType(self.dtype, self.policy)}]"

    def __len__(self) -> int:
        if not self.type.shape:
            raise TracingError("a scalar has no length", fix="`x.size` is 1, `x.ndim` is 0")
        return length_of(self.shape[0])

    def __bool__(self) -> bool:
        _refuse_as(self, lambda span: fixes_of("statements").bool_demand(span, self.dtype.is_bool))

    def __int__(self) -> int:
        help = "use the tensor itself, or pass the number as a Python int, which is static"
        _refuse(self, "int()", help, "int")

    def __float__(self) -> float:
        help = "use the tensor itself, or pass the number as a Python float, which is specialized here"
        if _called_at(user_span()) == "float":
            _refuse(self, "float()", help, "float")
        _refuse_as(self, lambda span: fixes_of("statements").float_demand(span, "float()", help))

    def __format__(self, spec: str) -> str:
        """Its type where nothing more is asked; the format of a number needs the number."""
        return repr(self) if not spec else _refuse(self, f"the format `:{spec}`", fixes_of("statements").format_fix)

    def __complex__(self) -> complex:
        _refuse(self, "complex()", "use the tensor itself")

    def __index__(self) -> int:
        _refuse_as(self, fixes_of("statements").index_demand)

    def __iter__(self) -> Iterator[TracedTensor]:
        if not self.type.shape:
            raise TracingError("a scalar cannot be iterated over", fix="use it itself, or `x.reshape(1)`")
        return (self[at] for at in loop_range(self.shape[0]))

    def __contains__(self, item: object) -> NoReturn:
        _refuse(self, "`in`", fixes_of("statements").contains_fix)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_numpy(self, "")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + x` is `x.__radd__(array)`; any other ufunc needs values."""
        name: str = ufunc.__name__
        is_reflected = len(inputs) == 2 and not isinstance(inputs[0], Tracer)
        if name not in OPERATORS or method != "__call__" or options or not is_reflected:
            _refuse_numpy(self, OPERATORS.get(name, name))
        return function_named(OPERATORS[name])(*inputs)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        """NumPy functions that only need shapes and methods of ours run; those that pass a method more are refused."""
        try:
            return function._implementation(*inputs, **options)
        except TypeError as error:
            if isinstance(error, TesseraError) and not isinstance(error, ArgumentError | TracingError):
                raise
            _refuse_numpy(self, function.__name__)

    def __dlpack__(self, **_: Any) -> NoReturn:
        _refuse(self, "another library", "call the other library outside of the traced function")

    def __dlpack_device__(self) -> NoReturn:
        self.__dlpack__()

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        """PyTorch asks here what its functions do to tensors of others: they need values."""
        leaves = [leaf for leaf in flatten((args, kwargs or {}))[0] if isinstance(leaf, TracedTensor)]
        _refuse_library(leaves[0], "PyTorch", str(getattr(function, "__name__", "")))

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise TracingError(
            f"tensors do not change, and this assigns to elements of a traced tensor {self.type}",
            notes=(self.recorder.origin(self.value),),
            fix=lambda span: fixes_of("assignments").assignment_fix(span, index, self),
        )

    def __delitem__(self, index: object) -> NoReturn:
        raise TracingError(
            f"tensors do not change, and this deletes elements of a traced tensor {self.type}",
            notes=(self.recorder.origin(self.value),),
            fix=lambda span: fixes_of("assignments").deletion_fix(span, self),
        )

    def item(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.item()`", "use the tensor itself", "item")

    def tolist(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.tolist()`", "return the tensor and convert it after the call", "tolist")

    def numpy(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.numpy()`", "return the tensor and convert it after the call", "numpy")


OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "power": "pow",
    "matmul": "matmul",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
"""Functions of ours by the NumPy ufunc that an operator calls."""


def _refuse_numpy(tensor: TracedTensor, name: str) -> NoReturn:
    _refuse_library(tensor, "NumPy", name)


def _refuse_library(tensor: TracedTensor, library: str, name: str) -> NoReturn:
    """`name` is the function that was called; ours of that name is the fix, or what is known of it."""
    own = f"tessera.ops.{name}" if name and function_named(name) is not None else "tessera.ops"
    known = advice_for(name) if name and own == "tessera.ops" else ""
    advice = known or f"use `{own}` instead of `{'numpy' if library == 'NumPy' else 'torch'}` inside a traced function"
    _refuse(tensor, library, advice, "numpy")


_WHY = "the function is traced once for all values, so the value is not known here"


def _called_at(span: Span | None) -> str:
    """The name of the function that is called at a span."""
    return fixes_of("operands").called_at(span)


def _refuse(tensor: TracedTensor, what: str, help: Any, asked: str = "") -> NoReturn:
    """`asked` is the function or method that needs the value, where removing the call can be the fix."""

    def find(span: Span | None) -> Any:
        if what in ("NumPy", "PyTorch"):
            return fixes_of("operands").numpy_fix(span, help)
        if asked:
            return fixes_of("operands").itself_fix(span, help, (asked,))
        return help(span) if callable(help) else help

    raise TracingError(
        f"{what} needs the value of a traced tensor {tensor.type}",
        notes=(_WHY, tensor.recorder.origin(tensor.value)),
        fix=find,
    )


def _refuse_as(tensor: TracedTensor, find: Callable[[Span | None], Any]) -> NoReturn:
    """Refuse what the source at the user's line says, with its fix."""

    def fix(span: Span | None) -> Any:
        return find(span).fix

    _refuse(tensor, find(user_span()).what, fix)


@dataclass(slots=True)
class Lifted:
    """A captured tensor that became one more input: its value number and the tensor itself."""

    value: int
    tensor: Any


class Trace:
    """A tape being recorded: inputs, ops in the order they were called, and what was assumed about symbolic dims.

    A trace inside another (the body of a loop) shares its parent's facts and lifts its parent's tracers.
    """

    def __init__(self, parent: Trace | None = None, facts: Facts | None = None) -> None:
        self.tape = Tape()
        self.parent = parent
        self.facts = parent.facts if parent is not None else facts or Facts()
        self.lifted: dict[int, Lifted] = {}
        self.effects: set[str] = set()
        self.policy: Policy = parent.policy if parent is not None else SILENT
        """The policy of the open scopes; `bits` is the source of their stochastic rounding."""
        self.declared: Policy = parent.declared if parent is not None else SILENT
        """The policy of the whole function; `own` is that of the op being recorded, where it differs."""
        self.own: Policy = SILENT
        self.bits: Any = parent.bits if parent is not None else None
        self.placed: str = parent.placed if parent is not None else ""
        """The device of the open scope; empty without one."""
        self.region: str = parent.region if parent is not None else ""
        """The mesh axes of the open scopes, outermost first; empty without one."""
        self.axes: Mapping[str, Dim] = parent.axes if parent is not None else {}
        """Names of batches around it, which collectives may be over, and their sizes."""
        self.orders: int = parent.orders if parent is not None else 0
        """How many derivatives will be taken of it: as deep as functions with derivatives of their own keep theirs."""
        self.shardings: dict[int, str] = {}
        """How inputs of a program for whole tensors are cut, by value: gradients by them are cut so, too."""
        self.is_eager = False
        """Whether it is of one op that runs by itself: its inputs have the op's names, which are not the user's."""
        # Values whose static sizes come from the arguments of the call, not from annotations.
        self.given: set[int] = set()
        # Inputs that are Python floats.
        self.numbers: list[int] = []
        self.pending: tuple[frozenset[str], str, Span | None] | None = None
        """The first need for the value of a number, as `NeedsValue` has it: no tape made without it is right."""

    def add_input(self, name: str, type: TensorType, policy: Policy = SILENT, *, given: bool = False) -> TracedTensor:
        """A tracer for one argument; `given` where its static sizes are those of the call, not declared."""
        value = self.tape.new_value(type)
        # A body does not know which of its operands come from arguments, so all of them count as given.
        if given or (self.parent is not None and self.parent.given):
            self.given.add(value)
        self.tape.inputs.append(value)
        self.tape.names.append(name)
        return TracedTensor(self, value, type, policy)

    def resolve(self, dim: Dim) -> Dim:
        """A dim with all assumptions so far substituted."""
        return self.facts.resolve(dim)

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Record an op, with the conversions that policies ask for around it."""
        own = _policy_of(operands)
        if not own and not self.policy:
            return self.record_op(op, operands, attributes, SILENT)
        from tessera.frontend.scopes import mark_results, needs_work, record_under  # noqa: PLC0415 - few programs have any

        whole = self.policy.overridden(own)
        self.own = _op_policy(whole, attributes, self.declared)
        try:
            if not needs_work(whole):
                return mark_results(self, self.record_op(op, operands, attributes, whole), operands, own)
            return mark_results(self, record_under(self, whole, op, operands, attributes), operands, own)
        finally:
            self.own = SILENT

    def record_op(
        self,
        op: str,
        operands: Sequence[Any],
        attributes: Mapping[str, Any],
        policy: Policy,
        span: Span | None = None,
    ) -> Any:
        """Record an op, of the user's line or of `span`; its shape rule runs now, so that an error shows the line."""
        spec = REGISTRY[op]
        values = tuple(self.value_of(operand) for operand in operands)
        types = [self.tape.types[value] for value in values]
        span = span or user_span()
        full = check_attributes(spec, attributes, span, types)
        if policy.accumulate is not None and full.get("accumulate", policy) is None:
            from tessera.ir.graph.policy_casts import is_summing  # noqa: PLC0415 - few programs have a policy

            # Integers accumulate in 64 bits whatever the policy says, and f64 accumulates in itself.
            takes_accumulator = (types[0].dtype.is_float or "dtype" in full) and all(
                type.dtype is not f64 for type in types
            )
            takes_accumulator = takes_accumulator and is_summing(full)
            full["accumulate"] = policy.accumulate if takes_accumulator else None
        if spec.nondeterminism is not None:
            from tessera.frontend.scopes import settle_nondeterminism  # noqa: PLC0415 - few ops have any

            settle_nondeterminism(spec, full, span)
        results = spec.infer(Inference(self, spec, values, span, full), types, full)
        effects = spec.effects if spec.more_effects is None else spec.effects_for(full)
        if effects:
            from tessera.frontend.scopes import is_suspended  # noqa: PLC0415 - few functions have effects

            if is_suspended(spec, effects, span, bool(results), lambda: self._record_later(spec, values, full, span)):
                return ()
        old = {dim for type in types for dim in type.shape}
        check_sizes(self, op, (dim for type in results for dim in type.shape if dim not in old), span)
        check_bytes(spec, results, span)
        numbers = tuple(self.tape.new_value(type) for type in results)
        if self.given and not self.given.isdisjoint(values):
            self.given.update(numbers)
        self.tape.records.append(Record(spec.name, values, full, numbers, span, self.own, self.placed, self.region))
        self.effects |= effects
        outputs = tuple(TracedTensor(self, number, type) for number, type in zip(numbers, results, strict=True))
        return outputs[0] if spec.has_one_result else outputs

    @property
    def root(self) -> Trace:
        """The outermost trace around this one."""
        trace = self
        while trace.parent is not None:
            trace = trace.parent
        return trace

    def replay(self, tape: Tape, operands: Sequence[Any]) -> list[TracedTensor]:
        """Record the program of another tape on these operands, each op with its own line, policy and device.

        Its Python functions are slots of this trace, unless it has its own: those of a trace that is gone.
        """
        values: dict[int, Any] = dict(zip(tape.inputs, operands, strict=True))
        around, root = (self.own, self.placed, self.region), self.root
        if tape.functions and tape.functions is not root.tape.functions:
            from tessera.ir.graph.transforms.tape_builder import renumber_functions  # noqa: PLC0415 - few have any

            tape = renumber_functions(tape, root.add_function)
        try:
            for record in tape.records:
                if record.device:
                    root.tape.promises.setdefault(DEVICE, record.device)
                record = inherit_policy(record, self.declared)
                self.own, self.placed = record.policy, record.device or around[1]
                self.region = record.region or around[2]
                given = [values[operand] for operand in record.operands]
                made = self.record_op(record.op, given, record.attributes, SILENT, record.span)
                values.update(zip(record.results, as_tuple(made), strict=True))
        finally:
            self.own, self.placed, self.region = around
        # What its ops rely on is assumed again as each is recorded; what ops of its bodies do, only here.
        known = {(item.left, item.right) for item in self.facts.assumptions} if tape.guards else ()
        for guard in tape.guards:
            left, right = self.resolve(guard.left), self.resolve(guard.right)
            if left != right and (left, right) not in known:
                self.facts.assume(left, right, guard.what, guard.span)
        return [self.lift_operand(values[output]) for output in tape.outputs]

    def _record_later(
        self, spec: OpSpec, values: tuple[int, ...], attributes: Mapping[str, Any], span: Span | None
    ) -> None:
        """Record an op without results later than it was called."""
        self.tape.records.append(
            Record(spec.name, values, attributes, (), span, device=self.placed, region=self.region)
        )
        trace: Trace | None = self
        while trace is not None:
            trace.effects |= spec.effects
            trace = trace.parent

    def add_function(self, function: Any) -> int:
        """The slot of a Python function that the program calls; nested traces share the slots of the outermost."""
        functions = self.root.tape.functions
        functions.append(function)
        return len(functions) - 1

    def value_of(self, operand: Any) -> int:
        """The value number of an operand: a tracer of this trace, or an input lifted into it."""
        if isinstance(operand, TracedTensor):
            if operand.recorder is self:
                return operand.value
            if not dispatch.is_open(operand.recorder):
                raise leaked_tracer_error(operand)
        return self._lift(operand)

    def lift_operand(self, operand: Any) -> TracedTensor:
        """A captured tensor as one of this trace."""
        value = self.value_of(operand)
        return TracedTensor(self, value, self.tape.types[value])

    def _lift(self, operand: Any) -> int:
        known = self.lifted.get(id(operand))
        if known is not None:
            return known.value
        if isinstance(operand, TracedTensor):
            outer, type, name = operand, operand.type, f"outer_{operand.value}"
            if self.parent is not None and operand.recorder is not self.parent:
                # Captured from two levels up: the trace in between must carry it too.
                outer = TracedTensor(self.parent, self.parent.value_of(operand), type)
        elif self.parent is not None:
            value = self.parent.value_of(operand)
            outer = TracedTensor(self.parent, value, self.parent.tape.types[value])
            type, name = outer.type, f"outer_{value}"
        else:
            found = concrete_type(operand)
            if found is None:
                raise TracingError(f"{operand!r} of type `{builtins.type(operand).__name__}` is not a tensor")
            outer, type, name = operand, found, f"captured_{len(self.lifted)}"
            self.facts.anchor(type)
        tracer = self.add_input(name, type, given=not isinstance(operand, TracedTensor))
        # Holding the operand keeps its id from being reused by another object.
        self.lifted[id(operand)] = Lifted(tracer.value, outer)
        if outer is not operand:
            self.facts.kept_alive.append(operand)
        return tracer.value

    def origin(self, value: int) -> str:
        """Where a value was defined, for the notes of an error."""
        type = self.tape.types[value]
        if value in self.tape.inputs:
            return f"`{self.tape.names[self.tape.inputs.index(value)]}` is {type}"
        for record in reversed(self.tape.records):
            if value in record.results:
                where = f" at {record.span}" if record.span else ""
                return f"{type} comes from `{record.op.split('.', 1)[1]}`{where}"
        return str(type)

    def finish(self, outputs: Sequence[Any]) -> Tape:
        """The tape with these results, with all assumptions substituted into its types."""
        self.tape.outputs = [self.value_of(output) for output in outputs]
        if self.parent is None:
            self.facts.settle(self.tape)
            if self.effects:
                self.tape.promises["tessera.effects"] = _effects_of(self)
        return self.tape


def _effects_of(trace: Trace) -> tuple[str, ...]:
    """The effects of a trace; a state by the name of its argument."""
    if "state" not in trace.effects:
        return tuple(sorted(trace.effects))
    from tessera.ir.graph.tape_analysis import tape_effects  # noqa: PLC0415 - few functions have a state

    return tuple(sorted(tape_effects(trace.tape)))


def _policy_of(operands: Sequence[Any]) -> Policy:
    """The numerics policy an op works under: that of the first operand that has one."""
    for operand in operands:
        if isinstance(operand, TracedTensor) and operand.policy:
            return operand.policy
    return SILENT


def _op_policy(whole: Policy, attributes: Mapping[str, Any], declared: Policy) -> Policy:
    """The policy recorded on an op, where it differs from that of its function."""
    total = attributes.get("accumulate")
    if total is not None and whole.accumulate is not None and total is not whole.accumulate:
        whole = replace(whole, accumulate=None)
    return whole if whole != declared else SILENT


def inherit_policy(record: Record, declared: Policy) -> Record:
    """A record that carries its policy, and those in its bodies, only where it is not that of their function."""
    if not declared or (record.policy != declared and not record.bodies):
        return record
    attributes = {
        name: replace(value, records=[inherit_policy(inner, declared) for inner in value.records])
        if isinstance(value, Tape)
        else value
        for name, value in record.attributes.items()
    }
    return replace(record, attributes=attributes, policy=SILENT if record.policy == declared else record.policy)


def leaked_tracer_error(tensor: TracedTensor) -> EscapedTracerError:
    """The error for a tracer used after its function returned."""
    made = next((r.span for r in tensor.recorder.tape.records if tensor.value in r.results), None)
    return EscapedTracerError(
        f"leaked tracer: this {tensor.type} was used after its traced function returned",
        notes=(f"it was made at {made}",) if made else (),
        fix="return the tensor from the function instead of storing it in a captured variable",
    )


# Tracing a function for one signature: tracers in, a tape and the pytree of the result out.

PROMISES = "__tessera_promises__"
"""The attribute in which decorators leave promises about a function: `tessera.*` attributes by name."""


@frozen
class Slot:
    """A leaf of a function's result: an output of the tape by number, or a constant known while tracing."""

    output: int | None
    constant: Hashable = None


@frozen
class TracedFunction:
    """The result of tracing a function.

    The first inputs of the tape are the tensor leaves of the call, the others are `lifted`: captured tensors. `tree`
    and `slots` say how the tape's outputs become the function's result. `proved` lists facts that need no guard, as
    strings, each with the constraints that prove it.
    """

    tape: Tape
    lifted: tuple[Any, ...]
    tree: Tree
    slots: tuple[Slot, ...]
    effects: Effects
    assumptions: tuple[Assumption, ...]
    make: Unflattener
    proved: tuple[Any, ...] = ()

    def result(self, outputs: Sequence[Any]) -> Any:
        """The function's result from the outputs of the compiled program."""
        leaves = [slot.constant if slot.output is None else outputs[slot.output] for slot in self.slots]
        return self.make(iter(leaves))


def trace_function(
    function: Callable[..., Any],
    parameters: inspect.Signature,
    signature: Signature,
    constraints: Sequence[Constraint] = (),
    trace: Trace | None = None,
    returns: Any = None,
) -> TracedFunction:
    """Run `function` on tracers for the arguments that `signature` describes, under `constraints` on their sizes.

    Sizes of results are checked against `returns`, the return annotation. `trace` may be a new trace to fill, for
    callers that inspect it even if tracing fails.
    """
    types, declared = input_types(signature)
    trace = trace or Trace()
    trace.facts = Facts(declared)
    trace.policy = trace.declared = signature.policy
    remaining = iter(types)
    leaves: list[Any] = []
    for path, leaf in zip(signature.paths(), signature.leaves, strict=True):
        if leaf.dtype is None:
            leaves.append(leaf.static)
            continue
        type = next(remaining)
        trace.facts.anchor(type)
        tracer = trace.add_input(path, type, leaf.policy, given=not leaf.is_declared)
        if leaf.is_number:
            trace.numbers.append(tracer.value)
        leaves.append(TracedNumber(tracer, frozenset((path,))) if leaf.is_number else tracer)
    bound = inspect.BoundArguments(parameters, arguments_of(signature.tree, leaves, unflatten))  # pyright: ignore[reportArgumentType]
    if constraints or size_expressions(signature, types):
        from tessera.frontend.constraints import impose  # noqa: PLC0415 - few functions have any

        impose(trace, constraints, signature)
    with dispatch.record_on(trace):
        value = _run(trace, function, bound)
        if returns is not None:
            from tessera.frontend.return_annotations import check_sizes  # noqa: PLC0415 - few functions declare any

            check_sizes(trace, function, signature, returns, value)
        # Promises of the function as a whole; those of functions it calls were applied while they were traced.
        trace.tape.promises.update(getattr(function, PROMISES, {}))
        if signature.policy:
            trace.tape.promises[POLICY] = signature.policy.entries
        if value is None:
            _check_used(trace, function)
        return finish_trace(trace, value)


def _run(trace: Trace, function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    """What the function returns; raises NeedsValue where the program caught one, whatever it did then."""
    try:
        value = function(*bound.args, **bound.kwargs)
    except Exception as error:
        if trace.pending is None:
            tape = trace.tape
            names = {name for name, value in zip(tape.names, tape.inputs, strict=True) if value in trace.numbers}
            need = NeedsValue.guess(error, frozenset(names)) if isinstance(error, TypeError) else None
            if need is None:
                raise
            raise need from error
    else:
        if trace.pending is None:
            return value
    raise NeedsValue(*trace.pending)


def _check_used(trace: Trace, function: Callable[..., Any]) -> None:
    """Raise for a function that returns nothing and has no effects: all it computes would be dead code."""
    records = trace.tape.records
    if records and not trace.effects:
        raise TracingError(
            f"`{getattr(function, '__name__', 'the function')}` returns nothing: its results are unused",
            span=records[-1].span,
            fix="`return` the tensors it computes",
        )


def finish_trace(trace: Trace, value: Any) -> TracedFunction:
    """The traced function whose result is `value`."""
    leaves, tree = flatten(value, keep_order=True)
    slots: list[Slot] = []
    outputs: list[Any] = []
    for leaf, path in zip(leaves, leaf_paths(tree, "result"), strict=True):
        leaf = leaf.result() if type(leaf) is TracedNumber else leaf
        if isinstance(leaf, Tracer) or is_concrete(leaf):
            slots.append(Slot(len(outputs)))
            outputs.append(leaf)
        elif isinstance(leaf, bool | int | float | str):
            slots.append(Slot(None, leaf))
        else:
            raise PytreeError(
                f"`{path}` is of type `{type(leaf).__name__}`, which a traced function cannot return",
                fix="return tensors, Python numbers, or containers of them",
            )
    tape = trace.finish(outputs)
    settle_numbers(tape, trace.numbers)
    lifted = tuple(item.tensor for item in trace.lifted.values())
    assumptions = tuple(trace.facts.assumptions)
    effects, proved = Effects(tape.promises.get("tessera.effects", ())), tuple(trace.facts.proved)
    return TracedFunction(tape, lifted, tree, tuple(slots), effects, assumptions, make_unflattener(tree), proved)
