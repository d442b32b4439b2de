"""Scopes of effects and numerics policies: what code inside `with` may do, and in which formats it computes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zlib import crc32

from tessera.diagnostics.codes import DeterminismError, EffectError, PolicyError
from tessera.diagnostics.error import Fix, Span, user_span
from tessera.frontend.concrete import concrete_type
from tessera.frontend.shape_inference import Inference
from tessera.frontend.trace import TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.base.spec import Nondeterminism, OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.policy_casts import Bits, OpUnderPolicy, keyed_bits, needs_work, static_bits
from tessera.types.effect import Effects
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace


# Scopes that limit the effects of traced code: suspension, determinism, seeds, order.


def active_trace() -> Any:
    """The active trace, or None: a policy scope outside of any trace runs ops eagerly."""
    found = dispatch.active()
    return None if getattr(found, "is_scope", False) else found


class Scope:
    """A scope, and the trace in which it was entered, if any."""

    def __init__(self) -> None:
        self.trace: Any = active_trace()
        self.span = user_span()

    def leave(self) -> None:
        """What to do when the scope ends without an error."""


class Suspension(Scope):
    """Effects that are suspended: an op without results is left out, or deferred to the end of the scope."""

    def __init__(self, effects: Effects, *, defer: bool) -> None:
        super().__init__()
        self.effects, self.defer = effects, defer
        self.deferred: list[Callable[[], None]] = []

    def leave(self) -> None:
        for record in self.deferred:
            record()


class Deterministic(Scope):
    """All runs of a function must agree; `seed` is for draws without a key."""

    def __init__(self, name: str, seed: int | None, declared: Span | None) -> None:
        super().__init__()
        self.name, self.seed, self.declared = name, seed, declared


class Seeded(Scope):
    """Keys without a seed are derived from this seed, a new one at each use."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__()
        self.seed, self._stream, self._count = seed, crc32(name.encode()), 0

    def next_words(self) -> list[int]:
        """The two words of the next key: the seed, and the function's stream with a count of uses."""
        self._count += 1
        return [self.seed & (1 << 64) - 1, self._stream << 32 | self._count]


class Ordered(Scope):
    """Ops that may reorder their work keep the written order."""


_SCOPES: ContextVar[tuple[Scope, ...]] = ContextVar("effect_scopes", default=())


@contextmanager
def enter_scope(scope: Scope) -> Generator[None]:
    """Within it, a scope is active."""
    token = _SCOPES.set((*_SCOPES.get(), scope))
    try:
        yield
    finally:
        _SCOPES.reset(token)
    scope.leave()


def find_entered() -> Sequence[Scope]:
    """All scopes of effects that are entered, whether or not the active trace is the one that they were entered in."""
    return _SCOPES.get()


def scopes_here() -> list[Scope]:
    """The active scopes, innermost first: those entered in the active trace.

    A program is traced once and called from many scopes, so a scope around a call does not apply inside it.
    """
    traces: list[Any] = [active_trace()]
    while getattr(traces[-1], "parent", None) is not None:
        traces.append(traces[-1].parent)
    return [scope for scope in reversed(_SCOPES.get()) if any(scope.trace is trace for trace in traces)]


def find(kind: type[Any]) -> Any:
    """The innermost scope of a kind, or None."""
    return next((scope for scope in scopes_here() if isinstance(scope, kind)), None)


def make_key() -> Any:
    """A random key without a seed: another one at every run, except where a scope or a run around it has a seed."""
    scope = find(Seeded)
    if scope is None and active_trace() is not None:
        return dispatch.apply("fresh_key", ())
    if scope is None:
        settle_nondeterminism(REGISTRY["fresh_key"], {}, user_span())
    from tessera.runtime.callback import fresh_key  # noqa: PLC0415 - few programs draw
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - a key is a tensor with data

    words = scope.next_words() if scope is not None else list(struct.unpack("=QQ", fresh_key()))
    return Tensor.of(words, "u64")


_PROMISED: WeakKeyDictionary[Any, dict[tuple[str, int | None], Any]] = WeakKeyDictionary()
"""Jitted functions specialized for deterministic callers, by name and seed of the caller."""


def keep_promise(jitted: Any) -> Any:
    """The jitted function under the promise of its deterministic caller; itself, where there is none."""
    around = find(Deterministic)
    if around is None:
        return jitted
    made, function = _PROMISED.setdefault(jitted, {}), jitted.function
    if (around.name, around.seed) not in made:
        name, seed, declared = around.name, around.seed, around.declared

        @wraps(function)
        def keeping(*args: Any, **kwargs: Any) -> Any:
            with enter_scope(Deterministic(name, seed, declared)):
                return function(*args, **kwargs)

        promise = f"`{name}`, which is deterministic" + ("" if seed is None else f" with seed {seed}")
        made[name, seed] = jitted.within(keeping, promise)
    return made[around.name, around.seed]


