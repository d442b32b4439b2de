"""Rules of functions with derivatives of their own: traced beside the body, checked, and recorded with it as one op.

Rules are traced where the function is called, and only inside of a function that is being differentiated: a program
without derivatives is that of the function alone. What a rule calls is traced for one derivative less, so that a rule
may call the function that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.api.control import Body, finish_body, share_lifted
from tessera.diagnostics.codes import DifferentiationError, DTypeError, PytreeError, ShapeError
from tessera.diagnostics.error import Span
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions.operands import as_tensor, is_tensor
from tessera.frontend.pytree import Tree, flatten, is_sequence, leaf_paths, leaves_like, unflatten
from tessera.frontend.subprograms import type_of
from tessera.frontend.trace import Trace, TracedTensor
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.transforms.linearity import LINEAR, PLAIN, check_linear, inline_functions
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.shape import TensorType, is_refuted


@frozen
class Rule:
    """A rule as it is called, and the function of the user that it is made of."""

    call: Callable[..., Any]
    source: Any

    @property
    def name(self) -> str:
        return str(getattr(self.source, "__name__", type(self.source).__name__))

    @property
    def span(self) -> Span | None:
        """Where it is written."""
        code = getattr(self.source, "__code__", None)
        return None if code is None else Span(code.co_filename, code.co_firstlineno, 1)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.span is None else (f"`{self.name}` is defined at {self.span}",)

    def split_pair(self, value: Any, what: str) -> tuple[Any, Any]:
        """What it returns, which must be two values."""
        if not isinstance(value, tuple) or len(value) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise PytreeError(
                f"`{self.name}` must return a pair, {what}, got {flatten(value)[1]}", span=self.span,
                fix=f"return `{what}`",
            )  # fmt: skip
        return value  # pyright: ignore[reportUnknownVariableType]

    def refuse_form(self, what: str, wanted: Tree, value: Any) -> PytreeError:
        """The error for a value of another form than it must have."""
        found = flatten(value, keep_order=True)[1]
        return PytreeError(f"`{self.name}` must give {what} in its form, {wanted}, got {found}", span=self.span)


@frozen
class Rules:
    """The derivatives of the function `name` of `arguments`: `forward` and `backward`, or `jvp`, or all three."""

    name: str
    arguments: tuple[str, ...]
    forward: Rule | None = None
    backward: Rule | None = None
    jvp: Rule | None = None


@dataclass(slots=True)
class _Argument:
    """An argument: its form, its leaves, and for each leaf the number among the tensors, or None for a static one."""

    tree: Tree
    leaves: list[Any]
    numbers: list[int | None]

    def fill(self, values: Sequence[Any], static: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
        """The argument with values in the place of its tensors, and something for each static leaf."""
        made = [
            static(leaf) if number is None else values[number]
            for leaf, number in zip(self.leaves, self.numbers, strict=True)
        ]
        return unflatten(self.tree, made)


class _Call:
    """One call of a function with rules: its arguments, and the traces of its body and its rules."""

    def __init__(self, function: Callable[..., Any], rules: Rules, args: Sequence[Any], outer: Trace) -> None:
        self.rules, self.outer = rules, outer
        self.tensors: list[Any] = []
        self.arguments = [self._take_argument(argument) for argument in args]
        self.types = [type_of(tensor) for tensor in self.tensors]
        self.floats = [at for at, type in enumerate(self.types) if type.dtype.is_float]
        self.body = self._trace_function(function, orders=0)
        self.results = [type_of(result) for result in self.body.results]
        self.float_results = [at for at, type in enumerate(self.results) if type.dtype.is_float]

    def _take_argument(self, argument: Any) -> _Argument:
        leaves, tree = flatten(argument, keep_order=True)
        adopted = [adopt_operand(leaf) for leaf in leaves]
        numbers: list[int | None] = []
        for leaf in adopted:
            # A traced number keeps the promotion of numbers, and is captured.
            if is_traced_number(leaf) or not is_tensor(leaf):
                numbers.append(None)
                continue
            numbers.append(len(self.tensors))
            self.tensors.append(as_tensor(leaf))
        return _Argument(tree, adopted, numbers)

    def _open(self, orders: int) -> Trace:
        trace = Trace(parent=self.outer)
        trace.orders = orders
        return trace

    def _inputs(self, trace: Trace, label: str, like: Sequence[Any]) -> list[TracedTensor]:
        return [
            trace.add_input(f"{label}_{at}", type_of(one), getattr(one, "policy", SILENT))
            for at, one in enumerate(like)
        ]

    def _trace_function(self, function: Callable[..., Any], orders: int) -> Body:
        """The function, or its rule `forward`, on tracers for the arguments."""
        trace = self._open(orders)
        given = self._inputs(trace, "operand", self.tensors)
        with dispatch.record_on(trace):
            leaves, tree = flatten(function(*(one.fill(given) for one in self.arguments)), keep_order=True)
            return Body(trace, [_tensor(leaf) for leaf in leaves], tree)

    def trace_reverse(self, forward: Rule, backward: Rule) -> list[Body]:
        """The two rules of reverse mode: the residuals of the first are arguments of the second."""
        orders = self.outer.orders - 1
        trace = self._open(orders)
        given = self._inputs(trace, "operand", self.tensors)
        with dispatch.record_on(trace):
            value = forward.call(*(one.fill(given) for one in self.arguments))
            out, kept = forward.split_pair(value, "(result, residuals)")
            results = self._check_results(forward, out, trace)
            leaves, tree = flatten(kept, keep_order=True)
            numbers = [at for at, leaf in enumerate(leaves) if is_traced_number(leaf) or is_tensor(leaf)]
            residuals = [_tensor(leaves[at]) for at in numbers]
        first = Body(trace, [*results, *residuals], tree)
        trace = self._open(orders)
        held = self._inputs(trace, "residual", residuals)
        seeds = self._inputs(trace, "cotangent", [self.body.results[at] for at in self.float_results])
        with dispatch.record_on(trace):
            # What is no tensor is passed on as it is.
            for at, tensor in zip(numbers, held, strict=True):
                leaves[at] = tensor
            value = backward.call(unflatten(tree, leaves), self._result_form(seeds))
            found = self._check_cotangents(backward, value, trace)
        return [first, Body(trace, found, tree)]

    def trace_jvp(self, rule: Rule) -> Body:
        """The rule of forward mode, which is linear in the tangents."""
        trace = self._open(self.outer.orders - 1)
        given = self._inputs(trace, "operand", self.tensors)
        tangents = self._inputs(trace, "tangent", [self.tensors[at] for at in self.floats])
        by_number = dict(zip(self.floats, tangents, strict=True))
        changes = [by_number.get(at) for at in range(len(self.tensors))]
        with dispatch.record_on(trace):
            primals = tuple(one.fill(given) for one in self.arguments)
            value = rule.call(primals, tuple(one.fill(changes, _zero_tangent) for one in self.arguments))
            out, pushed = rule.split_pair(value, "(result, tangent)")
            results = self._check_results(rule, out, trace)
            found = self._check_tangents(rule, pushed, trace)
        return Body(trace, [*results, *found], self.body.tree)

    def check_jvp(self, rule: Rule, body: Body) -> None:
        """Raises DifferentiationError (T0306) unless tangents, and nothing else, are linear in tangents."""
        tape, count = body.trace.tape, len(self.types)
        kinds = [LINEAR if count <= at < count + len(self.floats) else PLAIN for at in range(len(tape.inputs))]
        # With a rule for reverse mode this one is never transposed, and may call functions that have rules.
        checked = tape if self.rules.backward is None else inline_functions(tape)
        found = check_linear(rule.name, checked, kinds)
        for at, (output, kind) in enumerate(zip(tape.outputs, found, strict=True)):
            is_tangent = at >= len(self.results)
            if kind == (PLAIN if is_tangent else LINEAR):
                what = "a tangent that does not depend on" if is_tangent else "a result that depends on"
                raise DifferentiationError(
                    f"`{rule.name}` gives {what} the tangents that it takes",
                    span=_span_of(body.trace, output) or rule.span,
                    notes=(*rule.notes, "rule: results come from the primals, tangents are linear in tangents"),
                    fix="return the pair (result, tangent)",
                )

    def _result_form(self, values: Sequence[Any]) -> Any:
        """The form of the result, with a value for each float in it and None for all others."""
        by_number = dict(zip(self.float_results, values, strict=True))
        return unflatten(self.body.tree, [by_number.get(at) for at in range(len(self.results))])

    def _check_results(self, rule: Rule, out: Any, trace: Trace) -> list[Any]:
        """The results of a rule, which are those of the function."""
        leaves = leaves_like(self.body.tree, out)
        if leaves is None:
            raise rule.refuse_form(f"the result of `{self.rules.name}`", self.body.tree, out)
        paths = leaf_paths(self.body.tree, "result")
        return [
            check_type(rule, f"`{path}` of `{self.rules.name}`", leaf, type, trace, "the result is")
            for path, leaf, type in zip(paths, leaves, self.results, strict=True)
        ]

    def _check_cotangents(self, rule: Rule, value: Any, trace: Trace) -> list[Any]:
        """The cotangents of the arguments that are floats."""
        count = len(self.arguments)
        if not is_sequence(value) or len(value) != count:
            got = f"{len(value)} of them" if is_sequence(value) else f"{flatten(value)[1]}, which is no tuple"
            raise PytreeError(
                f"`{rule.name}` must return a tuple of {count} cotangents, one for each argument of "
                f"`{self.rules.name}`, got {got}",
                span=rule.span,
                fix=f"return `({', '.join(['d_x'] * count)}{',' * (count == 1)})`, None for what has no derivative",
            )
        found: list[Any] = []
        for name, argument, part in zip(self.rules.arguments, self.arguments, value, strict=True):
            leaves = leaves_like(argument.tree, part, has_none=True)
            if leaves is None:
                raise rule.refuse_form(f"the cotangent of `{name}` of `{self.rules.name}`", argument.tree, part)
            paths = leaf_paths(argument.tree, name)
            for path, leaf, number in zip(paths, leaves, argument.numbers, strict=True):
                # A Python number has no derivative, and a rule need not know that it is one.
                if number is not None:
                    found += self._check_change(rule, "cotangent", path, leaf, self.types[number], trace)
        return found

    def _check_tangents(self, rule: Rule, value: Any, trace: Trace) -> list[Any]:
        """The tangents of the results that are floats."""
        leaves = leaves_like(self.body.tree, value, has_none=True)
        if leaves is None:
            raise rule.refuse_form(f"the tangent of the result of `{self.rules.name}`", self.body.tree, value)
        found: list[Any] = []
        for path, leaf, type in zip(leaf_paths(self.body.tree, "result"), leaves, self.results, strict=True):
            found += self._check_change(rule, "tangent", path, leaf, type, trace)
        return found

    def _check_change(self, rule: Rule, kind: str, path: str, leaf: Any, type: TensorType, trace: Trace) -> list[Any]:
        """A tangent or cotangent of a value of some type, None being zero; none of a value that has none."""
        what = f"the {kind} of `{path}` of `{self.rules.name}`"
        if type.dtype.is_float:
            if leaf is None:
                return [apply("full", (), {"shape": type.shape, "value": 0.0, "dtype": type.dtype})]
            return [check_type(rule, what, leaf, type, trace, f"`{path}` is")]
        if leaf is not None:
            raise DTypeError(
                f"`{rule.name}` gives {what}, which is {type}, and {type.dtype} has no derivative",
                span=_span_of(trace, getattr(leaf, "value", None)) or rule.span,
                notes=rule.notes,
                fix="give None for it",
            )
        return []


def check_type(rule: Rule, what: str, leaf: Any, wanted: TensorType, trace: Trace, whose: str) -> Any:
    """A value that a rule gives, as a tensor of the type that it must have."""
    if not is_tensor(leaf) and not isinstance(leaf, bool | int | float):
        raise PytreeError(
            f"`{rule.name}` gives {what} as {leaf!r} of type `{type(leaf).__name__}`, which is no tensor",
            span=rule.span,
        )
    tensor = _tensor(leaf, wanted.dtype)
    span = _span_of(trace, getattr(tensor, "value", None)) or rule.span
    own = type_of(tensor)
    if own.dtype is not wanted.dtype and own.dtype.is_float and trace.policy.storage is not None:
        # What the rule computes has the dtype that the policy stores, and a derivative that of its value.
        tensor = apply("cast", (tensor,), {"dtype": wanted.dtype})
        own = type_of(tensor)
    text = f"`{rule.name}` gives {what} as {own}, and {whose} {wanted}"
    if own.dtype is not wanted.dtype:
        raise DTypeError(text, span=span, notes=rule.notes, fix=f"end with `.cast({wanted.dtype})`")
    pairs = list(zip(map(trace.resolve, own.shape), map(trace.resolve, wanted.shape), strict=False))
    if own.rank != wanted.rank or any(is_refuted(*pair) for pair in pairs):
        raise ShapeError(text, span=span, notes=rule.notes, fix="sum over the axes that were broadcast, or reshape it")
    return tensor  # sizes that may be equal are those of the op, which proves or guards them


def _span_of(trace: Trace, value: Any) -> Span | None:
    """The line of a rule that made a value."""
    return next((record.span for record in trace.tape.records if value in record.results), None)


def _zero_tangent(leaf: Any) -> Any:
    """The tangent of a static leaf, which does not change."""
    return 0.0 if isinstance(leaf, float) else None


def _tensor(leaf: Any, dtype: Any = None) -> Any:
    """A leaf as a tensor of the trace that is being made."""
    return leaf.result() if is_traced_number(leaf) else as_tensor(leaf, dtype)


def call_with_rules(function: Callable[..., Any], rules: Rules, args: Sequence[Any]) -> Any:
    """What a function gives for positional arguments, and its rules with it where derivatives will be taken."""
    outer = dispatch.tracing()
    if not isinstance(outer, Trace) or not outer.orders:
        return function(*args)
    call = _Call(function, rules, args, outer)
    traced: dict[str, Body] = {}
    if rules.forward is not None and rules.backward is not None:
        traced.update(zip(("forward", "backward"), call.trace_reverse(rules.forward, rules.backward), strict=True))
    if rules.jvp is not None:
        traced["jvp"] = call.trace_jvp(rules.jvp)
    bodies = [call.body, *traced.values()]
    lifted = share_lifted(bodies)
    body, *tapes = (finish_body(one) for one in bodies)
    if rules.jvp is not None:
        call.check_jvp(rules.jvp, traced["jvp"])
    attributes = {"body": body, "function": rules.name, "captured": len(lifted), "modes": tuple(traced)}
    made = apply("custom_function", (*call.tensors, *lifted), {**attributes, "rules": tuple(tapes)})
    policies = [getattr(result, "policy", SILENT) for result in call.body.results]
    marked = [TracedTensor(x.recorder, x.value, x.type, policy) for x, policy in zip(made, policies, strict=True)]
    return unflatten(call.body.tree, marked)
