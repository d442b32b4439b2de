"""Derivatives of functions: grad, value_and_grad, vjp, jvp, linearize, and the Jacobians and products made of them.

Each traces the function to a program of its own, transforms that program (`ir/graph/transforms`) and records what comes
out in the trace around it, so that transforms nest in any order. Outside of a trace the result is jitted.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from types import FunctionType
from typing import Any

from tessera.api.captured_variables import MISSING, OPEN, watch_definition
from tessera.api.control import scan
from tessera.api.custom import CustomFunction
from tessera.api.function import Transform
from tessera.api.jit import Jit
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, PolicyError, PytreeError
from tessera.frontend.annotations import signature_of
from tessera.frontend.arguments import check_bool, check_callables
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.frontend.pytree import Tree, as_tuple, flatten, is_sequence, leaf_paths, leaves_like, unflatten
from tessera.frontend.size import dim_of
from tessera.frontend.subprograms import Subprogram, check_like, trace_subprogram, type_of
from tessera.frontend.trace import Trace, TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import Tape
from tessera.ir.graph.transforms.linearize import linearize as linearize_tape
from tessera.ir.graph.transforms.linearize import run_forward
from tessera.ir.graph.transforms.reverse import partition, transpose_tape, vjp_tape
from tessera.ir.graph.transforms.tape_builder import DerivativeBuilder, TapeBuilder
from tessera.types.dtype import FORMATS
from tessera.types.policy import SILENT, Policy

_EMPTY: Any = inspect.Parameter.empty

_ASSIGNED = ("__module__", "__qualname__", "__doc__", "__annotations__")
"""What a transform takes over; type parameters it has none, and a callable object may have them of any type."""


def _trace() -> Trace:
    outer = dispatch.tracing()
    assert isinstance(outer, Trace), "transforms run inside a trace"
    return outer


def jit_like(
    function: Callable[..., Any],
    made: Callable[..., Any],
    name: str,
    parameters: Sequence[inspect.Parameter] | None = None,
) -> Jit:
    """`made` as a jitted function with the parameters and the settings of `function`, whose results are others.

    `parameters` are in place of those of `function` where its arguments have other types.
    """
    functools.update_wrapper(made, function, _ASSIGNED, updated=())
    made.__name__ = f"{name}_{getattr(function, '__name__', type(function).__name__)}"
    signature: Any = signature_of(function).replace(return_annotation=_EMPTY)
    if parameters is not None:
        signature = signature.replace(parameters=parameters)
    made.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return function.with_function(made) if isinstance(function, Jit) else Jit(made)


def _positions(name: str, argnums: Any, count: int) -> tuple[int, ...]:
    """Argument numbers as a tuple of positions among `count`."""
    found: list[int] = []
    for number in as_tuple(argnums):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentError(f"`{name}` takes `argnums` as an int or a tuple of ints, got {argnums!r}")
        if not -count <= number < count:
            raise ArgumentError(
                f"`{name}` is to differentiate by argument {number}, and is called with {count} positional ones",
                fix="pass that argument by position, or change `argnums`",
            )
        found.append(number % count)
    if len(set(found)) != len(found):
        raise ArgumentError(f"`{name}` takes each argument once, got argnums={argnums!r}")
    return tuple(found)


def _split_leaves(trees: Sequence[Tree], leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Leaves put back into the trees of the arguments they belong to."""
    left = iter(leaves)
    return tuple(unflatten(tree, list(itertools.islice(left, tree.leaf_count))) for tree in trees)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives what `function` gives, a scalar, and its gradient by the arguments `argnums`.

    With `has_aux` the function returns a pair, the scalar and anything else, which is returned as it is. A gradient has
    the form, shapes and dtypes of its argument.

    >>> def loss(w: ts.Tensor["N", ts.f32], x: ts.Tensor["N", ts.f32]):
    ...     return (w * x).sum() ** 2.0
    >>> ts.value_and_grad(loss)(ts.array([1.0, 2.0]), ts.array([3.0, 4.0]))
    (Tensor([] f32, 121), Tensor([2] f32, [66, 88]))
    """
    return _value_and_grad("value_and_grad", function, argnums, has_aux, lambda value, gradients: (value, gradients))


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `function`, which gives a scalar, by the arguments `argnums`.

    With `has_aux` it gives the pair of the gradient and what `function` returns beside the scalar.

    >>> ts.grad(lambda x: (x * x * x).sum())(ts.array([1.0, 2.0]))
    Tensor([2] f32, [3, 12])
    """

    def choose(value: Any, gradients: Any) -> Any:
        return (gradients, value[1]) if has_aux else gradients

    return _value_and_grad("grad", function, argnums, has_aux, choose)


