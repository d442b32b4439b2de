"""`shard_map` and `pmap`: a function written for one rank as a function of whole arrays.

Outside, values are whole and the same on all ranks. On the way in each rank takes its part of them, on the way out
parts are gathered. So derivatives are those of the whole function: a cotangent that enters is cut as the result was
joined, one that leaves is joined as the argument was cut, and summed over the axes along which all ranks had the same.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tessera.api.autodiff import jit_like
from tessera.api.collectives import all_gather, all_reduce, axis_index
from tessera.api.custom import custom_vjp
from tessera.api.jit import Jit, jit
from tessera.diagnostics.codes import ArgumentError, PytreeError, ShapeError
from tessera.diagnostics.error import format_count
from tessera.frontend.arguments import check_callables
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of, is_tensor
from tessera.frontend.pytree import Tree, flatten, leaf_paths, node_of, unflatten
from tessera.frontend.subprograms import finish_subprogram, open_trace, type_of
from tessera.frontend.trace import TracedTensor
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.runtime.ranks.world import Mesh, mesh_in_force
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.sharding import Sharding

Axes = tuple[str, ...]


class _Local:
    """In place of a sharding: values that are each rank's own, which pass a `shard_map` as they are.

    >>> twice = ts.dist.shard_map(lambda x: x * 2.0, ts.dist.LOCAL, ts.dist.LOCAL)
    >>> with ts.dist.mesh(dp=1):
    ...     twice(ts.ones((2,)))
    Tensor([2] f32, [2, 2])
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "LOCAL"


LOCAL = _Local()

Spec: TypeAlias = Sharding | _Local


def P(*dims: str | Sequence[str] | None) -> Sharding:  # noqa: N802 - the field's name
    """How an array is sharded: for each dim a mesh axis, a tuple of several (the first varies slowest), or None.

    Dims that are not named are whole on every rank. It is short for `Sharding.of`.

    Raises: ShardingError (T0307) for what is no name of an axis, or an axis that is there twice.

    >>> ts.dist.P("dp", None, ("tp", "sp"))
    [{dp}, {}, {tp, sp}]
    """
    return Sharding.of(*dims)


def shard_map(
    function: Callable[..., Any], in_specs: Any = None, out_specs: Any = None, *, axes: Iterable[str] | None = None
) -> Callable[..., Any]:
    """A function of whole arrays that runs `function` on each rank of the mesh, with its parts of them.

    `in_specs` says how arguments are divided: a `P`, a tuple with one for each argument, or trees of them that are the
    beginning of the argument's form; None is whole on each rank, as is what `function` captures. `out_specs` says how
    the parts make the result; a result that is not divided along an axis is the same on its ranks, which `function`
    sees to. `LOCAL` passes each rank's own value. Collectives in `function` are over axes of the mesh. It runs within
    `dist.mesh`, on all ranks with equal whole arguments; it can be jitted, differentiated, batched and scanned over.
    `axes` are the mesh axes that it is for, by default all: name them where it is called in another one, which is for
    the others.

    >>> total = ts.dist.shard_map(lambda x: ts.dist.all_reduce(x.sum(), "dp"), in_specs=ts.dist.P("dp"))
    >>> with ts.dist.mesh(dp=1):
    ...     total(ts.ones((4,)))
    Tensor([] f32, 4)

    Raises: ShapeError (T0101) for a dim that an axis does not divide; ArgumentError (T0202) for an axis that the mesh
    does not have.
    """
    check_callables("shard_map", function=function)
    chosen = None if axes is None else tuple(axes)
    _check_prefix("in_specs", in_specs)
    _check_prefix("out_specs", out_specs)
    inner = function if isinstance(function, Jit) else Jit(function)

    def run(*args: Any, **kwargs: Any) -> Any:
        around = mesh_in_force()
        manual = _manual_axes(around, chosen)
        given = (*args, *kwargs.values())
        specs = _argument_specs(in_specs, len(args), len(kwargs))
        border = _Border(around, manual, is_entry=True)
        parts = [
            _cross(value, spec, f"argument {number}", border)
            for number, (value, spec) in enumerate(zip(given, specs, strict=True))
        ]

        def one(*own: Any) -> Any:
            return inner(*own[: len(args)], **dict(zip(kwargs, own[len(args) :], strict=True)))

        found = _run_inside(one, parts, border)
        return _cross(found, out_specs, "the result", _Border(around, manual, is_entry=False))

    return jit_like(function, run, "shard_map", _plain_parameters(inner))