def settle_nondeterminism(spec: OpSpec, attributes: dict[str, Any], span: Span | None) -> None:
    """Within `ordered`, make an op that may reorder its work keep the written order.

    Raises DeterminismError (T0208) for an op whose runs may differ, in a function whose runs may not.
    """
    if attributes.get("ordered") is False and find(Ordered) is not None:
        attributes["ordered"] = True
    if spec.nondeterminism is None:
        return
    scope = find(Deterministic)
    found = spec.nondeterminism(attributes)
    if scope is not None and found is not None:
        name = {"fresh_key": "random.key"}.get(spec.short_name, spec.short_name)
        raise DeterminismError(
            f"runs of `{name}` may differ, and `{scope.name}` is deterministic: {found.why}",
            span=span,
            notes=(f"`{scope.name}` is declared deterministic at {scope.declared}",) if scope.declared else (),
            fix=_fix(span, found),
        )


def _fix(span: Span | None, found: Nondeterminism) -> Fix | str:
    """The fix as an edit of the call, where it is on one source line that matches the pattern."""
    if span is None or span.end_line > span.line or not found.pattern:
        return found.fix
    source = span.source_line[span.column - 1 : span.end_column - 1]
    changed = re.sub(found.pattern, found.replacement, source, count=1)
    return Fix(span, changed, found.fix) if source and changed != source else found.fix


def is_suspended(spec: OpSpec, own: frozenset[str], span: Span | None, gives: bool, record: Callable[[], None]) -> bool:
    """Whether an op is suspended here: dropped, or deferred until `record` is called at the end of the scope.

    Raises EffectError (T0108) for an op with results, which later ops may use.
    """
    for scope in scopes_here():
        if not isinstance(scope, Suspension):
            continue
        effects = Effects(own).meet(scope.effects)
        if not effects:
            continue
        if gives:
            raise EffectError(
                f"`{spec.short_name}` has effect `{effects}`, which is suspended here",
                span=span,
                notes=(f"suspended at {scope.span}",) if scope.span else (),
                fix="move it out of `effects.suspend`: it has results, so it cannot be left out",
            )
        if scope.defer:
            scope.deferred.append(record)
        return True
    return False


# Numerics policies while ops are called: recorded on the tape of a trace, or applied eagerly outside of one.


class TraceBuilder:
    """Records on the tape of a trace, ignoring its policy; `span` is the user's line, where it is known already."""

    def __init__(self, trace: Trace, span: Span | None = None) -> None:
        self.trace, self.span = trace, span

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        return self.trace.record_op(name, operands, attributes, SILENT, self.span)

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
    name, span = REGISTRY[op].short_name, user_span()
    builder = TraceBuilder(trace, span)
    full = REGISTRY[op].complete(attributes, [builder.type_of(one) for one in operands])
    if trace.bits is None:
        trace.bits = static_bits()  # numbered through the trace: no two of its roundings have the same bits
    return OpUnderPolicy(builder, name, full, policy, trace.bits, span).apply(operands)


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
        with dispatch.suspend_traces():
            if not self.policy:
                yield
                return
            with dispatch.record_on(PolicyScope(self.policy, self.bits)):
                yield

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Run an op with the conversions of the policy around it."""
        with dispatch.suspend_traces():
            if not needs_work(self.policy) and self.policy.accumulate is None:
                return dispatch.apply_at(self.device, op, operands, attributes)
            builder = EagerBuilder(self.device)
            full = REGISTRY[op].complete(attributes, [builder.type_of(one) for one in operands])
            return OpUnderPolicy(builder, REGISTRY[op].short_name, full, self.policy, self.bits).apply(operands)


@contextmanager
def policy(given: Policy | None = None, /, *, key: Any = None, **fields_given: Any) -> Generator[Policy]:
    """Within it, ops run under a policy: `policy(Training())`, or by its fields, `policy(rounding="toward_zero")`.

    Inner scopes override outer ones, field by field; the policy of a tensor's type overrides both. `key`, u64[2], is
    the random key of stochastic rounding; without one the random numbers are the same at every call, as those of
    derivatives always are.

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
        with dispatch.record_on(PolicyScope(whole, bits, getattr(active, "device", None))):
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