def _value_and_grad(
    name: str, function: Callable[..., Any], argnums: Any, has_aux: bool, choose: Callable[[Any, Any], Any]
) -> Jit:
    key = (name, argnums, has_aux)
    # A loop that writes `grad(f)(x)` asks each time; a bool, which equals a number, is no number of an argument.
    is_tuple = argnums.__class__ is tuple and all(one.__class__ is int for one in argnums)
    is_checked = has_aux.__class__ is bool and (is_tuple or argnums.__class__ is int)
    if is_checked and (found := find_transform(function, key)) is not None:
        return found
    check_callables(name, function=function)
    check_bool(name, "has_aux", has_aux)
    argnums = tuple(argnums) if is_sequence(argnums) else argnums

    def differentiate(*args: Any, **kwargs: Any) -> Any:
        about = _positions(name, argnums, len(args))
        program = trace_subprogram(name, function, args, kwargs, about)
        _check_scalar(name, program, has_aux)
        active = sum(tree.leaf_count for tree in program.trees)
        linearized = linearize_tape(program.tape, range(active))
        seeds: list[int | None] = [None] * len(program.tape.outputs)
        builder = TapeBuilder(linearized.tape)
        out = builder.type_of(linearized.tape.outputs[0])
        policy, cut = _loss_policy(linearized.tape), len(seeds)
        seeds[0] = builder.emit("full", shape=(), value=policy.loss_scale or 1.0, dtype=out.dtype)
        backward = vjp_tape(linearized, seeds)
        if policy.loss_scale is not None:
            _remove_scale(backward, cut, policy)
        results = _trace().replay(backward, program.operands)
        gradients = _split_leaves(program.trees, _shard_alike(results[cut:], program.operands))
        return choose(program.rebuild(results[:cut]), gradients if isinstance(argnums, tuple | list) else gradients[0])

    key = key if is_checked else (name, repr(argnums), has_aux)
    return keep_transform(function, key, lambda: jit_like(function, differentiate, name))


