"""`vmap`: a function for one element as a function for a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.api.autodiff import jit_like
from tessera.api.jit import Jit
from tessera.diagnostics.codes import ArgumentError, AxisError, PytreeError, ShapeError
from tessera.diagnostics.error import user_span
from tessera.frontend.arguments import check_callables
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import as_tensor, is_tensor
from tessera.frontend.pytree import Tree, as_tuple, flatten, leaf_paths, unflatten
from tessera.frontend.subprograms import Subprogram, finish_subprogram, open_trace, type_of
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.graph.transforms.batch import batch_tape
from tessera.types.dim import Dim
from tessera.types.policy import SILENT
from tessera.types.shape import is_refuted


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that computes `function` for each element of a batch, in one program.

    `in_axes` says where the batch is in each argument: an axis, None for one that all elements share, or a tuple with
    one of these for each argument, which may be a tree in the form of the argument, or the beginning of that form.
    `out_axes` says where it goes in the result. Arguments by keyword have the batch first.

    >>> rows, weights = ts.array([[1.0, 2.0], [3.0, 4.0]]), ts.array([10.0, 1.0])
    >>> ts.vmap(lambda x, w: (x * w).sum(), in_axes=(0, None))(rows, weights)
    Tensor([2] f32, [12, 34])
    """
    check_callables("vmap", function=function)
    # Annotations are those of one element, and hold where the function for one is called.
    single = function if isinstance(function, Jit) else Jit(function)

    def batch(*args: Any, **kwargs: Any) -> Any:
        axes = _argument_axes(in_axes, len(args))
        given: list[Any] = []
        trace = open_trace()
        batched: list[Any] = []
        sizes: list[tuple[str, Dim]] = []
        pairs = [*zip(args, axes, strict=True), *((value, 0) for value in kwargs.values())]
        for number, (argument, where) in enumerate(pairs):
            leaves, tree = flatten(argument)
            paths = leaf_paths(tree, f"argument {number}")
            made = [
                _enter(trace, leaf, axis, path, batched, sizes)
                for leaf, axis, path in zip(leaves, _leaf_axes("in_axes", where, tree), paths, strict=True)
            ]
            given.append(unflatten(tree, made))
        size = _common_size(sizes)
        positional, named = given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))
        program = finish_subprogram(trace, lambda: single(*positional, **named), batched, ())
        return _run(program, len(batched), size, out_axes)

    return jit_like(function, batch, "vmap", is_annotated=False)


def _argument_axes(in_axes: Any, count: int) -> Sequence[Any]:
    if in_axes is None or isinstance(in_axes, int):
        return [in_axes] * count
    if not isinstance(in_axes, tuple | list):
        raise ArgumentError(
            f"`vmap` takes `in_axes` as an int, None, or a tuple with one for each argument, got {in_axes!r}"
        )
    found = as_tuple(in_axes)
    if len(found) != count:
        raise ArgumentError(
            f"`vmap` has `in_axes` for {len(found)} arguments, and is called with {count}",
            fix="give one for each positional argument; None for one that the batch shares",
        )
    return found


def _leaf_axes(name: str, axes: Any, tree: Tree) -> list[int | None]:
    """An axis for each leaf of a tree, from a tree of axes that may end before it does."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * tree.leaf_count
    leaves, form = flatten(axes)
    own: Any = form.data if form.type is dict else range(len(form.children))
    wanted: Any = tree.data if tree.type is dict else range(len(tree.children))
    if tree.is_leaf or form.type is not tree.type or set(own) != set(wanted):
        raise PytreeError(f"`vmap` takes `{name}` in the form of the value, {tree}, or its beginning, got {axes!r}")
    parts: dict[Any, Any] = {}
    for key, child in zip(own, form.children, strict=True):
        parts[key] = unflatten(child, leaves[: child.leaf_count])
        leaves = leaves[child.leaf_count :]
    found: list[int | None] = []
    for key, child in zip(wanted, tree.children, strict=True):
        found += _leaf_axes(name, parts[key], child)
    return found


def _enter(trace: Any, leaf: Any, axis: int | None, path: str, batched: list[Any], sizes: list[tuple[str, Dim]]) -> Any:
    """An argument as the function for one element sees it: without the batch."""
    if axis is None:
        return leaf
    leaf = adopt_operand(leaf)
    if is_traced_number(leaf) or not is_tensor(leaf):
        raise AxisError(
            f"`vmap` takes the batch along axis {axis} of {path}, which is {leaf!r}, and has no axes",
            fix="pass a tensor, or None as its `in_axes`",
        )
    tensor = as_tensor(leaf)
    type = type_of(tensor)
    if not -type.rank <= axis < type.rank:
        raise AxisError(f"`vmap` takes the batch along axis {axis} of {path}, which is {type}")
    tensor = public.moveaxis(tensor, axis, 0) if axis % type.rank else tensor
    sizes.append((path, type.shape[axis]))
    batched.append(tensor)
    kept = [dim for at, dim in enumerate(type.shape) if at != axis % type.rank]
    return trace.add_input(path, type.with_shape(kept), getattr(tensor, "policy", SILENT))


def _common_size(sizes: Sequence[tuple[str, Dim]]) -> Dim:
    if not sizes:
        raise ArgumentError("`vmap` needs at least one argument with a batch", fix="give it an axis in `in_axes`")
    path, first = sizes[0]
    for other, size in sizes[1:]:
        if is_refuted(first, size):
            raise ShapeError(f"`vmap` needs batches of one size, got {first} of {path} and {size} of {other}")
        trace: Any = dispatch.tracing()
        if trace.resolve(first) != trace.resolve(size):
            what = f"`vmap` needs batches of one size, those of {path} and {other}"
            trace.facts.assume(trace.resolve(first), trace.resolve(size), what, user_span())
    return first


def _run(program: Subprogram, count: int, size: Dim, out_axes: Any) -> Any:
    """The results of a program for the whole batch."""
    flags = [at < count for at in range(len(program.tape.inputs))]
    tape, found = batch_tape(program.tape, flags, size)
    outer: Any = dispatch.tracing()
    results = outer.replay(tape, program.operands)
    axes = _leaf_axes("out_axes", out_axes, program.result)
    outputs: list[Any] = []
    for result, is_batched, axis in zip(results, found, axes, strict=True):
        if axis is None:
            if is_batched:
                raise ArgumentError("`vmap` has `out_axes` None for a result that differs in the batch")
            outputs.append(result)
            continue
        rank = len(result.shape) if is_batched else len(result.shape) + 1
        if not -rank <= axis < rank:
            raise AxisError(f"`vmap` puts the batch at axis {axis} of a result with {rank} axes")
        whole = result if is_batched else public.broadcast_to(result, (size, *result.shape))
        outputs.append(public.moveaxis(whole, 0, axis) if axis % rank else whole)
    return program.rebuild(outputs)
