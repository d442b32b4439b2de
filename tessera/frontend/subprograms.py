"""A function traced to a tape of its own inside a trace: what transforms of functions work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import DifferentiationError, PytreeError
from tessera.diagnostics.error import user_span
from tessera.frontend.annotations import signature_of
from tessera.frontend.bind import bind_arguments
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions.operands import as_tensor, constant, dtype_of
from tessera.frontend.pytree import Tree, flatten, leaf_paths, leaves_like, unflatten
from tessera.frontend.shape_inference import resolve_tape
from tessera.frontend.size import dim_of
from tessera.frontend.trace import Trace, TracedTensor
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.tape import Tape
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType, is_refuted


@frozen
class Subprogram:
    """A traced function: its tape, the tensors that its inputs are, and the form of its result.

    The first inputs are the `leaves` of the arguments that a transform is about, the others what the function captures.
    """

    tape: Tape
    operands: tuple[Any, ...]
    trees: tuple[Tree, ...]
    result: Tree
    policies: tuple[Policy, ...]

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """The function's result from values of the tape's outputs."""
        marked = [
            TracedTensor(x.recorder, x.value, x.type, policy) if policy and isinstance(x, TracedTensor) else x
            for x, policy in zip(outputs, self.policies, strict=True)
        ]
        return unflatten(self.result, marked)


def trace_subprogram(
    name: str, function: Callable[..., Any], arguments: Sequence[Any], kwargs: Mapping[str, Any], about: Sequence[int]
) -> Subprogram:
    """Trace a function inside the active trace; `about` are the positions of the arguments that become inputs."""
    bind_arguments(signature_of(function), arguments, kwargs)  # a wrong call is the caller's, not the function's
    trace, given = open_trace(), list(arguments)
    # The linear function that `vjp` or `linearize` gives may be differentiated too.
    trace.orders += 2 if name in ("vjp", "linearize") else 1
    operands: list[Any] = []
    trees: list[Tree] = []
    for number in about:
        leaves, tree = flatten(arguments[number], keep_order=True)
        paths = leaf_paths(tree, f"argument {number}")
        tensors = [_float_tensor(name, leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
        tracers = [
            trace.add_input(path, type_of(tensor), getattr(tensor, "policy", SILENT))
            for tensor, path in zip(tensors, paths, strict=True)
        ]
        given[number] = unflatten(tree, tracers)
        operands += tensors
        trees.append(tree)
    return finish_subprogram(trace, lambda: function(*given, **kwargs), operands, trees)


def open_trace() -> Trace:
    """A new trace inside the active one."""
    outer = dispatch.tracing()
    assert isinstance(outer, Trace), "functions are transformed inside a trace"
    trace = Trace(parent=outer)
    # Each op then carries its whole policy, which rules of transforms read.
    trace.declared = SILENT
    return trace


def finish_subprogram(
    trace: Trace, run: Callable[[], Any], operands: Sequence[Any], trees: Sequence[Tree]
) -> Subprogram:
    """What `run` does on tracers of a trace, which stand for `operands`, as a program."""
    with dispatch.record_on(trace):
        leaves, form = flatten(run(), keep_order=True)
        results = [_result(leaf, path) for leaf, path in zip(leaves, leaf_paths(form, "result"), strict=True)]
    tape = trace.finish(results)
    assert trace.parent is not None
    trace.parent.effects |= trace.effects
    resolve_tape(tape, trace.facts)
    lifted = [item.tensor for item in trace.lifted.values()]
    policies = tuple(getattr(result, "policy", SILENT) for result in results)
    return Subprogram(tape, (*operands, *lifted), tuple(trees), form, policies)


def _float_tensor(name: str, leaf: Any, path: str) -> Any:
    """A leaf to differentiate by, as a tensor; raises DifferentiationError (T0306) for one that is not of floats."""
    leaf = adopt_operand(leaf)
    if is_traced_number(leaf):
        return leaf.to(f32)
    if isinstance(leaf, float):
        return constant(leaf, f32)
    if isinstance(leaf, bool | int | str) or leaf is None:
        raise DifferentiationError(
            f"`{name}` differentiates by tensors of floats, and {path} is {leaf!r} of type `{type(leaf).__name__}`",
            fix=f"{_leave_out(name)}, or pass a float",
        )
    tensor = as_tensor(leaf)
    if not dtype_of(tensor).is_float:
        raise DifferentiationError(
            f"`{name}` differentiates by floats, and {path} is {type_of(tensor)}",
            fix=f"{_leave_out(name)}, or cast it to a float dtype first",
        )
    return tensor


def _leave_out(name: str) -> str:
    """How a transform of that name is told not to differentiate by an argument."""
    if name in ("vjp", "jvp", "linearize", "hvp"):
        return "let the function capture it, as in `lambda x: f(x, n)`"
    return "leave it out with `argnums`"


def type_of(tensor: Any) -> TensorType:
    """The type of a tensor, traced or not."""
    return TensorType(tuple(dim_of(size) for size in tensor.shape), dtype_of(tensor))


def _result(leaf: Any, path: str) -> Any:
    """A result as a tensor of the trace."""
    if is_traced_number(leaf):
        return leaf.result()
    if isinstance(leaf, bool | int | float):
        return constant(leaf, dtype_of(as_tensor(leaf)))
    try:
        return as_tensor(leaf)
    except Exception as error:
        raise PytreeError(
            f"`{path}` is of type `{type(leaf).__name__}`, which a transformed function cannot return",
            fix="return tensors, Python numbers, or containers of them",
        ) from error


def check_like(name: str, what: str, given: Any, tree: Tree, types: Sequence[Any]) -> list[Any]:
    """The leaves of a tree that must have the form and the types of another."""
    leaves = leaves_like(tree, given)
    if leaves is None:
        found = flatten(given, keep_order=True)[1]
        raise PytreeError(f"`{name}` takes {what} in the form of their values, {tree}, got {found}")
    tensors = [as_tensor(leaf, type.dtype) for leaf, type in zip(leaves, types, strict=True)]
    trace: Any = dispatch.tracing()
    for tensor, type in zip(tensors, types, strict=True):
        own, wanted = (_resolve(trace, one) for one in (type_of(tensor), type))
        if own.dtype is not type.dtype or own.rank != type.rank or any(map(is_refuted, own.shape, wanted.shape)):
            raise DifferentiationError(
                f"`{name}` takes {what} of the shapes and dtypes of their values: {type} here, got {own}",
                fix="cast or reshape it",
            )
        for mine, other in zip(own.shape, wanted.shape, strict=True):
            if mine != other and trace is not None:
                trace.facts.assume(mine, other, f"{what} of `{name}` have the sizes of their values", user_span())
    return tensors


def _resolve(trace: Any, type: TensorType) -> TensorType:
    return type if trace is None else type.with_shape(tuple(map(trace.resolve, type.shape)))
