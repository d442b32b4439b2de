"""`Trace`: running a Python function on stand-ins and keeping what it does as a tape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.diagnostics.codes import EscapedTracerError, TracingError
from tessera.diagnostics.span import user_span
from tessera.frontend.concrete import concrete_type
from tessera.frontend.facts import Facts
from tessera.frontend.inference import Inference
from tessera.frontend.traced import TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.policy import SILENT, Policy
from tessera.types.tensor_type import TensorType


@dataclass(slots=True)
class Lifted:
    """A tensor from outside the function that became one more input: its value number and the tensor itself."""

    value: int
    tensor: Any


class Trace:
    """A tape being written: inputs, ops in the order they were called, and what was assumed on the way.

    A trace inside another (the body of a loop) shares its parent's facts and lifts its parent's stand-ins.
    """

    def __init__(self, parent: Trace | None = None, facts: Facts | None = None) -> None:
        self.tape = Tape()
        self.parent = parent
        self.facts = parent.facts if parent is not None else facts or Facts()
        self.lifted: dict[int, Lifted] = {}
        self.effects: set[str] = set()

    def add_input(self, name: str, type: TensorType, policy: Policy = SILENT) -> TracedTensor:
        """A stand-in for one argument."""
        value = self.tape.new_value(type)
        self.tape.inputs.append(value)
        self.tape.names.append(name)
        return TracedTensor(self, value, type, policy)

    def known(self, dim: Dim) -> Dim:
        """A dim with what the trace has assumed so far put in."""
        return self.facts.known(dim)

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Put an op on the tape; its shape rule runs now, so a mistake is found at the line that made it."""
        spec = REGISTRY[op]
        values = tuple(self.value_of(operand) for operand in operands)
        types = [self.tape.types[value] for value in values]
        span = user_span()
        policy = _policy_of(operands)
        full = spec.with_defaults(attributes)
        if policy and policy.accum is not None and full.get("accumulate", policy) is None:
            full["accumulate"] = policy.accum
        results = spec.infer(Inference(self, spec, values, span), types, full)
        numbers = tuple(self.tape.new_value(type) for type in results)
        self.tape.records.append(Record(spec.name, values, full, numbers, span))
        self.effects |= spec.effects
        dtype = types[0].dtype if types else None
        outputs = tuple(
            TracedTensor(self, number, type, policy if type.dtype is dtype else SILENT)
            for number, type in zip(numbers, results, strict=True)
        )
        return outputs[0] if _has_one_result(spec) else outputs

    def value_of(self, operand: Any) -> int:
        """The value number of an operand: a stand-in of this trace, or one lifted into it."""
        if isinstance(operand, TracedTensor):
            if operand.trace is self:
                return operand.value
            if not dispatch.is_open(operand.trace):
                raise escaped(operand)
        return self._lift(operand)

    def _lift(self, operand: Any) -> int:
        known = self.lifted.get(id(operand))
        if known is not None:
            return known.value
        if isinstance(operand, TracedTensor):
            outer, type, name = operand, operand.type, f"outer_{operand.value}"
            if self.parent is not None and operand.trace is not self.parent:
                # Two levels out: the level between must carry it too.
                outer = TracedTensor(self.parent, self.parent.value_of(operand), type)
        elif self.parent is not None:
            value = self.parent.value_of(operand)
            outer = TracedTensor(self.parent, value, self.parent.tape.types[value])
            type, name = outer.type, f"outer_{value}"
        else:
            found = concrete_type(operand)
            if found is None:
                raise TracingError(f"{operand!r} of type `{_type_name(operand)}` is no tensor")
            outer, type, name = operand, found, f"captured_{len(self.lifted)}"
            self.facts.anchor(type)
        stand_in = self.add_input(name, type)
        # Holding the operand keeps its id from being given to another object.
        self.lifted[id(operand)] = Lifted(stand_in.value, outer)
        if outer is not operand:
            self._keep.append(operand)
        return stand_in.value

    @property
    def _keep(self) -> list[Any]:
        return self.facts.kept_alive

    def origin(self, value: int) -> str:
        """Where a value came from, for the notes of an error."""
        type = self.tape.types[value]
        if value in self.tape.inputs:
            return f"`{self.tape.names[self.tape.inputs.index(value)]}` is {type}"
        for record in reversed(self.tape.records):
            if value in record.results:
                place = f" at {record.span}" if record.span else ""
                return f"{type} comes from `{record.op.split('.', 1)[1]}`{place}"
        return str(type)

    def finish(self, outputs: Sequence[Any]) -> Tape:
        """The tape with these results, and with everything that was assumed put into its types."""
        self.tape.outputs = [self.value_of(output) for output in outputs]
        if self.parent is None:
            self.facts.settle(self.tape)
        return self.tape


def _policy_of(operands: Sequence[Any]) -> Policy:
    """The numerics policy an op works under: that of the first operand that has one."""
    for operand in operands:
        if isinstance(operand, TracedTensor) and operand.policy:
            return operand.policy
    return SILENT


def _has_one_result(spec: OpSpec) -> bool:
    return len(spec.results) == 1 and not spec.results[0].endswith("*")


def _type_name(value: Any) -> str:
    return type(value).__name__


def escaped(tensor: TracedTensor) -> EscapedTracerError:
    """The error for a stand-in used after its function returned."""
    made = next((r.span for r in tensor.trace.tape.records if tensor.value in r.results), None)
    return EscapedTracerError(
        f"this {tensor.type} stands for a tensor of a traced function that has ended",
        notes=(f"it was made at {made}",) if made else (),
        fix="return the tensor from the function instead of storing it outside",
    )
