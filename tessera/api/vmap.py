"""`vmap`: a function for one element as a function for a batch of them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.api.autodiff import jit_like, keep_transform
from tessera.api.jit import Jit
from tessera.diagnostics.codes import ArgumentError, AxisError, PytreeError, ShapeError
from tessera.diagnostics.error import user_span
from tessera.frontend.annotations import signature_of
from tessera.frontend.arguments import check_callables
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import as_tensor, is_tensor
from tessera.frontend.pytree import Tree, as_tuple, flatten, leaf_paths, unflatten
from tessera.frontend.subprograms import Subprogram, finish_subprogram, open_trace, type_of
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.graph.tape_analysis import tape_effects
from tessera.ir.graph.transforms.batch import batch_tape
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.policy import SILENT
from tessera.types.shape import is_refuted


def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, axis_name: str | None = None
) -> Callable[..., Any]:
    """A function that computes `function` for each element of a batch, in one program.

    `in_axes` says where the batch is in each argument: an axis, None for one that all elements share, or a tuple with
    one of these for each argument, which may be a tree in the form of the argument, or the beginning of that form.
    `out_axes` says where it goes in the result. Arguments by keyword have the batch first, and defaults are shared.
    With `axis_name` the batch is an axis that collectives in the function may be over (`tessera.dist.all_reduce`).

    >>> rows, weights = ts.array([[1.0, 2.0], [3.0, 4.0]]), ts.array([10.0, 1.0])
    >>> ts.vmap(lambda x, w: (x * w).sum(), in_axes=(0, None))(rows, weights)
    Tensor([2] f32, [12, 34])
    >>> ts.vmap(lambda x: x / ts.dist.all_reduce(x, "rows"), axis_name="rows")(rows)
    Tensor([2, 2] f32, [[0.25, 0.333333], [0.75, 0.666667]])
    """
    check_callables("vmap", function=function)
    if axis_name is not None and (not isinstance(axis_name, str) or not axis_name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`vmap` takes `axis_name` as a string, got {axis_name!r}", fix='write `axis_name="batch"`')
    in_axes, out_axes = _copy(in_axes), _copy(out_axes)
    # Annotations are those of one element, and hold where the function for one is called.
    single = function if isinstance(function, Jit) else Jit(function)
    static = {parameter.name for parameter in single.parameters if parameter.static}

    def batch(*args: Any, **kwargs: Any) -> Any:
        given, named = _drop_defaults(single, args, kwargs)
        axes = [
            None if at < len(single.parameters) and single.parameters[at].static else axis
            for at, axis in enumerate(_argument_axes(in_axes, len(given)))
        ]
        trace = open_trace()
        batched: list[Any] = []
        sizes: list[tuple[str, Dim]] = []
        entered: list[Any] = []
        pairs = [
            *zip(given, axes, strict=True),
            *((value, None if name in static else 0) for name, value in named.items()),
        ]
        for number, (argument, where) in enumerate(pairs):
            leaves, tree = flatten(argument)
            paths = leaf_paths(tree, f"argument {number}")
            made = [
                _enter(trace, leaf, axis, path, batched, sizes)
                for leaf, axis, path in zip(leaves, _leaf_axes("in_axes", where, tree), paths, strict=True)
            ]
            entered.append(unflatten(tree, made))
        size = _common_size(sizes)
        positional, rest = entered[: len(given)], dict(zip(named, entered[len(given) :], strict=True))
        if axis_name is not None:
            trace.axes = {**trace.axes, axis_name: size}
        effects = set(trace.parent.effects if trace.parent is not None else ())
        program = finish_subprogram(trace, lambda: single(*positional, **rest), batched, ())
        return _run(program, len(batched), size, out_axes, axis_name or "", effects)

    key = ("vmap", repr(in_axes), repr(out_axes), axis_name)
    return keep_transform(function, key, lambda: jit_like(function, batch, "vmap", _batch_parameters(single, in_axes)))


_DEFAULT = enum.Enum("_DEFAULT", "SHARED").SHARED
"""What the function for a batch has for each default of the function for one: an argument that nobody passed."""


def _drop_defaults(single: Jit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that were passed: by position up to the first that was not, by keyword behind it."""
    first = next((at for at, value in enumerate(args) if value is _DEFAULT), len(args))
    names = [parameter.name for parameter in single.parameters[first:]]
    named = {**dict(zip(names, args[first:], strict=False)), **kwargs}
    return list(args[:first]), {name: value for name, value in named.items() if value is not _DEFAULT}


def _batch_parameters(single: Jit, in_axes: Any) -> list[inspect.Parameter]:
    """The parameters of the function for a batch: annotations of tensors with symbolic dims have an axis more.

    So one program serves all sizes of the batch, as it does all others. What else is annotated has the sizes of the
    call, as what is not annotated has.
    """
    signature, made = signature_of(single), list[inspect.Parameter]()
    annotations = [one.annotation for one in single.parameters]
    used = {name for one in annotations if isinstance(one, TensorAnnotation) for name in one.symbols}
    batch = Dim.symbol(next(name for at in itertools.count() if (name := f"batch{at or ''}") not in used))
    for at, (parameter, declared) in enumerate(zip(signature.parameters.values(), single.parameters, strict=True)):
        if declared.static:
            made.append(parameter.replace(annotation=parameter.empty))
        elif parameter.default is not parameter.empty:
            made.append(parameter.replace(annotation=parameter.empty, default=_DEFAULT))
        else:
            axis: Any = 0 if parameter.kind is parameter.KEYWORD_ONLY else in_axes
            if isinstance(axis, tuple | list):
                axis = (*as_tuple(in_axes), *[()] * len(annotations))[at]
            annotation = _batch_annotation(declared.annotation, axis, batch)
            made.append(parameter.replace(annotation=parameter.empty if annotation is None else annotation))
    return made


def _batch_annotation(annotation: Any, axis: Any, batch: Dim) -> TensorAnnotation | None:
    """An annotation of one element as that of a batch of them; None where it says nothing of the batch."""
    if not isinstance(annotation, TensorAnnotation) or annotation.head != "Tensor":
        return None
    if axis is None:
        return annotation
    rank, has_sizes = annotation.rank + 1, bool(annotation.dims) and all(dim.is_static for dim in annotation.dims)
    if not isinstance(axis, int) or has_sizes or not -rank <= axis < rank:
        return None
    dims = list(annotation.dims)
    dims.insert(axis % rank, batch)
    return dataclasses.replace(annotation, dims=tuple(dims), sharding=None)


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


def _copy(axes: Any) -> Any:
    """Axes as they are now: their lists are the caller's, who may change them."""
    leaves, tree = flatten(axes)
    return unflatten(tree, leaves)


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


def _run(program: Subprogram, count: int, size: Dim, out_axes: Any, name: str, effects: set[str]) -> Any:
    """The results of a program for the whole batch; `effects` are those that the trace around it had before."""
    flags = [at < count for at in range(len(program.tape.inputs))]
    tape, found = batch_tape(program.tape, flags, size, name)
    outer: Any = dispatch.tracing()
    if name and "collective" in outer.effects - effects:
        # Those over the batch are none any more.
        outer.effects = effects | set(tape_effects(tape)) | (outer.effects - {"collective"})
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
