"""Control flow on tensors: cond, switch, while_loop, fori_loop and scan, each a traced body inside one op."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.diagnostics.codes import ArgumentError, DTypeError, PytreeError, ShapeError
from tessera.diagnostics.error import user_span
from tessera.frontend.arguments import check_callables, check_int
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import as_tensor, constant, dtype_of, is_tensor
from tessera.frontend.pytree import Tree, as_tuple, flatten, is_sequence, unflatten
from tessera.frontend.shape_inference import check_sizes
from tessera.frontend.size import Size, dim_of
from tessera.frontend.subprograms import type_of
from tessera.frontend.trace import Trace, TracedTensor
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import Tape
from tessera.types.dim import Dim
from tessera.types.dtype import bool_, i64
from tessera.types.policy import SILENT
from tessera.types.shape import TensorType, is_refuted


@dataclass(slots=True)
class Body:
    """A traced function inside a trace: its trace, what it returned, and the form of that."""

    trace: Trace
    results: list[Any]
    tree: Tree


def _adopt(value: Any) -> Any:
    """A tree with tensors of other libraries as ours."""
    leaves, tree = flatten(value, keep_order=True)
    found = [adopt_operand(leaf) for leaf in leaves]
    return value if all(map(operator.is_, found, leaves)) else unflatten(tree, found)


def as_traced(tensor: Any) -> Any:
    """A tensor inside of a trace as one of that: an array of NumPy's takes no symbolic sizes."""
    trace: Any = dispatch.tracing()
    return tensor if isinstance(tensor, TracedTensor) else trace.lift_operand(tensor)


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`then(*operands)` where the scalar `predicate` is true, else `otherwise(*operands)`; only one of them runs.

    Both must return the same form, shapes and dtypes.

    >>> @ts.jit
    ... def halve_if_large(x: ts.Tensor["N", ts.f32]):
    ...     return ts.cond(x.max() > 10.0, lambda: x / 2.0, lambda: x)
    >>> halve_if_large(ts.array([20.0, 2.0]))
    Tensor([2] f32, [10, 1])
    """
    check_callables("cond", then=then, otherwise=otherwise)
    predicate, operands = adopt_operand(predicate), _adopt(operands)
    is_known = isinstance(predicate, bool) and not is_traced_number(predicate)
    if is_known or dispatch.tracing() is None:
        chosen = then if (predicate if is_known else bool(_scalar(predicate, "cond"))) else otherwise
        _check_arity(chosen, len(operands))
        return chosen(*operands)
    chosen = _scalar(predicate, "cond")
    tensors, tree = _tensors_of(operands)
    branches = [_trace_body(function, tensors, tree) for function in (then, otherwise)]
    _check_alike("the two branches of `cond`", branches[0], branches[1])
    lifted = share_lifted(branches)
    then_tape, otherwise_tape = (finish_body(branch) for branch in branches)
    attributes = {"then": then_tape, "otherwise": otherwise_tape}
    made = as_tuple(apply("cond", (chosen, *tensors, *lifted), attributes))
    return unflatten(branches[0].tree, made)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`: the scalar `index` chooses one of any number of functions, and only that one runs.

    An index below 0 chooses the first, and one beyond the end the last. All must return the same form, shapes and
    dtypes. Branches are found by halving their number, and each is traced once.

    >>> @ts.jit
    ... def act(kind: ts.Tensor[ts.i64], x: ts.Tensor["N", ts.f32]):
    ...     return ts.switch(kind, [ts.ops.relu, ts.ops.tanh, lambda x: -x], x)
    >>> act(2, ts.array([1.0, -3.0]))
    Tensor([2] f32, [-1, 3])
    """
    if not is_sequence(branches) or not branches:
        raise ArgumentError(f"`switch` takes a list of at least one function, got {branches!r}")
    check_callables("switch", **{f"branches[{at}]": one for at, one in enumerate(branches)})
    index, listed = adopt_operand(index), list(branches)
    if is_traced_number(index) or not isinstance(index, int) or isinstance(index, bool):
        index = as_tensor(index, i64)
        if tuple(index.shape) != () or not dtype_of(index).is_integer:
            raise ShapeError(f"`switch` needs a scalar of integers to choose, got {type_of(index)}")
        if dispatch.tracing() is not None:
            return _choose(index, listed, 0, operands)
        index = int(index)
    return cond(True, listed[min(max(index, 0), len(listed) - 1)], listed[0], *operands)