def pmap(
    function: Callable[..., Any],
    axis: str | None = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    donate: Iterable[str] | str = (),
    **options: Any,
) -> Jit:
    """A function that runs on each rank of a mesh axis with its element of a batch, as `vmap` does for all of them.

    The batch has as many elements as the axis has ranks; `axis` is its name, by default the only axis of the mesh, and
    what collectives in the function are over. `in_axes` says where the batch is in each argument, None for one that all
    share, `out_axes` where it goes in the result. `donate` names parameters whose tensors results may take over, and
    further keywords are those of `jit`.

    >>> share = ts.dist.pmap(lambda x: x / ts.dist.all_reduce(x.sum(), "dp"), "dp")
    >>> with ts.dist.mesh(dp=1):
    ...     share(ts.array([[1.0, 3.0]]))
    Tensor([1, 2] f32, [[0.25, 0.75]])
    """
    check_callables("pmap", function=function)
    if "axis_name" in options:
        raise ArgumentError("unexpected argument `axis_name` of `pmap`", fix=f"write `axis={options['axis_name']!r}`")
    if out_axes is not None:
        _check_batch_axis("out_axes", out_axes)
    inner = function if isinstance(function, Jit) else Jit(function)

    def run(*args: Any, **kwargs: Any) -> Any:
        named = _manual_axes(mesh_in_force(), (axis,), "pmap")[0] if axis is not None else _only_axis(mesh_in_force())
        wheres = _argument_specs(in_axes, len(args), len(kwargs), of="in_axes")
        specs = tuple(
            _batch_spec(value, where, named) for value, where in zip((*args, *kwargs.values()), wheres, strict=True)
        )

        def one(*parts: Any) -> Any:
            mine = [_drop_batch(value, where, named) for value, where in zip(parts, wheres, strict=True)]
            found = inner(*mine[: len(args)], **dict(zip(kwargs, mine[len(args) :], strict=True)))
            leaves, tree = flatten(found)
            return unflatten(tree, [one if out_axes is None else ops.expand_dims(one, out_axes) for one in leaves])

        out = None if out_axes is None else _at(named, out_axes)
        return shard_map(one, specs, out, axes=(named,))(*args, *kwargs.values())

    made = jit_like(function, run, "pmap", _plain_parameters(inner))
    return jit(made.function, donate=donate, **options)


# Which axes, and how arguments and specs go together.


def _plain_parameters(inner: Jit) -> list[inspect.Parameter]:
    """The parameters of the function for whole arrays: annotations are of parts, and hold where parts are passed."""
    signature = inspect.signature(inner)
    return [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]


def _only_axis(around: Mesh) -> str:
    if len(around.axes) != 1:
        raise ArgumentError(
            f"`pmap` needs the name of a mesh axis, and {around} has {len(around.axes)}",
            fix='write `pmap(function, "dp")` within `with tessera.dist.mesh(dp=...)`',
        )
    return around.axes[0][0]


def _manual_axes(around: Mesh, chosen: Axes | None, of: str = "shard_map") -> Axes:
    unknown = next((axis for axis in chosen or () if axis not in around.sizes), None)
    if not around.axes or unknown is not None:
        what = f"is for mesh axis `{unknown}`" if unknown is not None else "runs on the ranks of a mesh"
        raise ArgumentError(
            f"`{of}` {what}, and what is in force is {around}",
            fix=f"call it within `with tessera.dist.mesh({unknown or 'dp'}=...)`",
        )
    return tuple(around.sizes) if chosen is None else chosen


def _argument_specs(specs: Any, positional: int, named: int, of: str = "in_specs") -> list[Any]:
    if not isinstance(specs, tuple | list):
        return [specs] * (positional + named)
    listed: list[Any] = list(specs)  # pyright: ignore[reportUnknownArgumentType]
    if len(listed) != positional + named:
        raise ArgumentError(
            f"`{of}` has {len(listed)} entries, and the function is called with {positional + named} arguments",
            fix="write one for each argument, or one for all of them",
        )
    return listed


def _as_spec(value: Any) -> Spec | None:
    """A sharding, or None where the value is a tree of them."""
    if isinstance(value, Sharding | _Local):
        return value
    return P() if value is None else P(value) if isinstance(value, str) else None


def _check_prefix(name: str, prefix: Any) -> None:
    for leaf in flatten(prefix)[0]:
        spec = _as_spec(leaf)
        if spec is None or (isinstance(spec, Sharding) and spec.partial):
            raise ArgumentError(
                f"`shard_map` takes `{name}` of `P(...)`, names of mesh axes and None, got {leaf!r}",
                fix='write `P("dp", None)`: for each dim the mesh axis that divides it',
            )


