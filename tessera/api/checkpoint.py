"""`checkpoint`: a function of which derivatives keep what a policy says, and rematerialize the rest.

The function is traced to a body, which is one op of the program around it; the rules of that op decide what is kept
(`ir/graph/derivatives/control.py`), so that it composes with every other transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from tessera.api.autodiff import jit_like
from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.error import TesseraError, find_nearest
from tessera.frontend.arguments import check_callables
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions.operands import as_tensor, dtype_of, is_tensor
from tessera.frontend.pytree import as_tuple, flatten, leaf_paths, unflatten
from tessera.frontend.subprograms import finish_subprogram, open_trace, type_of
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.policy import SILENT


class SavePolicy:
    """What derivatives of a checkpointed function keep; made by `checkpoint_policies`."""

    def __init__(self, name: str, *names: str) -> None:
        for one in names:
            if not isinstance(one, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(f"`{name}` takes names of values as strings, got {one!r}")
        self.entries = (name, *names)

    def __repr__(self) -> str:
        name, *names = self.entries
        return f"checkpoint_policies.{name}" + (f"({', '.join(map(repr, names))})" if names else "")


class _Policies:
    """The policies that `checkpoint` knows, by the names that JAX has for them.

    A function from an op's name, the types of its operands and its attributes to a bool is a policy too.

    >>> import tessera as ts
    >>> ts.checkpoint_policies.save_only_these_names("hidden")
    checkpoint_policies.save_only_these_names('hidden')
    """

    nothing_saveable = SavePolicy("nothing_saveable")
    everything_saveable = SavePolicy("everything_saveable")
    dots_saveable = checkpoint_dots = SavePolicy("dots_saveable")
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = SavePolicy(
        "dots_with_no_batch_dims_saveable"
    )

    @staticmethod
    def save_only_these_names(*names: str) -> SavePolicy:
        """Keep the values with these names (`checkpoint_name`)."""
        return SavePolicy("save_only_these_names", *names)

    @staticmethod
    def save_any_names_but_these(*names: str) -> SavePolicy:
        """Keep the values that have a name, but for these."""
        return SavePolicy("save_any_names_but_these", *names)

    def __dir__(self) -> list[str]:
        return [name for name in vars(type(self)) if not name.startswith("_")]

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> Any:
            near = find_nearest(name, dir(self))
            advice = f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(dir(self))}"
            if "offload" in name:
                advice = "; `jit(memory=bytes, offload=True)` offloads what does not fit"
            raise AttributeError(f"there is no policy `{name}`{advice}")


checkpoint_policies = _Policies()
"""What `checkpoint` may keep: `nothing_saveable`, `dots_saveable`, `save_only_these_names("a", "b")`, and so on."""


@overload
def checkpoint(function: Callable[..., Any], /, *, policy: Any = None) -> Callable[..., Any]: ...


@overload
def checkpoint(
    function: None = None, /, *, policy: Any = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def checkpoint(function: Any = None, /, *, policy: Any = None) -> Any:
    """The same function, whose derivatives keep what `policy` says and rematerialize the rest from its arguments.

    By default nothing is kept. Values and gradients have the bits that they have without it; a gradient needs less
    memory and more time. `policy` is one of `checkpoint_policies`, or a function `policy(op, *types, **attributes)`
    that says of each op whether its results are kept; the attribute `op` of collectives is `reduction` there. `remat`
    is the same.

    Raises: ArgumentError (T0202) for what is no policy.

    >>> block = ts.checkpoint(lambda x: ts.ops.sin(ts.ops.sin(x)))
    >>> ts.grad(lambda x: block(x).sum())(ts.array([0.0]))
    Tensor([1] f32, [1])
    """
    if function is None:
        return partial(checkpoint, policy=policy)
    check_callables("checkpoint", function=function)
    if policy is not None and not isinstance(policy, SavePolicy) and not callable(policy):
        raise ArgumentError(
            f"`checkpoint` takes `policy` as one of `checkpoint_policies` or a function, got {policy!r}",
            fix="write `policy=tessera.checkpoint_policies.dots_saveable`, or leave it out to keep nothing",
        )
    for by_names in (_Policies.save_only_these_names, _Policies.save_any_names_but_these):
        if policy is by_names:
            name = by_names.__name__
            raise ArgumentError(f"`checkpoint` is given `{name}` without names", fix=f'call it: `{name}("a")`')
    if isinstance(policy, type):
        raise ArgumentError(
            f"`checkpoint` takes `policy` as a function, got the class `{policy.__name__}`", fix="pass what it makes"
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        return _record(function, policy, args, kwargs)

    return jit_like(function, run, "checkpoint")


remat = checkpoint


def _record(function: Callable[..., Any], policy: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Trace a function to a body, and record it as one op of the trace around."""
    trace = open_trace()
    leaves, tree = flatten((args, kwargs))
    operands: list[Any] = []
    given: list[Any] = []
    for leaf, path in zip(leaves, leaf_paths(tree, "arguments"), strict=True):
        leaf = adopt_operand(leaf)
        if not is_tensor(leaf):
            given.append(leaf)
            continue
        tensor = as_tensor(leaf)
        given.append(trace.add_input(path, type_of(tensor), getattr(tensor, "policy", SILENT)))
        operands.append(tensor)
    positional, named = unflatten(tree, given)
    program = finish_subprogram(trace, lambda: function(*positional, **named), operands, ())
    tape, entries = program.tape, ("nothing_saveable",)
    if isinstance(policy, SavePolicy):
        entries = policy.entries
    elif policy is not None:
        tape, entries = _name_saved(tape, policy)
    results = as_tuple(apply("checkpoint", program.operands, {"body": tape, "policy": entries}))
    return program.rebuild(results)