def _shard_alike(gradients: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Gradients sharded as the values that they are by, which a program for whole tensors has from its caller."""
    found: list[Any] = []
    for gradient, value in zip(gradients, values, strict=False):  # behind those are captured tensors
        sharding = value.recorder.shardings.get(value.value) if isinstance(value, TracedTensor) else None
        found.append(gradient if sharding is None else apply("shard", (gradient,), {"sharding": sharding}))
    return found


def _loss_policy(tape: Tape) -> Policy:
    """The policy of a loss, which may have its cotangents multiplied while they are stored."""
    maker = next((record for record in tape.records if tape.outputs[0] in record.results), None)
    policy, dtype = SILENT if maker is None else maker.policy, tape.types[tape.outputs[0]].dtype
    if policy.loss_scale is not None and dtype.name in FORMATS and policy.loss_scale > FORMATS[dtype.name].largest:
        raise PolicyError(
            f"`loss_scale({policy.loss_scale:g})` is beyond the largest {dtype}, {FORMATS[dtype.name].largest:g}, "
            "which is the dtype of the loss",
            span=None if maker is None else maker.span,
            fix="take a smaller one, or compute the loss in f32",
        )
    return policy


def _remove_scale(tape: Tape, first: int, policy: Policy) -> None:
    """Divide the outputs from number `first` on, which are gradients, by the loss scale of a policy."""
    assert policy.loss_scale is not None
    builder = DerivativeBuilder(tape)
    builder.policy = policy
    tape.outputs[first:] = [builder.divide(value, policy.loss_scale) for value in tape.outputs[first:]]


def _check_scalar(name: str, program: Subprogram, has_aux: bool) -> None:
    """Raises unless the first result is a scalar of floats, alone or in a pair."""
    tree = program.result
    if has_aux and (tree.type is not tuple or len(tree.children) != 2):
        raise PytreeError(f"`{name}` with `has_aux` needs a function that returns a pair, (value, aux), got {tree}")
    first = tree.children[0] if has_aux else tree
    if first.leaf_count != 1 or first.children:
        raise DifferentiationError(
            f"`{name}` needs a function that returns one scalar, and this returns {first}",
            fix="return the loss alone, or a pair of the loss and the rest with `has_aux=True`",
        )
    type = program.tape.types[program.tape.outputs[0]]
    if type.shape or not type.dtype.is_float:
        what = "not of floats" if not type.dtype.is_float else "no scalar"
        cast = "cast it before it is reduced"
        raise DifferentiationError(
            f"`{name}` needs a function that returns a scalar of floats, and this returns {type}, which is {what}",
            span=_maker(program.tape),
            fix=cast
            if not type.shape
            else "reduce it, as in `.sum()` or `.mean()`, or use `tessera.jacrev` or `tessera.vjp`",
        )


def _maker(tape: Tape) -> Any:
    return next((record.span for record in tape.records if tape.outputs[0] in record.results), None)


# Products with Jacobians.


def _jit_of(run: Callable[..., Any], name: str, count: int, keywords: Sequence[str] = ()) -> Jit:
    """A function of so many arguments, jitted: with parameters of their own they go the fast path of a call."""
    prefix = "argument"
    while any(one.startswith(prefix) for one in keywords):
        prefix = f"_{prefix}"
    # What is no name of a parameter may be a key of `**` still.
    named = [one for one in keywords if one.isidentifier() and not iskeyword(one)]
    kinds = inspect.Parameter
    names = [(f"{prefix}_{at}", kinds.POSITIONAL_ONLY) for at in range(count)]
    names += [(one, kinds.KEYWORD_ONLY) for one in named]
    names += [] if len(named) == len(keywords) else [(f"{prefix}s", kinds.VAR_KEYWORD)]
    signature: Any = inspect.Signature([inspect.Parameter(*one) for one in names])
    run.__name__, run.__signature__ = name, signature  # pyright: ignore[reportFunctionMemberAccess]
    return Jit(run)


class Program:
    """A tape as a function of tensors: recorded in the trace around a call, or compiled and run."""

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape = tape
        if dispatch.tracing() is not None:
            # It may be called when the trace that it was made in is gone, whose Python functions it calls by number.
            tape.functions = _trace().root.tape.functions

        def run(*tensors: Any) -> tuple[Any, ...]:
            return tuple(_trace().replay(tape, tensors))

        self._run = _jit_of(run, name, len(tape.inputs))

    def __call__(self, *tensors: Any) -> Sequence[Any]:
        if dispatch.tracing() is not None:
            return _trace().replay(self.tape, tensors)
        return self._run(*tensors)


def _as_several(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"`{name}` takes the values and their tangents as tuples, one for each argument, got {given!r}",
            fix="write `(x,)` for one argument",
        )
    return as_tuple(given)


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], /, **keywords: Any
) -> tuple[Any, Any]:
    """What `function` gives for `primals`, and how that changes as they change by `tangents`: forward mode.

    Keywords are those of `function`, which are taken as constant.

    >>> ts.jvp(lambda x: x * x, (ts.array([3.0]),), (ts.array([1.0]),))
    (Tensor([1] f32, [9]), Tensor([1] f32, [6]))
    """
    check_callables("jvp", function=function)
    primals, tangents = _as_several("jvp", primals), _as_several("jvp", tangents)
    if dispatch.tracing() is None:
        eager = _eagerly("jvp", function, _run_traced(jvp), 2, keywords)
        return eager.jit(tuple(primals), tuple(tangents), **keywords)
    return _jvp_inside("jvp", function, primals, tangents, keywords)


def _jvp_inside(
    name: str, function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], keywords: Any
) -> tuple[Any, Any]:
    program = trace_subprogram(name, function, primals, keywords, range(len(primals)))
    active = sum(tree.leaf_count for tree in program.trees)
    types = [program.tape.types[value] for value in program.tape.inputs[:active]]
    form = Tree(tuple, None, program.trees)
    given = check_like(name, "tangents", tuple(tangents), form, types)
    count = len(program.tape.outputs)
    results = _trace().replay(linearize_tape(program.tape, range(active)).jvp_tape(), [*program.operands, *given])
    return program.rebuild(results[:count]), unflatten(program.result, results[count:])


class _Eager:
    """A transform of a function, called outside of a trace, as a jitted function of its other arguments.

    `parts` is what it knows besides tensors, by the number that it returns.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], run: Callable[..., Any], count: int, keywords: Sequence[str]
    ) -> None:
        self.parts = list[Any]()

        def transform(*args: Any, **kwargs: Any) -> Any:
            # The function is a captured variable here, so that what it captures is looked at in each call.
            return run(function, self.parts, *args, **kwargs)

        made = f"{name}_{getattr(function, '__name__', type(function).__name__)}"
        self.jit = _jit_of(transform, made, count, keywords)