def _leaf_specs(prefix: Any, tree: Tree, what: str) -> list[Spec]:
    """A sharding for each leaf of a value, from a tree of them that is the beginning of its form."""
    spec = _as_spec(prefix)
    if spec is not None:
        return [spec] * tree.leaf_count
    kind: type[Any] = prefix.__class__
    children = list(node_of(kind).split(prefix)[0]) if tree.type is kind else []
    if tree.type is not kind or len(children) != len(tree.children):
        raise PytreeError(
            f"specs of {what} are a {kind.__name__} of {len(flatten(prefix)[0])}, and it is "
            f"{'an array' if tree.type is None else f'a {tree.type.__name__} of {len(tree.children)}'}",
            fix="give specs in the form of the value, or one `P` for all of it",
        )
    pairs = zip(children, tree.children, strict=True)
    return [spec for child, part in pairs for spec in _leaf_specs(child, part, what)]


# Crossing the border: parts of what comes in, the whole of what goes out.


@frozen
class _Border:
    """The border of a `shard_map`: its mesh, the axes it is for, and whether values enter or leave."""

    mesh: Mesh
    axes: Axes
    is_entry: bool


def _run_inside(function: Callable[..., Any], parts: Sequence[Any], border: _Border) -> Any:
    """What a function gives for parts; what it captures of the trace around it enters as well, whole on every rank.

    It is traced by itself, which finds what it captures: without a border the cotangents of that would be those of one
    rank alone.
    """
    trace, operands, given = open_trace(), list[Any](), list[Any]()
    for number, part in enumerate(parts):
        leaves, tree = flatten(part, keep_order=True)
        entered: list[Any] = []
        for leaf, path in zip(leaves, leaf_paths(tree, f"argument {number}"), strict=True):
            if is_traced_number(leaf) or not is_tensor(leaf):
                entered.append(leaf)
                continue
            operands.append(leaf)
            entered.append(trace.add_input(path, type_of(leaf), getattr(leaf, "policy", SILENT)))
        given.append(unflatten(tree, entered))
    program = finish_subprogram(trace, lambda: function(*given), operands, ())
    captured = [
        _cross_leaf(value, P(), "what the function captures", border) if isinstance(value, TracedTensor) else value
        for value in program.operands[len(operands) :]
    ]
    outer: Any = dispatch.tracing()
    return program.rebuild(outer.replay(program.tape, [*operands, *captured]))


def _cross(value: Any, prefix: Any, what: str, border: _Border) -> Any:
    leaves, tree = flatten(value)
    specs = _leaf_specs(prefix, tree, what)
    paths = leaf_paths(tree, what)
    made = [_cross_leaf(leaf, spec, path, border) for leaf, spec, path in zip(leaves, specs, paths, strict=True)]
    return unflatten(tree, made)


def _cross_leaf(leaf: Any, spec: Spec, path: str, border: _Border) -> Any:
    if isinstance(spec, _Local) or not (is_tensor(leaf) or hasattr(leaf, "shape")):
        return leaf
    value = as_tensor(leaf)
    _check_leaf(value, spec, path, border)
    others = tuple(axis for axis in border.axes if axis not in spec.axes)
    move = (
        _take_with_rules(spec, others, border.mesh) if border.is_entry else _join_with_rules(spec, others, border.mesh)
    )
    return move(value)


def _check_leaf(value: Any, spec: Sharding, path: str, border: _Border) -> None:
    sizes = border.mesh.sizes
    for axis in spec.axes:
        if axis not in sizes or axis not in border.axes:
            listed = ", ".join(f"`{one}` ({format_count(sizes[one], 'rank')})" for one in border.axes)
            raise ArgumentError(
                f"{path} is divided along mesh axis `{axis}`, and the axes here are {listed}",
                fix=f"name one of them, or call it within `tessera.dist.mesh({axis}=...)`",
            )
    if len(spec.dims) > len(value.shape):
        raise ShapeError(
            f"{path} has {len(value.shape)} dims, {list(value.shape)}, and its sharding {spec} names {len(spec.dims)}",
            fix="name a mesh axis, or None, for each dim, from the first one on",
        )
    if not border.is_entry:
        return
    for dim, axes in enumerate(spec.dims):
        count = functools.reduce(lambda product, axis: product * sizes[axis], axes, 1)
        size = value.shape[dim]
        if isinstance(size, int) and size % count:
            raise ShapeError(
                f"dim {dim} of {path} {list(value.shape)} is {size}, which the {count} ranks of "
                f"{', '.join(f'`{axis}`' for axis in axes)} do not divide",
                notes=("rule: every rank has a part of the same size",),
                fix=f"make it a multiple of {count}",
            )