def _name_saved(tape: Tape, policy: Callable[..., Any]) -> tuple[Tape, tuple[str, ...]]:
    """The tape with a name on each value that a policy of the user's keeps, and the policy that keeps those."""
    made = replace(tape, records=[], types=list(tape.types))
    names: list[str] = []
    values: dict[int, int] = {}
    for record in tape.records:
        operands = tuple(values.get(value, value) for value in record.operands)
        made.records.append(replace(record, operands=operands))
        types = [tape.types[value] for value in record.operands]
        if not _is_saved(policy, record, types):
            continue
        for result in record.results:
            values[result] = made.new_value(tape.types[result])
            names.append(f"saved_{result}")
            label = {"label": names[-1]}
            given = ("tgraph.checkpoint_name", (result,), label, (values[result],), record.span)
            made.records.append(Record(*given, device=record.device, region=record.region))
    made.outputs = [values.get(value, value) for value in tape.outputs]
    return made, ("save_only_these_names", *names)


def _is_saved(policy: Callable[..., Any], record: Record, types: Sequence[Any]) -> bool:
    """What a policy of the user's says of an op; the attribute `op` of collectives is `reduction` to it."""
    op, name = REGISTRY[record.op].short_name, getattr(policy, "__name__", type(policy).__name__)
    attributes = {"reduction" if key == "op" else key: value for key, value in record.attributes.items()}
    try:
        return bool(policy(op, *types, **attributes))
    except TesseraError:
        raise
    except Exception as error:
        shown = ", ".join(["op", *(f"type_{at}" for at in range(len(types))), *(f"{key}=" for key in attributes)])
        raise ArgumentError(
            f"the policy `{name}` of `checkpoint` raises {type(error).__name__} for the op `{op}`: {error}; "
            f"it is called with ({shown})",
            fix="let it be a function `policy(op, *types, **attributes)` that returns a bool",
        ) from error


def checkpoint_name(value: Any, name: str) -> Any:
    """The same tensors, under a name that policies of `checkpoint` know.

    >>> @ts.checkpoint(policy=ts.checkpoint_policies.save_only_these_names("hidden"))
    ... def layer(x, w):
    ...     return ts.ops.tanh(ts.checkpoint_name(x @ w, "hidden"))
    >>> ts.grad(lambda x: layer(x, ts.array([[1.0]])).sum())(ts.array([[0.0]]))
    Tensor([1, 1] f32, [[1]])
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`checkpoint_name` takes a name as a string, got {name!r}")
    leaves, tree = flatten(value)
    for leaf in leaves:
        dtype_of(leaf)  # what is no tensor is refused here
    return unflatten(tree, [apply("checkpoint_name", (as_tensor(leaf),), {"label": name}) for leaf in leaves])