def _choose(index: Any, branches: Sequence[Callable[..., Any]], first: int, operands: Sequence[Any]) -> Any:
    """The branch of an index that counts from `first`, by a tree of choices between halves."""
    if len(branches) == 1:
        return cond(True, branches[0], branches[0], *operands)
    half = len(branches) // 2
    sides = ((branches[:half], first), (branches[half:], first + half))

    def enter(side: tuple[Sequence[Callable[..., Any]], int]) -> Callable[..., Any]:
        return lambda *own: _choose(index, *side, own)

    return cond(public.lt(index, first + half), *map(enter, sides), *operands)


def while_loop(
    condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, *, max_trips: Any = None
) -> Any:
    """`body` applied to the state while `condition` of it holds; the state keeps its form, shapes and dtypes.

    `max_trips`, an int or a size, is how often the body runs at most: the loop stops then, whatever the condition
    says, and `condition(result)` tells whether it would have gone on. Reverse mode needs it, and keeps what so many
    trips need, of which those that do not run change nothing.

    Under `jit` the loop is native code, and Ctrl-C ends it between two rounds. On a GPU it is seen when the loop is
    done: where that may be never, count rounds in the state, and let the condition ask for fewer than some number.

    >>> @ts.jit
    ... def double_until(x: ts.Tensor[ts.f32]):
    ...     return ts.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, x)
    >>> double_until(3.0)
    Tensor([] f32, 192)
    """
    check_callables("while_loop", condition=condition, body=body)
    state, limit = _adopt(state), _trip_limit(max_trips)
    trace: Any = dispatch.tracing()
    if trace is None:
        trips = 0
        for function in (condition, body):
            _check_arity(function, 1)
        while (not limit or trips < (limit[0].value or 0)) and bool(condition(state)):
            state, trips = body(state), trips + 1
        return state
    check_sizes(trace, "while_loop", limit, user_span())
    tensors, tree = _tensors_of(state)
    test = _trace_body(condition, tensors, Tree(tuple, None, (tree,)))
    if len(test.results) != 1:
        raise PytreeError("the condition of `while_loop` must return one scalar")
    test.results = [_scalar(test.results[0], "while_loop")]
    step = _trace_body(body, tensors, Tree(tuple, None, (tree,)))
    _check_state("while_loop", tensors, tree, step)
    lifted = share_lifted([test, step])
    attributes = {"condition": finish_body(test), "body": finish_body(step), "carried": len(tensors)}
    return unflatten(tree, as_tuple(apply("while", (*tensors, *lifted), {**attributes, "max_trips": limit})))


def _trip_limit(max_trips: Any) -> tuple[Dim, ...]:
    """The most trips that a loop makes, where somebody says so."""
    if max_trips is None:
        return ()
    most = dim_of(max_trips) if isinstance(max_trips, Size) else Dim.of(check_int("while_loop", "max_trips", max_trips))
    if (most.value or 0) < 0:
        raise ArgumentError(f"`while_loop` takes `max_trips` from 0, got {most}")
    return (most,)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """`state = body(i, state)` for `i` from `lower` up to and without `upper`; bounds are ints, sizes or scalars.

    >>> ts.fori_loop(0, 4, lambda i, total: total + i, 0)
    6
    """
    check_callables("fori_loop", body=body)
    lower, upper, state = adopt_operand(lower), adopt_operand(upper), _adopt(state)
    if dispatch.tracing() is None:
        ends = [_end(name, bound) for name, bound in (("lower", lower), ("upper", upper))]
        _check_arity(body, 2)
        for index in range(*ends):
            state = body(index, state)
        return state
    bounds = [public.astype(as_tensor(bound, i64), i64) for bound in (lower, upper)]
    tensors, tree = _tensors_of(state)
    step = _trace_body(body, [bounds[0], *tensors], Tree(tuple, None, (Tree(), tree)))
    _check_state("fori_loop", tensors, tree, step)
    lifted = share_lifted([step])
    attributes = {"body": finish_body(step), "carried": len(tensors)}
    return unflatten(tree, as_tuple(apply("fori", (*bounds, *tensors, *lifted), attributes)))


