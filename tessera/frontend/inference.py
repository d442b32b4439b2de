"""What a shape rule asks while a function is traced: equalities proved, assumed or refuted at the user's line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import BroadcastError, DTypeError, ShapeError, SpecializationError
from tessera.diagnostics.error import Fix, TesseraError
from tessera.diagnostics.span import Span
from tessera.frontend.facts import Assumption
from tessera.frontend.lower_bounds import one_from
from tessera.ir.base.spec import OpSpec
from tessera.types.dim import Dim
from tessera.types.shape import is_at_least, is_refuted
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace

MOST_BYTES = 2**63 - 1
"""The most bytes of one tensor: offsets are signed numbers of 64 bits."""


def check_bytes(spec: OpSpec, results: Sequence[TensorType], span: Span | None) -> None:
    """Refuse a result that no machine can address, here where the line is known."""
    for type in results:
        size = type.size.value
        if size is not None and size * type.dtype.bits > MOST_BYTES * 8:
            bytes = -(-size * type.dtype.bits // 8)
            raise ShapeError(
                f"`{spec.name.split('.', 1)[1]}` gives {type}: {size} elements, {bytes} bytes",
                span=span,
                notes=(f"rule: a tensor has at most 2^63 - 1 = {MOST_BYTES} bytes",),
                fix="compute a part of it at a time",
            )


def check_sizes(trace: Trace, op: str, sizes: Iterable[Dim], span: Span | None) -> None:
    """Refuse sizes that are below zero, and guard those that may be: what is none could only fail as memory."""
    for size in sizes:
        if size.symbol_name is not None or (size.value is not None and size.value >= 0):
            continue
        known = trace.known(size)
        if is_at_least(-known, 1):
            raise ShapeError(f"`{op}` got a size below zero: {known}", span=span, fix="sizes are 0 or more")
        if not is_at_least(known, 0) and known.symbols <= trace.facts.order.keys():
            from tessera.frontend.constraints import suppose  # noqa: PLC0415 - few functions have any
            from tessera.types.constraint import Constraint  # noqa: PLC0415

            suppose(trace, Constraint(known, ">=", Dim.constant(0), span=span), span)


class Inference:
    """The `InferContext` of one op of a trace."""

    __slots__ = ("attributes", "operands", "span", "spec", "trace", "types")

    def __init__(
        self,
        trace: Trace,
        spec: OpSpec,
        operands: tuple[int, ...],
        span: Span | None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.trace, self.spec, self.operands, self.span = trace, spec, operands, span
        self.attributes = attributes or {}
        self.types: list[TensorType] | None = None

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        facts = self.trace.facts
        left, right = facts.known(left), facts.known(right)
        if left == right:
            return left
        if is_refuted(left, right):
            raise self.fail(f"{what}: {left} and {right} differ")
        answer = facts.decide(left, right)
        if answer is not None and answer.is_proved:
            return facts.derive(Assumption(left, right, what, self.span), answer.because)
        if answer is not None and answer.is_refuted:
            from tessera.frontend.constraints import listed, places  # noqa: PLC0415 - few functions have any

            error = self.fail(f"{what}: {left} and {right} differ because of {listed(answer.because)}")
            raise error.with_notes(*places(answer.because)) if isinstance(error, TesseraError) else error
        self.types = self._types()  # as they are before it is assumed: later both dims are one
        try:
            return facts.assume(left, right, what, self.span, given=self._given_sizes(), asker=self)
        except SpecializationError as error:
            raise error.with_fix(self.shape_fix()) from None

    def stretches(self, dim: Dim, other: Dim, what: str) -> bool:
        """Whether a dim is taken for the 1 that broadcasts: that of `x[:1]` is, next to one that may be more."""
        facts = self.trace.facts
        return one_from(facts.known(other)) is None and facts.suppose_one(dim, what, self.span)

    def _given_sizes(self) -> frozenset[int]:
        """The static sizes of operands that come from tensors whose sizes are given at the call, not declared."""
        given = self.trace.given
        types = [self.trace.tape.types[value] for value in self.operands if value in given]
        return frozenset(dim.value for type in types for dim in type.shape if dim.value is not None)

    def fail(self, message: str, *, help: str = "") -> Exception:
        kind = BroadcastError if "cannot broadcast" in message else ShapeError
        return kind(self.named(message), span=self.span, notes=self._notes(), fix=self.shape_fix() or help or None)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        from tessera.frontend.fixes.operands import dtype_fix  # noqa: PLC0415 - for errors alone

        fix = dtype_fix(self.spec, self._types(), self.attributes, self.span)
        return DTypeError(message, span=self.span, notes=self._notes(), fix=fix or help or None)

    def named(self, message: str) -> str:
        """The message with operands called what the user calls them."""
        if ".shape[" not in message:
            return message
        from tessera.frontend.fixes.operands import in_users_words  # noqa: PLC0415 - for errors and guards alone

        inputs, names = self.trace.tape.inputs, self.trace.tape.names
        known = [names[inputs.index(value)] if value in inputs else "" for value in self.operands]
        return in_users_words(self.spec, message, known, self.span)

    def shape_fix(self) -> Fix | None:
        """The edit after which the shape rule holds with nothing assumed, if there is one."""
        from tessera.frontend.fixes.operands import shape_fix  # noqa: PLC0415 - for errors alone

        return shape_fix(self.spec, self._types(), self.attributes, self.span)

    def _types(self) -> list[TensorType]:
        if self.types is not None:
            return self.types
        types = [self.trace.tape.types[value] for value in self.operands]
        return [type.with_shape(self.trace.known(dim) for dim in type.shape) for type in types]

    def _notes(self) -> tuple[str, ...]:
        """Where each operand came from, once each, by the name that the source has for it where ops run at once."""
        return tuple(dict.fromkeys(self._note(at, value) for at, value in enumerate(self.operands)))

    def _note(self, at: int, value: int) -> str:
        note, inputs = self.trace.origin(value), self.trace.tape.inputs
        name = self.spec.operands[at].rstrip("*?") if at < len(self.spec.operands) else ""
        if value not in inputs or self.trace.tape.names[inputs.index(value)] != name:
            return note
        called = self.named(f"`{name}.shape[")[1 : -len(".shape[")]
        return note.replace(f"`{name}`", f"`{called}`", 1)
