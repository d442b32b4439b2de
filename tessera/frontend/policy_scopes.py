"""Numerics policies while ops are called: recorded on the tape of a trace, or applied eagerly outside of one."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import PolicyError
from tessera.diagnostics.span import user_span
from tessera.frontend.concrete import concrete_type
from tessera.frontend.shape_inference import Inference
from tessera.frontend.tracer import TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.policy_casts import Bits, OpUnderPolicy, keyed_bits, static_bits
from tessera.types.policy import SILENT, Policy
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace


@lru_cache(maxsize=1 << 8)
def needs_work(policy: Policy) -> bool:
    """Whether a policy changes more than the accumulators of contractions and sums."""
    total = policy.accumulate
    return policy.changes_values or (total is not None and total.is_float and total.bits != 32)


class TraceBuilder:
    """Records on the tape of a trace, ignoring its policy."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        return self.trace.record_op(name, operands, attributes, SILENT)

    def type_of(self, value: Any) -> TensorType:
        return self.trace.tape.types[self.trace.value_of(value)]

    def check(self, name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        """Run the shape rule of an op that is not recorded itself, so that errors name it and not its expansion."""
        spec, values = REGISTRY[name], tuple(map(self.trace.value_of, operands))
        types = [self.trace.tape.types[value] for value in values]
        spec.infer(Inference(self.trace, spec, values, user_span(), attributes), types, attributes)


class EagerBuilder:
    """Runs each op eagerly, on `device` if there is one."""

    def __init__(self, device: Any = None) -> None:
        self.device = device

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        return dispatch.apply_at(self.device, name, operands, attributes)

    def type_of(self, value: Any) -> TensorType:
        found = concrete_type(value)
        assert found is not None, "ops get tensors"
        return found

    def check(self, name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        """Run the shape rule of an op that is not called itself."""
        from tessera.frontend.trace import Trace  # noqa: PLC0415 - which needs this file for its policies

        trace = Trace()
        names = [one.rstrip("*") for one in REGISTRY[name].operands]
        inputs = [trace.add_input(names[min(at, len(names) - 1)], self.type_of(v)) for at, v in enumerate(operands)]
        TraceBuilder(trace).check(name, inputs, attributes)


def record_under(trace: Trace, policy: Policy, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Record an op with the conversions that a policy asks for around it."""
    name = REGISTRY[op].short_name
    full = REGISTRY[op].with_defaults(attributes)
    return OpUnderPolicy(TraceBuilder(trace), name, full, policy, trace.bits or static_bits(), user_span()).apply(
        operands
    )


def mark_results(trace: Trace, result: Any, operands: Sequence[Any], own: Policy) -> Any:
    """The results of an op, with the policy of the first operand that has one, where they are of its dtype."""
    if not own:
        return result
    dtype = next(one.dtype for one in operands if isinstance(one, TracedTensor) and one.policy)

    def mark(one: Any) -> Any:
        if not isinstance(one, TracedTensor) or one.dtype is not dtype:
            return one
        return TracedTensor(trace, one.value, one.type, own)

    return tuple(map(mark, result)) if isinstance(result, tuple) else mark(result)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class PolicyScope:
    """Eager ops run under a policy in it; a jitted function called in it is specialized for the policy.

    `device` is where they run, if given.
    """

    is_scope = True

    def __init__(self, policy: Policy, bits: Bits, device: Any = None) -> None:
        self.policy, self.bits, self.device = policy, bits, device

    @contextmanager
    def without_device(self) -> Generator[None]:
        """Within it, only the policy applies, not the device."""
        with dispatch.suspended():
            if not self.policy:
                yield
                return
            with dispatch.recording(PolicyScope(self.policy, self.bits)):
                yield

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Run an op with the conversions of the policy around it."""
        with dispatch.suspended():
            if not needs_work(self.policy) and self.policy.accumulate is None:
                return dispatch.apply_at(self.device, op, operands, attributes)
            full = REGISTRY[op].with_defaults(attributes)
            return OpUnderPolicy(
                EagerBuilder(self.device), REGISTRY[op].short_name, full, self.policy, self.bits
            ).apply(operands)


@contextmanager
def policy(given: Policy | None = None, /, *, key: Any = None, **fields_given: Any) -> Generator[Policy]:
    """Within it, ops run under a policy: `policy(Training())`, or by its fields, `policy(rounding="toward_zero")`.

    Inner scopes override outer ones, field by field; the policy of a tensor's type overrides both. `key`, u64[2], is
    the random key of stochastic rounding; without one the random numbers are the same at every call.

    >>> with ts.policy(ts.Training()):
    ...     print((ts.array([1.0, 2.0]) * 1.001).dtype)
    bf16
    """
    if given is not None and not isinstance(given, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(f"`policy` takes a Policy, got {given!r}", fix="write `policy(Training())`")
    unknown = sorted(fields_given.keys() - {field.name for field in fields(Policy)})
    if unknown:
        names = ", ".join(field.name for field in fields(Policy))
        raise PolicyError(f"`policy` has no field `{unknown[0]}`", fix=f"its fields are {names}")
    own = Policy(**fields_given) if given is None else given.joined(Policy(**fields_given)) if fields_given else given
    active: Any = dispatch.active()
    if active is None or isinstance(active, PolicyScope):
        whole = SILENT.overridden(own) if active is None else active.policy.overridden(own)
        bits = keyed_bits(key) if key is not None else static_bits() if active is None else active.bits
        with dispatch.recording(PolicyScope(whole, bits, getattr(active, "device", None))):
            yield whole
        return
    with enter_policy(active, own, key):
        yield active.policy


@contextmanager
def enter_policy(trace: Trace, own: Policy, key: Any = None) -> Generator[None]:
    """Within it, ops of the trace run under one more policy."""
    before = trace.policy, trace.bits
    trace.policy = trace.policy.overridden(own)
    trace.bits = keyed_bits(key) if key is not None else trace.bits or static_bits()
    try:
        yield
    finally:
        trace.policy, trace.bits = before