_SCAN_RULE = "the body of `scan` must return (state, y)"
_SCAN_FIX = "return a pair, as in `lambda state, x: (state + x, state)`; `y` may be None"


def scan(
    body: Callable[[Any, Any], Any],
    state: Any,
    xs: Any = None,
    *,
    length: Any = None,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`state, y = body(state, x)` for each `x` along the first axis of `xs`; gives the last state and all `y` stacked.

    Without `xs`, `length` says how often. `reverse` walks from the end, and `y` keeps the order of `xs`. The body is
    compiled once, whatever the length; with `unroll` it is there so many times, for as many trips at a time.

    >>> @ts.jit
    ... def running(x: ts.Tensor["N", ts.f32]):
    ...     return ts.scan(lambda total, v: (total + v, total + v), ts.ops.zeros(()), x)
    >>> running(ts.array([1.0, 2.0, 3.0]))[1]
    Tensor([3] f32, [1, 3, 6])
    """
    check_callables("scan", body=body)
    xs = _adopt(xs)
    count, state = _scan_length(xs, length), _adopt(state)
    if check_int("scan", "unroll", unroll) < 1:
        raise ArgumentError(f"`scan` takes `unroll` from 1, got {unroll}", fix="write `unroll=4`")
    trace: Any = dispatch.tracing()
    if trace is None and count.value == 0:
        from tessera.api.jit import Jit  # noqa: PLC0415 - nothing runs, and only a trace knows the form of the result

        def run(state: Any, xs: Any) -> tuple[Any, Any]:
            return scan(body, state, xs, length=0)

        return Jit(run)(state, xs)
    if trace is None:
        return _scan_eagerly(body, state, xs, count, reverse)
    check_sizes(trace, "scan", (count,), user_span())
    if unroll > 1:
        return _scan_unrolled(body, state, xs, count, reverse, unroll)
    tensors, state_tree = _tensors_of(state)
    given, xs_tree = flatten(xs)
    rows = [TensorType(type_of(x).shape[1:], dtype_of(x)) for x in given]
    step = _trace_body(body, tensors, Tree(tuple, None, (state_tree, xs_tree)), rows)
    if step.tree.type is not tuple or len(step.tree.children) != 2:
        raise PytreeError(_SCAN_RULE, fix=_SCAN_FIX)
    new_tree, y_tree = step.tree.children
    head = Body(step.trace, step.results[: new_tree.leaf_count], new_tree)
    _check_state("scan", tensors, state_tree, head)
    step.results = [*head.results, *(_in(step.trace, y) for y in step.results[new_tree.leaf_count :])]
    lifted = share_lifted([step])
    counts = {"carried": len(tensors), "scanned": len(given), "length": (count,)}
    attributes = {"body": finish_body(step), **counts, "reverse": reverse}
    made = as_tuple(apply("scan", (*tensors, *given, *lifted), attributes))
    return unflatten(state_tree, made[: len(tensors)]), unflatten(y_tree, made[len(tensors) :])


def _scan_unrolled(
    body: Callable[[Any, Any], Any], state: Any, xs: Any, count: Dim, reverse: bool, unroll: int
) -> tuple[Any, Any]:
    """A loop over groups of rows, and one over those that are left at the end."""
    leaves, tree = flatten(xs)
    leaves = [as_traced(leaf) for leaf in leaves]
    groups = count // unroll
    order = [*range(unroll)][:: -1 if reverse else 1]

    def step(state: Any, group: Any) -> tuple[Any, Any]:
        rows, made, form = flatten(group)[0], dict[int, list[Any]](), Tree()
        for at in order:
            returned = as_tuple(body(state, unflatten(tree, [row[at] for row in rows])))
            if len(returned) != 2:
                raise PytreeError(_SCAN_RULE, fix=_SCAN_FIX)
            state, y = returned
            made[at], form = flatten(y)
        columns = zip(*(made[at] for at in range(unroll)), strict=True)
        return state, unflatten(form, [public.stack([as_tensor(one) for one in column]) for column in columns])

    def over_groups(state: Any) -> tuple[Any, Any]:
        heads = [public.reshape(x[: groups * unroll], (groups, unroll, *x.shape[1:])) for x in leaves]
        state, ys = scan(step, state, unflatten(tree, heads), length=groups, reverse=reverse)
        stacked, form = flatten(ys)
        return state, unflatten(form, [public.reshape(y, (groups * unroll, *y.shape[2:])) for y in stacked])

    def over_tail(state: Any) -> tuple[Any, Any]:
        tail = unflatten(tree, [x[groups * unroll :] for x in leaves])
        return scan(body, state, tail, length=count - groups * unroll, reverse=reverse)

    if groups.value == 0 or (count - groups * unroll).value == 0:
        return over_tail(state) if groups.value == 0 else over_groups(state)
    if reverse:
        state, last = over_tail(state)
        state, first = over_groups(state)
    else:
        state, first = over_groups(state)
        state, last = over_tail(state)
    (heads, form), (tails, _) = flatten(first), flatten(last)
    joined = [public.concat(list(pair), axis=0) for pair in zip(heads, tails, strict=True)]
    return state, unflatten(form, [public.broadcast_to(one, (count, *one.shape[1:])) for one in joined])


def _scan_length(xs: Any, length: Any) -> Dim:
    sizes: list[Dim] = []
    for x in flatten(xs)[0]:
        dtype_of(x)
        if not x.shape:
            raise ShapeError("`scan` runs over the first axis of `xs`, and a scalar has none")
        sizes.append(dim_of(x.shape[0]))
    if length is not None:
        sizes.append(dim_of(length))
    if not sizes:
        raise ShapeError("`scan` needs `xs` or `length` to know how often to run")
    if (sizes[-1].value or 0) < 0:
        raise ShapeError(f"`scan` takes `length` as 0 or more, got {sizes[-1]}")
    for size in sizes[1:]:
        if is_refuted(size, sizes[0]):
            raise ShapeError(f"`scan` needs `xs` of one length, got {sizes[0]} and {size}")
    # What is neither equal nor different for all sizes, the op's shape rule proves or guards.
    return sizes[-1]


def _end(name: str, bound: Any) -> int:
    """A bound of a loop that runs eagerly: an int, or a scalar tensor of one."""
    if not is_tensor(bound):
        return check_int("fori_loop", name, bound)
    if tuple(bound.shape) != () or not dtype_of(bound).is_integer:
        raise ShapeError(f"`fori_loop` takes `{name}` as an int or a scalar of integers, got {type_of(bound)}")
    return int(bound)


def _scan_eagerly(body: Callable[[Any, Any], Any], state: Any, xs: Any, count: Dim, reverse: bool) -> tuple[Any, Any]:
    leaves, tree = flatten(xs)
    rows: list[list[Any]] = []
    form: Tree | None = None
    steps = range(count.value or 0)
    _check_arity(body, 2)
    for index in reversed(steps) if reverse else steps:
        made = as_tuple(body(state, unflatten(tree, [leaf[index] for leaf in leaves])))
        if len(made) != 2:
            raise PytreeError(_SCAN_RULE, fix=_SCAN_FIX)
        state, y = made
        row, form = flatten(y)
        rows.append(row)
    assert form is not None, "a scan of length 0 is traced"
    ordered = list(reversed(rows)) if reverse else rows
    return state, unflatten(
        form, [public.stack([as_tensor(item) for item in column]) for column in zip(*ordered, strict=True)]
    )


def _trace_body(
    function: Callable[..., Any], tensors: Sequence[Any], tree: Tree, more: Sequence[TensorType] = ()
) -> Body:
    """A function run on tracers for these tensors, and for tensors of further types, inside the active trace."""
    outer = dispatch.tracing()
    assert isinstance(outer, Trace), "bodies are traced inside a trace"
    trace = Trace(parent=outer)
    types = [*(type_of(tensor) for tensor in tensors), *more]
    policies = [*(getattr(tensor, "policy", SILENT) for tensor in tensors), *(SILENT for _ in more)]
    tracers = [trace.add_input(f"operand_{at}", *item) for at, item in enumerate(zip(types, policies, strict=True))]
    arguments = unflatten(tree, tracers)
    _check_arity(function, len(arguments))
    with dispatch.record_on(trace):
        value = function(*arguments)
        leaves, form = flatten(value)
        return Body(trace, [_in(trace, leaf) for leaf in leaves], form)


def _check_arity(function: Callable[..., Any], count: int) -> None:
    """Raise ArgumentError (T0202) for a body that cannot be called with so many arguments."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # one of Python's own does not say what it takes
    try:
        signature.bind(*[None] * count)
    except TypeError:
        name, given = getattr(function, "__name__", "body"), f"{count} argument{'s' * (count != 1)}"
        raise ArgumentError(
            f"`{name}{signature}` is called with {given} here: the operands, or the state and what comes with it",
            fix=f"give it {count} parameter{'s' * (count != 1)}",
        ) from None


def _tensors_of(value: Any) -> tuple[list[Any], Tree]:
    """The leaves of a value as tensors, and its form."""
    leaves, tree = flatten(value)
    return [as_tensor(leaf) for leaf in leaves], tree


def _in(trace: Trace, leaf: Any) -> Any:
    """A result as a tensor of the trace."""
    with dispatch.record_on(trace):
        if isinstance(leaf, bool | int | float):
            return constant(leaf, dtype_of(as_tensor(leaf)))
        return as_tensor(leaf)


def _scalar(value: Any, op: str) -> Any:
    """A bool scalar."""
    tensor = as_tensor(value, bool_)
    if tensor.shape != () or dtype_of(tensor) is not bool_:
        help = "reduce with `any` or `all`" if dtype_of(tensor) is bool_ else "compare it, as in `x > 0`"
        raise ShapeError(f"`{op}` needs a scalar of bool to decide, got {type_of(tensor)}", fix=help)
    return tensor


def _check_alike(what: str, first: Body, second: Body) -> None:
    if first.tree != second.tree:
        raise PytreeError(f"{what} return different forms: {first.tree} and {second.tree}")
    for left, right in zip(first.results, second.results, strict=True):
        _check_same_type(what, type_of(left), type_of(right), first.trace)


def _check_state(op: str, tensors: Sequence[Any], tree: Tree, step: Body) -> None:
    if step.tree != tree:
        raise PytreeError(f"the body of `{op}` must return a state of the form it takes: {tree}, not {step.tree}")
    for at, (before, after) in enumerate(zip(tensors, step.results, strict=True)):
        _check_same_type(
            f"part {at} of the state of `{op}`, before and after its body,", type_of(before), type_of(after), step.trace
        )


def _check_same_type(what: str, left: TensorType, right: TensorType, trace: Trace) -> None:
    if left.dtype is not right.dtype:
        raise DTypeError(
            f"{what} must have one dtype, got {left} and {right}", fix=f"cast one, as in `x.cast({left.dtype})`"
        )
    alike = left.rank == right.rank and all(
        trace.resolve(a) == trace.resolve(b) for a, b in zip(left.shape, right.shape, strict=True)
    )
    if not alike:
        raise ShapeError(f"{what} must have one shape, got {left} and {right}")


def share_lifted(bodies: Sequence[Body]) -> list[TracedTensor]:
    """Give all bodies the same further inputs, in one order: every outer tensor that one of them uses."""
    for body in bodies:
        for result in body.results:
            body.trace.value_of(result)
    shared: dict[int, TracedTensor] = {}
    for body in bodies:
        for item in body.trace.lifted.values():
            shared.setdefault(item.tensor.value, item.tensor)
    for body in bodies:
        tape = body.trace.tape
        own = {item.tensor.value: item.value for item in body.trace.lifted.values()}
        count = len(tape.inputs) - len(own)
        for outer in shared.values():
            if outer.value not in own:
                own[outer.value] = tape.new_value(outer.type)
        tape.inputs[count:] = [own[value] for value in shared]
        tape.names[count:] = [f"outer_{value}" for value in shared]
    return list(shared.values())


def finish_body(body: Body) -> Tape:
    """The tape of a body, whose effects are those of the trace around it too."""
    tape = body.trace.finish(body.results)
    parent = body.trace.parent
    if parent is not None:
        parent.effects |= body.trace.effects
    return tape