def take_part(value: Any, spec: Sharding, mesh: Mesh) -> Any:
    """The part of a whole array that this rank has."""
    for dim, axes in enumerate(spec.dims):
        for axis in axes:
            if mesh.sizes[axis] > 1:
                part = value.shape[dim] // mesh.sizes[axis]
                starts = [0] * len(value.shape)
                starts[dim] = axis_index(axis) * part
                sizes = tuple(part if at == dim else size for at, size in enumerate(value.shape))
                value = ops.dynamic_slice(value, tuple(as_tensor(start) for start in starts), sizes)
    return value


def join_parts(value: Any, spec: Sharding, mesh: Mesh) -> Any:
    """The whole array of which this rank has a part."""
    for dim, axes in enumerate(spec.dims):
        for axis in reversed(axes):
            value = all_gather(value, axis, dim) if mesh.sizes[axis] > 1 else value
    return value


def _sum_over(value: Any, axes: Axes, mesh: Mesh) -> Any:
    for axis in axes:
        value = all_reduce(value, axis) if mesh.sizes[axis] > 1 else value
    return value


def _take_with_rules(spec: Sharding, others: Axes, mesh: Mesh) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        return take_part(value, spec, mesh)

    def put_back(cotangent: Any) -> Any:
        # Ranks that had the same part have each a share of its cotangent.
        return join_parts(_sum_over(cotangent, others, mesh), spec, mesh)

    def back(cotangent: Any) -> Any:
        # It leaves as values enter, and the transpose of that is to enter again: derivatives of any order are right.
        return linear_with_rules(put_back, _take_with_rules(spec, others, mesh))(cotangent)

    return linear_with_rules(take, back)


def _join_with_rules(spec: Sharding, others: Axes, mesh: Mesh) -> Callable[[Any], Any]:
    count = functools.reduce(lambda product, axis: product * mesh.sizes[axis], others, 1)

    def join(value: Any) -> Any:
        return join_parts(value, spec, mesh)

    def back(cotangent: Any) -> Any:
        # The same result on `count` ranks counts once: derivatives inside are those of a sum over all ranks.
        part = _take_with_rules(spec, others, mesh)(cotangent)
        return part if count == 1 else part * (1.0 / count)

    return linear_with_rules(join, back)


def linear_with_rules(
    forward: Callable[[Any], Any], back: Callable[[Any], Any], tangent: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """A linear function with its transpose; of integers, the function alone.

    `tangent` is what it makes of tangents, where the function rounds and is linear but for that.
    """

    def run(value: Any) -> Any:
        return forward(value)

    def keep(value: Any) -> tuple[Any, tuple[()]]:
        # By its rules again, so that a derivative of this derivative has them as well.
        return made(value), ()

    def transpose(_: tuple[()], cotangent: Any) -> tuple[Any]:
        return (back(cotangent),)

    def push(values: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return made(values[0]), (tangent or apply)(tangents[0])

    made = custom_vjp(run)
    made.defvjp(keep, transpose)
    made.defjvp(push)

    def apply(value: Any) -> Any:
        return made(value) if dtype_of(value).is_float else forward(value)

    return apply


# Batches of `pmap`: one element for each rank of the axis.


def _at(axis: str, where: int) -> Sharding:
    return Sharding((*[()] * where, (axis,)))


def _check_batch_axis(name: str, where: Any) -> None:
    """Raise ArgumentError (T0202) for what is no axis; one from the end would be another in each part of a tree."""
    if isinstance(where, bool) or not isinstance(where, int) or where < 0:
        several = ", one for each argument" if name == "in_axes" else ", one for all results"
        raise ArgumentError(
            f"`pmap` takes `{name}` as axes from 0 or None{several}, got {where!r}",
            fix="write `in_axes=(0, None)`" if name == "in_axes" else "write `out_axes=0`, counted from the first dim",
        )


def _batch_spec(value: Any, where: Any, axis: str) -> Any:
    if where is None:
        return None
    _check_batch_axis("in_axes", where)
    count = mesh_in_force().sizes.get(axis)
    leaves, tree = flatten(value)
    for leaf, path in zip(leaves, leaf_paths(tree, "the argument"), strict=True):
        shape: list[Any] = list(getattr(leaf, "shape", ()))
        if count is not None and (len(shape) <= where or shape[where] != count):
            raise ShapeError(
                f"{path} {shape} has its batch at axis {where}, and `{axis}` has {count} ranks",
                notes=("rule: `pmap` takes one element for each rank",),
                fix=f"make the batch {count}, or use `shard_map`, whose parts have any size",
            )
    return _at(axis, where)


def _drop_batch(value: Any, where: int | None, _: str) -> Any:
    if where is None:
        return value
    leaves, tree = flatten(value)
    return unflatten(tree, [ops.squeeze(leaf, where) for leaf in leaves])
