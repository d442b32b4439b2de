"""What a shape rule asks while a function is traced: equalities proved, assumed or refuted at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.diagnostics.codes import BroadcastError, DTypeError, ShapeError
from tessera.diagnostics.error import TesseraError
from tessera.diagnostics.span import Span
from tessera.frontend.facts import Assumption
from tessera.ir.base.spec import OpSpec
from tessera.types.dim import Dim
from tessera.types.shape import is_refuted

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace


class Inference:
    """The `InferContext` of one op of a trace."""

    __slots__ = ("operands", "span", "spec", "trace")

    def __init__(self, trace: Trace, spec: OpSpec, operands: tuple[int, ...], span: Span | None) -> None:
        self.trace, self.spec, self.operands, self.span = trace, spec, operands, span

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
        return facts.assume(left, right, what, self.span)

    def fail(self, message: str, *, help: str = "") -> Exception:
        kind = BroadcastError if "cannot broadcast" in message else ShapeError
        return kind(message, span=self.span, notes=self._notes(), fix=help or None)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        return DTypeError(message, span=self.span, notes=self._notes(), fix=help or None)

    def _notes(self) -> tuple[str, ...]:
        """Where each operand came from, once each."""
        return tuple(dict.fromkeys(self.trace.origin(value) for value in self.operands))
