"""Tracing a function for one signature: stand-ins in, a tape and the form of the result out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import PytreeError, TracingError
from tessera.frontend.bind import Signature, arguments_of, input_types
from tessera.frontend.concrete import StandIn, is_concrete
from tessera.frontend.facts import Assumption, Facts
from tessera.frontend.shortcuts import Make, maker
from tessera.frontend.trace import Trace
from tessera.frontend.traced import TracedTensor
from tessera.frontend.tree import Tree, flatten, leaf_paths, unflatten
from tessera.ir.base import dispatch
from tessera.ir.base.tape import POLICY, Tape
from tessera.types.effect import Effects
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.types.constraint import Constraint


PROMISES = "__tessera_promises__"
"""Where a decorator leaves what it promises of a function: `tessera.*` attributes by name."""


@frozen
class Slot:
    """A leaf of a function's result: a number of the tape's outputs, or a constant that tracing gave."""

    output: int | None
    constant: Hashable = None


@frozen
class TracedFunction:
    """What came out of running a function on stand-ins.

    The first inputs of the tape are the tensor leaves of the call, the others are `lifted`: tensors that the function
    took from outside. `tree` and `slots` say how the tape's outputs become the function's result. `proved` is what
    needs no check, as texts, each with the constraints that prove it.
    """

    tape: Tape
    lifted: tuple[Any, ...]
    tree: Tree
    slots: tuple[Slot, ...]
    effects: Effects
    assumptions: tuple[Assumption, ...]
    make: Make
    proved: tuple[Any, ...] = ()

    def result(self, outputs: Sequence[Any]) -> Any:
        """The function's result from what the compiled program gave."""
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
    """Run `function` on stand-ins for the arguments that `signature` describes, their sizes as `constraints` say.

    Sizes of what it returns are held to `returns`, its return annotation.
    `trace` is a new one to fill, for those who look at it even where the function is wrong.
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
        leaves.append(trace.add_input(path, type, leaf.policy, given=not leaf.is_declared))
    bound = inspect.BoundArguments(parameters, arguments_of(signature.tree, leaves, unflatten))  # pyright: ignore[reportArgumentType]
    if constraints:
        from tessera.frontend.constraints import impose  # noqa: PLC0415 - few functions have any

        impose(trace, constraints, signature)
    with dispatch.recording(trace):
        value = function(*bound.args, **bound.kwargs)
        if returns is not None:
            from tessera.frontend.returned_sizes import check_sizes  # noqa: PLC0415 - few functions declare any

            check_sizes(trace, function, signature, returns, value)
        # Promises of the function as a whole; those of what it calls were kept while it was traced.
        trace.tape.promises.update(getattr(function, PROMISES, {}))
        if signature.policy:
            trace.tape.promises[POLICY] = signature.policy.entries
        if value is None:
            _check_used(trace, function)
        return finished(trace, value)


def _check_used(trace: Trace, function: Callable[..., Any]) -> None:
    """Raise where a function that returns nothing does nothing else either, and has computed for nothing."""
    records = trace.tape.records
    if records and not trace.effects:
        raise TracingError(
            f"`{getattr(function, '__name__', 'the function')}` returns nothing: what it computes is lost",
            span=records[-1].span,
            fix="end it with `return` and what it computes",
        )


def finished(trace: Trace, value: Any) -> TracedFunction:
    """The traced function that returned `value`."""
    leaves, tree = flatten(value, as_written=True)
    slots: list[Slot] = []
    outputs: list[Any] = []
    for leaf, path in zip(leaves, leaf_paths(tree, "result"), strict=True):
        if isinstance(leaf, StandIn) or is_concrete(leaf):
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
    lifted = tuple(item.tensor for item in trace.lifted.values())
    assumptions = tuple(trace.facts.assumptions)
    effects, proved = Effects(tape.promises.get("tessera.effects", ())), tuple(trace.facts.proved)
    return TracedFunction(tape, lifted, tree, tuple(slots), effects, assumptions, maker(tree), proved)


__all__ = ["Slot", "TracedFunction", "TracedTensor", "finished", "trace_function"]