EAGER = "__tessera_eager__"
"""The attribute of a function in which its transforms are kept, so that they go with it."""


_NOTHING: Mapping[Any, Any] = {}


def find_transform(function: Callable[..., Any], key: tuple[Any, ...]) -> Any:
    """What was made of a function under a key before; None where nothing was, or of what it was then."""
    found: Any = getattr(function, "__dict__", _NOTHING).get(EAGER, _NOTHING).get(key)
    if found is None:
        return None
    # A wrapper has the attributes of what it wraps, and is another function; code and defaults can be set anew.
    owner, made, watch = found
    return made if owner is function and watch(None, MISSING) is OPEN else None


def keep_transform(function: Callable[..., Any], key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What is made of a function: the one of that key from before, where there is one."""
    if not isinstance(function, FunctionType | Jit | CustomFunction):
        return make()  # an object of the user's, which is left as it is
    if (found := find_transform(function, key)) is not None:
        return found
    made, inner = make(), _innermost(function)
    watch: Any = {None: OPEN}.get if inner is None else watch_definition(inner)
    vars(function)[EAGER] = {**vars(function).get(EAGER, {}), key: (function, made, watch)}
    return made


def _innermost(function: Any) -> FunctionType | None:
    """The function of Python that others are made around, if it is one."""
    while isinstance(function, Jit | CustomFunction):
        function = function.function
    return function if isinstance(function, FunctionType) else None


def _eagerly(
    name: str, function: Callable[..., Any], run: Callable[..., Any], count: int, keywords: Iterable[str] = ()
) -> _Eager:
    """The transform of that name of a function, of so many arguments and these keywords."""
    names = tuple(sorted(keywords))
    return keep_transform(function, (name, count, names), lambda: _Eager(name, function, run, count, names))


def _run_traced(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A transform as its jitted form runs it."""

    def run(function: Callable[..., Any], parts: list[Any], /, *args: Any, **kwargs: Any) -> Any:
        return transform(function, *args, **kwargs)

    return run


class LinearFunction:
    """A linear function that a transform gives: `vjp`'s of cotangents, `linearize`'s of tangents."""

    def __init__(self, name: str, program: Program, held: Sequence[Any], given: Any, made: Sequence[Any]) -> None:
        """`held` are the residuals, `given` form and types of what it takes, `made` the forms of its results."""
        self._name, self._program, self._held = name, program, held
        (self._form, self._types), self._made = given, made

    def __call__(self, *values: Any) -> Any:
        if self._name == "vjp" and len(values) != 1:
            raise ArgumentError(f"what `vjp` gives takes one argument, the cotangents of the result, got {len(values)}")
        tree, what = (values[0], "cotangents") if self._name == "vjp" else (tuple(values), "tangents")
        leaves = check_like(self._name, what, tree, self._form, self._types)
        floats = [leaf for leaf, type in zip(leaves, self._types, strict=True) if type.dtype.is_float]
        results = self._program(*self._held, *floats)
        if self._name == "vjp":
            return _split_leaves(self._made, results)
        return _split_leaves(self._made, results)[0]


def vjp(
    function: Callable[..., Any], /, *primals: Any, **keywords: Any
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What `function` gives for `primals`, and the function from its cotangents to theirs: reverse mode.

    Keywords are those of `function`, which are taken as constant.

    >>> y, pull = ts.vjp(lambda x: x * x, ts.array([3.0, 4.0]))
    >>> pull(ts.array([1.0, 10.0]))
    (Tensor([2] f32, [6, 80]),)
    """
    return _linear("vjp", function, primals, keywords)


def linearize(function: Callable[..., Any], /, *primals: Any, **keywords: Any) -> tuple[Any, Callable[..., Any]]:
    """What `function` gives for `primals`, and the linear function from changes of them to changes of it.

    Keywords are those of `function`, which are taken as constant.

    >>> y, push = ts.linearize(lambda x: x * x, ts.array([3.0, 4.0]))
    >>> push(ts.array([1.0, 10.0]))
    Tensor([2] f32, [6, 80])
    """
    return _linear("linearize", function, primals, keywords)


def _linear(
    name: str, function: Callable[..., Any], primals: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Any, LinearFunction]:
    check_callables(name, function=function)
    if dispatch.tracing() is None:
        eager = _eagerly(name, function, functools.partial(_number_parts, name), len(primals), keywords)
        value, held, number = eager.jit(*primals, **keywords)
        program, (form, _), made = eager.parts[number]
        # Sizes are those of this call, where the program may serve others too.
        leaves = leaves_like(form, value if name == "vjp" else tuple(primals))
        types = [type_of(as_tensor(leaf)) for leaf in leaves or ()]
        return value, LinearFunction(name, program, held, (form, types), made)
    return _linear_inside(name, name, function, primals, keywords, range(len(primals)))


def _linear_inside(
    mode: str, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, about: Sequence[int]
) -> tuple[Any, LinearFunction]:
    """As `vjp` or `linearize`, which `mode` says, inside of a trace, by the arguments `about`; `name` was called."""
    value, held, program, given, made = _linear_parts(mode, name, function, args, kwargs, about)
    return value, LinearFunction(mode, program, held, given, made)


def _number_parts(
    name: str, function: Callable[..., Any], parts: list[Any], /, *primals: Any, **keywords: Any
) -> tuple[Any, Any, int]:
    value, held, *known = _linear_parts(name, name, function, primals, keywords, range(len(primals)))
    parts.append(known)
    return value, held, len(parts) - 1


def _linear_parts(
    mode: str, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, about: Sequence[int]
) -> tuple[Any, ...]:
    program = trace_subprogram(name, function, args, kwargs, about)
    active = sum(tree.leaf_count for tree in program.trees)
    types = [program.tape.types[value] for value in program.tape.inputs[:active]]
    out_types = [program.tape.types[value] for value in program.tape.outputs]
    count = len(out_types)
    floats = [at for at, type in enumerate(out_types) if type.dtype.is_float]
    part = partition(linearize_tape(program.tape, range(active)), floats, always=floats)
    results = _trace().replay(part.primal, program.operands)
    held = [*(program.operands[at] for at in part.reads), *results[count:]]
    value = program.rebuild(results[:count])
    held = [_trace().lift_operand(one) for one in held]
    if mode == "vjp":
        is_linear = [False] * len(held) + [True] * active
        given = (program.result, out_types)
        return value, held, Program(transpose_tape(part.linear, is_linear), mode), given, program.trees
    run_forward(part.linear)
    builder, tangents = TapeBuilder(part.linear), iter(part.linear.outputs)
    part.linear.outputs = [next(tangents) if type.dtype.is_float else builder.zeros(type) for type in out_types]
    given = (Tree(tuple, None, program.trees), types)
    return value, held, Program(part.linear, mode), given, (program.result,)


# Jacobians, row by row or column by column, and products with second derivatives.


def jacrev(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian of a function by arguments, in reverse mode: one pass for each element of the result.

    Its form is the form of the result, and in it that of the arguments; a leaf has the axes of both.

    >>> ts.jacrev(lambda x: x * x)(ts.array([1.0, 2.0]))
    Tensor([2, 2] f32, [[2, 0], [0, 4]])
    """
    return _jacobian("jacrev", function, argnums, "jacrev")


def jacfwd(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian of a function by arguments, in forward mode: one pass for each element of the arguments.

    >>> ts.jacfwd(lambda x: x * x)(ts.array([1.0, 2.0]))
    Tensor([2, 2] f32, [[2, 0], [0, 4]])
    """
    return _jacobian("jacfwd", function, argnums, "jacfwd")


def _jacobian(mode: str, function: Callable[..., Any], argnums: Any, name: str) -> Jit:
    """The Jacobian by `jacrev` or `jacfwd`, which `mode` says; `name` is what the user called."""
    check_callables(name, function=function)
    argnums = tuple(argnums) if is_sequence(argnums) else argnums

    def differentiate(*args: Any, **kwargs: Any) -> Any:
        about = _positions(name, argnums, len(args))
        is_tuple = isinstance(argnums, tuple | list)
        if mode == "jacrev":
            value, pull = _linear_inside("vjp", name, function, args, kwargs, about)
            return _reverse_rows(name, value, pull, is_tuple)
        value, push = _linear_inside("linearize", name, function, args, kwargs, about)
        return _forward_columns(value, push, [args[at] for at in about], is_tuple)

    return keep_transform(function, (mode, name, repr(argnums)), lambda: jit_like(function, differentiate, mode))


def _basis(leaf: Any) -> Any:
    """The unit tensors of a tensor's shape, along a first axis."""
    size = leaf.size
    square = apply("eye", (), {"shape": (dim_of(size), dim_of(size)), "dtype": dtype_of(leaf)})
    return public.reshape(square, (size, *leaf.shape))


def _rows_of(linear: Callable[..., Any], leaves: Sequence[Any], tree: Tree) -> tuple[list[list[Any]], Tree]:
    """For each leaf, the leaves of what a linear function gives for its unit tensors, stacked; and their form."""
    zeros = [public.zeros_like(leaf) for leaf in leaves]
    forms: list[Tree] = []
    found: list[list[Any]] = []
    for at, leaf in enumerate(leaves):

        def step(state: Any, unit: Any, at: int = at) -> tuple[Any, Any]:
            made, form = flatten(linear(unflatten(tree, [*zeros[:at], unit, *zeros[at + 1 :]])), keep_order=True)
            forms.append(form)
            return state, made

        found.append(scan(step, (), _basis(leaf))[1])
    return found, forms[0] if forms else tree


def _reverse_rows(name: str, value: Any, pull: LinearFunction, is_tuple: bool) -> Any:
    leaves, tree = flatten(value, keep_order=True)
    for leaf, path in zip(leaves, leaf_paths(tree, "result"), strict=True):
        if not dtype_of(leaf).is_float:
            raise DifferentiationError(
                f"`{name}` needs a function that returns floats, and `{path}` is {type_of(leaf)}",
                fix="return floats alone, or use `tessera.vjp`",
            )
    rows, form = _rows_of(pull, leaves, tree)
    made: list[Any] = []
    for leaf, cells in zip(leaves, rows, strict=True):
        whole = unflatten(form, [public.reshape(cell, (*leaf.shape, *cell.shape[1:])) for cell in cells])
        made.append(whole if is_tuple else whole[0])
    return unflatten(tree, made)


def _forward_columns(value: Any, push: LinearFunction, chosen: Sequence[Any], is_tuple: bool) -> Any:
    leaves, tree = flatten(tuple(chosen), keep_order=True)
    tensors = [as_tensor(leaf) for leaf in leaves]

    def push_all(changes: Sequence[Any]) -> Any:
        return push(*changes)

    columns, _ = _rows_of(push_all, tensors, tree)
    outs, form = flatten(value, keep_order=True)
    made: list[Any] = []
    for at, out in enumerate(outs):
        order = (*range(1, len(out.shape) + 1), 0)
        cells = [
            public.reshape(public.transpose(column[at], order), (*out.shape, *leaf.shape))
            for leaf, column in zip(tensors, columns, strict=True)
        ]
        whole = unflatten(tree, cells)
        made.append(whole if is_tuple else whole[0])
    return unflatten(form, made)


def hessian(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The second derivatives of a function: the forward Jacobian of its reverse one.

    A scalar has a square of them; each element of another result has its own, behind the axes of the result.

    >>> ts.hessian(lambda x: (x * x * x).sum())(ts.array([1.0, 2.0]))
    Tensor([2, 2] f32, [[6, 0], [0, 12]])
    """
    inner = _jacobian("jacrev", function, argnums, "hessian")
    return _jacobian("jacfwd", inner, argnums, "hessian")


def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of a function's second derivatives with tangents, without the matrix: forward over reverse.

    >>> ts.hvp(lambda x: (x * x * x).sum(), (ts.array([1.0, 2.0]),), (ts.array([1.0, 1.0]),))
    (Tensor([2] f32, [6, 12]),)
    """
    check_callables("hvp", function=function)
    primals, tangents = _as_several("hvp", primals), _as_several("hvp", tangents)
    every = tuple(range(len(primals)))
    if dispatch.tracing() is None:
        eager = _eagerly("hvp", function, _run_traced(hvp), 2)
        return eager.jit(tuple(primals), tuple(tangents))
    gradient = _value_and_grad("hvp", function, every, False, lambda value, gradients: gradients)
    return _jvp_inside("hvp", gradient, primals, tangents, {})[1]


def stop_gradient(value: Any) -> Any:
    """The same tensors, which derivatives take as constant.

    >>> ts.grad(lambda x: (x * ts.stop_gradient(x)).sum())(ts.array([3.0]))
    Tensor([1] f32, [3])
    """
    leaves, tree = flatten(value, keep_order=True)
    for leaf in leaves:
        if not isinstance(leaf, bool | int | float):
            dtype_of(leaf)  # what is neither a tensor nor a number is refused here
    return unflatten(tree, [apply("stop_gradient", (as_tensor(leaf),)) for leaf in leaves])


@Transform
def autodiff(function: Callable[..., Any]) -> Any:
    """Give a function its derivatives: `f.grad`, `f.value_and_grad`, `f.vjp` and `f.jvp` beside `f` itself.

    It stands under `jit`, which compiles all of them. `f.grad` and `f.value_and_grad` are by the first argument.

    >>> @ts.jit @ ts.autodiff
    ... def energy(x: ts.Tensor["N", ts.f32]):
    ...     return (x * x).sum()
    >>> energy(ts.array([1.0, 2.0])), energy.grad(ts.array([1.0, 2.0]))
    (Tensor([] f32, 5), Tensor([2] f32, [2, 4]))
    """
    if isinstance(function, Jit):
        raise DifferentiationError(
            f"`autodiff` is given `{function.name}`, which is jitted already",
            fix="write `@jit @autodiff`: `jit` compiles the function and its derivatives",
        )
    derivatives = {
        "grad": grad(function),
        "value_and_grad": value_and_grad(function),
        "vjp": functools.partial(vjp, function),
        "jvp": functools.partial(jvp, function),
    }
    vars(function).update(derivatives)
    return function
