"""Functions on the elements of arrays: `map`, and `associative_scan` and `reduce` by a combiner of two elements.

A combiner is traced once, for one pair of elements, and is checked to be associative: elements are combined in blocks,
and blocks of blocks, in an order that depends on their number alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tessera.api.autodiff import keep_transform
from tessera.api.control import as_traced, scan
from tessera.api.jit import Jit
from tessera.api.vmap import vmap
from tessera.diagnostics.codes import ArgumentError, DTypeError, PytreeError, ShapeError
from tessera.diagnostics.error import RecompileWarning, user_span
from tessera.frontend.arguments import check_bool, check_callables, check_int
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import as_tensor, axes_of, axis_of, cast, dtype_of
from tessera.frontend.pytree import Tree, flatten, is_sequence, unflatten
from tessera.frontend.subprograms import Subprogram, finish_subprogram, open_trace, type_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.transforms.associativity import ASSOCIATIVE, find_counterexample, known_op
from tessera.ir.graph.transforms.combine import Combiner, reduce_tape, scan_tape
from tessera.ir.graph.transforms.tape_builder import has_effects
from tessera.types.dim import Dim, product
from tessera.types.shape import TensorType, is_refuted


def map(function: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`function` of each row of `xs`, one after the other, stacked.

    Rows are along the first axis of all tensors in `xs`. With `batch_size` so many are computed at a time, as `vmap`
    does, and it takes the memory of so many.

    >>> ts.map(lambda row: row.sum(), ts.array([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([2] f32, [3, 7])
    """
    check_callables("map", function=function)
    if batch_size is None:
        _common_length("map", [type_of(leaf).shape for leaf in _leaves_of("map", xs)[0]])
        return scan(lambda state, x: (state, function(x)), (), xs)[1]
    if check_int("map", "batch_size", batch_size) < 1:
        raise ArgumentError(f"`map` takes `batch_size` from 1, got {batch_size}")
    if dispatch.tracing() is None:

        def run(xs: Any) -> Any:
            return map(function, xs, batch_size=batch_size)

        return _compile(function, ("map", batch_size), run)(xs)
    leaves, tree = _leaves_of("map", xs)
    leaves = [as_traced(leaf) for leaf in leaves]
    size = _common_length("map", [type_of(leaf).shape for leaf in leaves])
    whole = size // batch_size * batch_size
    batched = vmap(function)
    parts = list[Any]()
    if whole.value != 0:
        heads = [public.reshape(leaf[:whole], (size // batch_size, batch_size, *leaf.shape[1:])) for leaf in leaves]
        made, form = flatten(scan(lambda state, x: (state, batched(x)), (), unflatten(tree, heads))[1])
        parts.append(unflatten(form, [public.reshape(one, (whole, *one.shape[2:])) for one in made]))
    if size != whole or whole.value == 0:
        parts.append(batched(unflatten(tree, [leaf[whole:] for leaf in leaves])))
    made, form = flatten(parts[0])
    if len(parts) > 1:
        made = [public.concat(pair, axis=0) for pair in zip(made, flatten(parts[1])[0], strict=True)]
    return unflatten(form, [public.broadcast_to(one, (size, *one.shape[1:])) for one in made])


def associative_scan(
    function: Callable[[Any, Any], Any],
    xs: Any,
    *,
    reverse: bool = False,
    axis: int = 0,
    associative: bool | None = None,
) -> Any:
    """The combination of each element along `axis` with all before it, in logarithmically many steps.

    `function(left, right)` combines two elements, each in the form of `xs` without the axis; it must be associative.
    That is known of `+`, `*`, `maximum` and their like, and any other combiner is tried on random numbers: one that is
    not associative is an error, with numbers that show it, unless `associative=True` declares that all numbers that it
    will meet are combined alike. `reverse` goes from the last element to the first: element `i` is the combination
    `function(function(x[n-1], ...), x[i])`. Sums, products, maxima and minima are cumulative ops.

    The order depends on the number of elements alone: blocks of 16 are gone through at the same time, and so are the
    blocks of their results. Where the number of elements is symbolic, results of blocks are gone through in order.

    >>> ts.associative_scan(lambda a, b: a * b, ts.array([1.0, 2.0, 3.0]))
    Tensor([3] f32, [1, 2, 6])
    """
    check_callables("associative_scan", function=function)
    reverse = check_bool("associative_scan", "reverse", reverse)
    if dispatch.tracing() is None:

        def run(xs: Any) -> Any:
            return associative_scan(function, xs, reverse=reverse, axis=axis, associative=associative)

        return _compile(function, ("associative_scan", reverse, axis, associative), run)(xs)
    leaves, tree = _leaves_of("associative_scan", xs)
    axes = [axis_of("associative_scan", axis, type_of(leaf).rank) for leaf in leaves]
    rows = [public.moveaxis(leaf, at, 0) for leaf, at in zip(leaves, axes, strict=True)]
    _common_length("associative_scan", [type_of(row).shape for row in rows])
    types = [type_of(row) for row in rows]
    elements = [type.with_shape(type.shape[1:]) for type in types]
    program = _trace_combiner("associative_scan", function, elements, tree, associative)
    kinds = _known_kinds(program, elements)
    if kinds is not None:
        made = [
            cast(apply("cumulative", (leaf,), {"kind": kind, "axis": at, "reverse": reverse}), dtype_of(leaf))
            for leaf, kind, at in zip(leaves, kinds, axes, strict=True)
        ]
        return unflatten(tree, made)
    given_rows = [public.flip(row, 0) if reverse else row for row in rows]
    trace: Any = dispatch.tracing()
    tape = scan_tape(Combiner(program.tape, len(leaves)), types)
    found = trace.replay(tape, [*given_rows, *program.operands])
    ordered = [public.flip(one, 0) if reverse else one for one in found]
    return unflatten(tree, [public.moveaxis(one, 0, at) for one, at in zip(ordered, axes, strict=True)])


def reduce(
    x: Any, init: Any, combiner: Callable[[Any, Any], Any], axes: Any = None, *, associative: bool | None = None
) -> Any:
    """The combination of `init` and all elements of `x` along `axes`, or of all.

    `combiner(left, right)` combines two elements in the form of `x`, which may be a tree of tensors of one shape, and
    must be associative: see `associative_scan`. Elements are scalars where `init` is made of scalars, as in
    `jax.lax.reduce`; where `init` has the shape of the result, they are what `x` has behind `axes`. `init` is combined
    with once, from the left, and is the result where there are no elements.

    >>> ts.reduce(ts.array([[1.0, 5.0], [4.0, 2.0]]), 0.0, lambda a, b: ts.ops.maximum(a, b), axes=1)
    Tensor([2] f32, [5, 4])
    """
    check_callables("reduce", combiner=combiner)
    axes = tuple(axes) if is_sequence(axes) else axes
    if dispatch.tracing() is None:

        def run(x: Any, init: Any) -> Any:
            return reduce(x, init, combiner, axes, associative=associative)

        return _compile(combiner, ("reduce", str(axes), associative), run)(x, init)
    leaves, tree = _leaves_of("reduce", x)
    starts = _starts(leaves, init, tree)
    shape = type_of(leaves[0]).shape
    over = axes_of("reduce", axes, len(shape))
    rest = tuple(dim for at, dim in enumerate(shape) if at not in over)
    has_rows = any(type_of(start).rank for start in starts)
    elements = [TensorType(rest if has_rows else (), dtype_of(leaf)) for leaf in leaves]
    for start, leaf, element in zip(starts, leaves, elements, strict=True):
        own = type_of(start)
        if own.rank != element.rank or any(is_refuted(*pair) for pair in zip(own.shape, element.shape, strict=True)):
            raise ShapeError(
                f"`reduce` of {type_of(leaf)} takes `init` as a scalar, or of the shape of the result, got {own}"
            )
    program = _trace_combiner("reduce", combiner, elements, tree, associative)
    wide = [public.broadcast_to(start, rest) for start in starts]
    fused = _reduce_known(program, leaves, wide, over)
    if fused is not None:
        return unflatten(tree, fused)
    made = Combiner(program.tape, len(leaves))
    inner: tuple[Dim, ...] = rest if has_rows else (product(rest),)
    order = (*over, *(at for at in range(len(shape)) if at not in over))
    count = product(shape[at] for at in over)
    rows = [public.reshape(public.transpose(leaf, order), (count, *inner)) for leaf in leaves]
    tape = reduce_tape(made if has_rows else made.batch(inner[0]), [type_of(row) for row in rows])
    trace: Any = dispatch.tracing()
    found = trace.replay(tape, [*rows, *(public.reshape(one, inner) for one in wide), *program.operands])
    return unflatten(tree, [public.reshape(one, rest) for one in found])


class _Wrapper(Jit):
    """A call that is jitted as a whole, of which the caller cannot annotate arguments."""

    def _warn_of_many(self) -> None:
        text = self._history.warning(self.name)
        if text:
            advice = "call it in a function of your own under `jit`, with annotated arguments, to serve all sizes"
            span = user_span()
            where = (span.file, span.line) if span is not None else ("<unknown>", 1)
            warnings.warn_explicit(f"{text.splitlines()[0]}\n  = help: {advice}", RecompileWarning, *where)


def _compile(function: Callable[..., Any], key: tuple[Any, ...], run: Callable[..., Any]) -> Jit:
    """What runs outside of a trace, jitted once for a function."""

    def make() -> Jit:
        run.__name__ = f"{key[0]}_{getattr(function, '__name__', type(function).__name__)}"
        return _Wrapper(run)

    return keep_transform(function, key, make)


def _leaves_of(name: str, xs: Any) -> tuple[list[Any], Tree]:
    leaves, tree = flatten(xs)
    if not leaves:
        raise PytreeError(f"`{name}` takes a tensor, or a tree of tensors, got {xs!r}")
    return [as_tensor(adopt_operand(leaf)) for leaf in leaves], tree


def _common_length(name: str, shapes: Sequence[Sequence[Dim]]) -> Dim:
    """The number of rows of all; what is neither equal nor different for all sizes is checked in each call."""
    trace: Any = dispatch.tracing()
    if not all(shapes):
        raise ShapeError(f"`{name}` goes along an axis, and a scalar has none")
    dims = [shape[0] for shape in shapes]
    size, *others = dims if dispatch.tracing() is None else [trace.resolve(dim) for dim in dims]
    for other in others:
        if is_refuted(size, other):
            raise ShapeError(f"`{name}` needs tensors of one length along the axis, got {size} and {other}")
        if size != other:
            trace.facts.assume(size, other, f"`{name}` needs tensors of one length along the axis", user_span())
    return size


def _starts(leaves: Sequence[Any], init: Any, tree: Tree) -> list[Any]:
    """The first elements, checked to be in the form of the arrays."""
    given, form = flatten(init)
    if form != tree:
        raise PytreeError(f"`reduce` takes `init` in the form of `x`, {tree}, got {form}")
    first, found = type_of(leaves[0]), list[Any]()
    for leaf, start in zip(leaves, given, strict=True):
        type, tensor = type_of(leaf), as_tensor(adopt_operand(start), dtype_of(leaf))
        if type.rank != first.rank or any(is_refuted(*pair) for pair in zip(type.shape, first.shape, strict=True)):
            raise ShapeError(f"`reduce` needs tensors of one shape, got {first} and {type}")
        if dtype_of(tensor) is not type.dtype:
            raise DTypeError(
                f"`reduce` of {type.dtype} takes `init` of that dtype, got {dtype_of(tensor)}",
                fix=f"cast it, as in `x.cast({type.dtype})`",
            )
        found.append(tensor)
    return found


def _trace_combiner(
    name: str, function: Callable[..., Any], elements: Sequence[TensorType], tree: Tree, associative: bool | None
) -> Subprogram:
    """A combiner as a program of two elements, checked to give one of them, and to be associative."""
    trace = open_trace()
    pair = [
        unflatten(tree, [trace.add_input(f"{side}_{at}", type) for at, type in enumerate(elements)])
        for side in ("left", "right")
    ]
    program = finish_subprogram(trace, lambda: function(*pair), (), ())
    label = getattr(function, "__name__", type(function).__name__)
    if program.result != tree:
        raise PytreeError(f"the combiner of `{name}` must return an element, {tree}, not {program.result}")
    for output, wanted in zip(program.tape.outputs, elements, strict=True):
        found = program.tape.types[output]
        if found.dtype is not wanted.dtype:
            raise DTypeError(
                f"the combiner of `{name}` takes elements of {wanted}, and `{label}` gives {found}",
                fix=f"cast it, as in `x.cast({wanted.dtype})`",
            )
        shapes = [tuple(trace.resolve(dim) for dim in one.shape) for one in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise ShapeError(f"the combiner of `{name}` takes elements of {wanted}, and `{label}` gives {found}")
    if any(has_effects(record) for record in program.tape.records):
        raise ArgumentError(f"`{name}` runs its combiner on any pairs of elements, and `{label}` has an effect")
    _check_associative(name, label, program, len(elements), associative)
    return program


def _check_associative(name: str, label: str, program: Subprogram, count: int, associative: bool | None) -> None:
    advice = "use `tessera.scan`, which goes from the first element to the last"
    if associative is not None:
        if not check_bool(name, "associative", associative):
            raise ArgumentError(
                f"`{name}` needs a combiner that is associative, and `{label}` is said not to be", fix=advice
            )
        return
    declare = "declare it with `associative=True`"
    try:
        found = find_counterexample(program.tape, count)
    except Exception as error:
        raise ArgumentError(
            f"`{name}` needs a combiner that is associative, and `{label}` could not be tried: {error}", fix=declare
        ) from error
    if found is not None:
        raise ArgumentError(
            f"`{name}` needs a combiner that is associative, and `{label}` is not: {found}",
            fix=f"{advice}; or, if it never meets such numbers, {declare}",
        )


def _known_kinds(program: Subprogram, elements: Sequence[TensorType]) -> list[str] | None:
    """The kinds of cumulative op that a combiner is, value by value; None where it is none."""
    found: list[str] = []
    for at, element in enumerate(elements):
        kind = ASSOCIATIVE.get(known_op(program.tape, at, len(elements)) or "", "")
        if kind not in ("sum", "prod", "max", "min") or element.dtype.is_bool:
            return None
        found.append(kind)
    return found


def _reduce_known(
    program: Subprogram, leaves: Sequence[Any], starts: Sequence[Any], axes: tuple[int, ...]
) -> list[Any] | None:
    """The results of a combiner that is the step of a reduction op; None where it is not."""
    ops = [known_op(program.tape, at, len(leaves)) for at in range(len(leaves))]
    if not all(op is not None and ASSOCIATIVE[op] for op in ops):
        return None
    made: list[Any] = []
    for leaf, start, op in zip(leaves, starts, ops, strict=True):
        assert op is not None
        kind = ASSOCIATIVE[op]
        more = {"identity": True} if kind in ("max", "min") else {}
        total = cast(apply(kind, (leaf,), {"axes": axes, "keepdims": False, **more}), dtype_of(leaf))
        made.append(apply(op, (start, total)))
    return made
