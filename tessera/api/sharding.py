"""Programs for whole tensors on a mesh: `partition` makes one rank's program, `shard` says how a value is sharded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tessera.api.autodiff import jit_like
from tessera.api.jit import Jit
from tessera.api.mesh_layout import layout_shardings, sharding_of
from tessera.diagnostics.codes import ArgumentError, ShardingError
from tessera.diagnostics.error import format_count
from tessera.frontend.annotations import signature_of
from tessera.frontend.arguments import check_callables
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions.operands import as_tensor, dtype_of, is_tensor, rank_of
from tessera.frontend.pytree import Tree, as_tuple, flatten, leaf_paths, unflatten
from tessera.frontend.subprograms import finish_subprogram, open_trace, type_of
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops.custom import PARTITIONED
from tessera.runtime import tensor
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh, mesh_in_force
from tessera.types.annotation import TensorAnnotation
from tessera.types.policy import SILENT
from tessera.types.shape import TensorType
from tessera.types.sharding import DimAxes, Sharding, check_sharding


def shard(*given: Any, **named: Any) -> Any:
    """How a tensor is sharded: behind its annotation, or of a value in a program.

    `Tensor["B", "D", f32] @ shard("dp")` shards the first dim over mesh axis `dp`, as `@ shard(B="dp")` does by the
    name of the dim; `shard("dp", ("tp", "sp"))` has axes, several or None for each dim. `partition`, and `jit` of a
    function with such annotations, take it.

    `shard(y, ("dp", None))`, with a tensor first, is that tensor, which is sharded so where the program is partitioned:
    what brings it there is inserted. It computes nothing.

    Raises: ShardingError (T0307) where it is no sharding, or of other dims than the tensor has.

    >>> ts.Tensor["B", "D", ts.f32] @ ts.dist.shard(D="tp")
    Tensor["B", "D", f32] @ shard(None, "tp")
    """
    if not given or given[0] is None or isinstance(given[0], str) or _is_axes(given[0]):
        return DimAxes.make(given, named)
    if len(given) != 2 or named:
        raise ArgumentError(
            f"`shard` of a tensor takes its sharding as well, got {len(given)} arguments",
            fix='write `shard(x, ("dp", None))`',
        )
    x, sharding = given
    dtype_of(x)
    made = sharding_of("`x` of `shard`", sharding, rank_of(x))
    if dispatch.tracing() is None:
        return as_tensor(x)
    return apply("shard", (x,), {"sharding": str(made)})


def _is_axes(given: Any) -> bool:
    listed: Sequence[Any] = as_tuple(given) if isinstance(given, tuple | list) else ()
    return bool(listed) and all(isinstance(one, str) for one in listed)


# Programs for whole tensors.

_REPORT = "__tessera_partition__"
"""Where a partitioned function keeps what was done in its last trace."""


def partition(function: Callable[..., Any], in_shardings: Any = None, out_shardings: Any = None) -> Jit:
    """A function for whole tensors as one that each rank of a mesh calls with its parts.

    `function` is written as for one device, with the sizes of the whole; what is made of it takes this rank's part of
    each argument (`shard_of` cuts it) and gives this rank's part of each result. The compiler finds how every value in
    between is sharded and inserts the collectives that cost least; `partition_report` says what it did.

    `in_shardings` has a sharding for each positional argument: axes or None for each dim, as in `("dp", None)`,
    `{0: "dp"}`, a `Sharding` or its text; None for one that every rank has whole; for a tree of tensors a tree of
    these in its form, or a function of the path and shape of a part. Without it annotations say it, and the layout of
    the mesh. `out_shardings` are those of the result; what is None there follows from the arguments. Captured tensors
    and arguments by keyword are whole. Derivatives are taken inside: `partition(grad(loss), ...)`; the gradient by an
    argument that is cut is cut as it is. In a process that is alone, without a mesh, it is the function as it is.

    Raises: ShardingError (T0307) at the first call, where a tensor cannot be sharded so.

    >>> with ts.dist.mesh(dp=1):
    ...     ts.dist.partition(lambda x, w: x @ w, (("dp", None), None))(ts.ones((2, 3)), ts.ones((3, 2)))
    Tensor([2, 2] f32, [[3, 3], [3, 3]])
    """
    check_callables("partition", function=function)
    inner = function if isinstance(function, Jit) else Jit(function)

    def run_part(*args: Any, **kwargs: Any) -> Any:
        mesh = _mesh_here()
        if not mesh.axes:
            return inner(*args, **kwargs)
        trace = open_trace()
        entered, operands, shardings = list[Any](), list[Any](), list[Sharding]()
        for number, argument in enumerate(args):
            leaves, tree = flatten(argument, keep_order=True)
            name = inner.parameters[number].name if number < len(inner.parameters) else f"argument {number}"
            paths = leaf_paths(tree, name)
            specs = _leaf_specs(in_shardings, inner, number, len(args), mesh, tree)
            made = [
                _enter(trace, mesh, leaf, spec, path, operands, shardings)
                for leaf, spec, path in zip(leaves, specs, paths, strict=True)
            ]
            entered.append(unflatten(tree, made))
        if out_shardings is None:
            cuts = zip(trace.tape.inputs, shardings, strict=True)
            trace.shardings = {value: str(sharding) for value, sharding in cuts if sharding.axes}
        program = finish_subprogram(trace, lambda: inner(*entered, **kwargs), operands, ())
        outer: Any = dispatch.tracing()
        outputs = _leaf_shardings("the result", out_shardings, program.result)
        local, report = _partition(program.tape, mesh, shardings, outputs)
        setattr(made_function, _REPORT, report)
        local = _without_derivatives(local) if outer.orders else local
        return program.rebuild(outer.replay(local, program.operands))

    made_function = jit_like(function, run_part, "partition", _local_parameters(inner))
    return made_function


def _mesh_here() -> Mesh:
    """The mesh around the call. A process that is alone needs none: it has all of every tensor."""
    mesh = mesh_in_force()
    if not mesh.axes and world.size() > 1:
        raise ShardingError(
            f"a partitioned function runs within a mesh, and there is none here, on one of {world.size()} ranks",
            fix=f"call it within `with tessera.dist.mesh(dp={world.size()}):`",
        )
    tensor.notify_readers(mesh)  # what is traced is for this mesh, and under another it is traced again
    return mesh


def _leaf_specs(in_shardings: Any, inner: Jit, number: int, count: int, mesh: Mesh, tree: Tree) -> list[Any]:
    """The sharding of each leaf of an argument: what is given, or what annotations and the layout of the mesh say."""
    own = inner.parameters[number] if number < len(inner.parameters) else None
    if in_shardings is not None:
        given = None if own is not None and own.static else _argument_sharding(in_shardings, number, count)
        return _leaf_shardings(own.name if own is not None else f"argument {number}", given, tree)
    if own is None or own.static:
        return [None] * tree.leaf_count
    return layout_shardings(own.name, own.annotation, tree, mesh)


def _argument_sharding(in_shardings: Any, number: int, count: int) -> Any:
    if callable(in_shardings):
        return in_shardings
    if not isinstance(in_shardings, tuple | list):
        raise ArgumentError(
            f"`partition` takes `in_shardings` as a tuple with one for each argument, got {in_shardings!r}",
            fix='write `in_shardings=(("dp", None), None)`',
        )
    listed: Sequence[Any] = as_tuple(in_shardings)
    if len(listed) != count:
        raise ArgumentError(
            f"`partition` has `in_shardings` for {len(listed)} arguments, and is called with {count}",
            fix="give one for each positional argument; None for one that every rank has whole",
        )
    return listed[number]


def _leaf_shardings(name: str, given: Any, tree: Tree) -> list[Any]:
    """What is given for each leaf of a tree: one for all, a function, or a tree that may end before it does."""
    if given is None or callable(given) or isinstance(given, Sharding | str) or tree.is_leaf:
        return [given] * tree.leaf_count
    keys: Sequence[Any] = as_tuple(tree.data) if tree.type is dict else range(len(tree.children))
    is_mapping = isinstance(given, Mapping)
    parts: Any = given
    fits = set(parts) <= set(keys) if is_mapping else isinstance(given, tuple | list) and len(parts) == len(keys)
    if (tree.type is dict) != is_mapping or not fits:
        raise ShardingError(
            f"shardings of {name} are in its form, {tree}, or its beginning, got {given!r}",
            fix="give a function of path and shape, or None for what every rank has whole",
        )
    found: list[Any] = []
    for key, child in zip(keys, tree.children, strict=True):
        found += _leaf_shardings(name, parts.get(key) if is_mapping else parts[key], child)
    return found


def _enter(
    trace: Any, mesh: Mesh, leaf: Any, spec: Any, path: str, operands: list[Any], shardings: list[Sharding]
) -> Any:
    """An argument as the function for whole tensors sees it; numbers and the like stay as they are."""
    leaf = adopt_operand(leaf)
    if is_traced_number(leaf) or not is_tensor(leaf):
        return leaf
    part = as_tensor(leaf)
    own = type_of(part)
    given = spec(path, tuple(dim.value or 0 for dim in own.shape)) if callable(spec) else spec
    sharding = sharding_of(f"`{path}`", given, own.rank)
    whole = _whole_type(path, own, sharding, mesh)
    operands.append(part)
    shardings.append(sharding)
    return trace.add_input(path, whole, getattr(part, "policy", SILENT))


def _whole_type(path: str, part: TensorType, sharding: Sharding, mesh: Mesh) -> TensorType:
    """The type of the whole that a rank has a part of."""
    sizes = mesh.sizes
    missing = [axis for axis in sharding.axes if axis not in sizes]
    if missing:
        listed = ", ".join(f"`{axis}` ({format_count(size, 'rank')})" for axis, size in mesh.axes)
        raise ShardingError(
            f"`{path}` is sharded as {sharding}, and the mesh has no axis `{missing[0]}`: it has {listed}",
            fix="name one of them",
        )
    whole = part.with_shape(
        dim * prod(sizes[axis] for axis in own) for dim, own in zip(part.shape, sharding.dims, strict=True)
    )
    check_sharding(path, whole, sharding, sizes)
    return whole


def _partition(tape: Any, mesh: Mesh, inputs: Sequence[Sharding], outputs: Sequence[Any]) -> tuple[Any, Any]:
    from tessera.ir.graph.sharding.partition import lower_composites, partition_tape  # noqa: PLC0415 - loads the compiler

    lowered = lower_composites(tape)
    captured = [Sharding.whole(lowered.types[value].rank) for value in lowered.inputs[len(inputs) :]]
    wanted = [
        None if spec is None else sharding_of(f"result {at}", spec, lowered.types[value].rank)
        for at, (value, spec) in enumerate(zip(lowered.outputs, outputs, strict=True))
    ]
    return partition_tape(lowered, mesh.sizes, [*inputs, *captured], wanted)


def _without_derivatives(tape: Any) -> Any:
    """A program as one op whose derivatives are refused: those of one rank's program are not those of the whole.

    A cotangent of a whole result is on every rank, and the transpose of a collective would count it once for each.
    """
    from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs  # noqa: PLC0415 - loads the compiler

    builder = TapeBuilder(replace(tape, types=[], inputs=[], names=[], outputs=[], records=[]))
    given = add_inputs(builder.tape, [tape.types[value] for value in tape.inputs], tape.names)
    found = builder.emit("custom_function", *given, body=tape, function=PARTITIONED)
    builder.tape.outputs = list(found)
    return builder.tape


def _local_parameters(inner: Jit) -> list[inspect.Parameter]:
    """Parameters of the function for parts: annotations are of the whole, and hold where that is traced."""
    empty: Any = inspect.Parameter.empty
    return [
        parameter.replace(annotation=empty) if isinstance(own.annotation, TensorAnnotation) else parameter
        for parameter, own in zip(signature_of(inner).parameters.values(), inner.parameters, strict=True)
    ]


def partition_report(function: Callable[..., Any]) -> Any:
    """What `partition` did in the last trace of a function: shardings of all values, collectives with their bytes.

    Printed, it is a page; `inputs`, `outputs`, `values`, `collectives`, `conflicts` and `whole` are its parts.

    >>> total = ts.dist.partition(lambda x: x.sum(), (("dp",),))
    >>> with ts.dist.mesh(dp=1):
    ...     total(ts.ones((4,)))
    Tensor([] f32, 4)
    >>> len(ts.dist.partition_report(total).collectives)
    0
    """
    found = getattr(function, _REPORT, None)
    if found is None:
        raise ArgumentError(
            "`partition_report` takes a function that `partition` made and that was called, or traced with `lower`",
            fix="call it first",
        )
    return found
