"""Collectives: ops that communicate with the other ranks along a mesh axis; starting ranks; their timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tessera.api.stored_plans import has_plans
from tessera.compiler.backend import backend_for_kind, manifest_of
from tessera.diagnostics import error as source
from tessera.diagnostics.codes import ArgumentError, RankError, ShardingError, TracingError
from tessera.diagnostics.error import format_count
from tessera.frontend.arguments import check_callables, check_int, check_string
from tessera.frontend.functions.operands import axis_of, cast, dtype_of, rank_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import MESH as PLANNED_MESH
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime import tensor
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import MESH, Mesh, mesh_in_force, mesh_of
from tessera.types.dim import Dim
from tessera.types.promotion import float_of
from tessera.types.sharding import Sharding

if TYPE_CHECKING:
    from tessera.runtime.ranks.algorithms import Table
    from tessera.runtime.timeline import Span

_REDUCTIONS = ("sum", "prod", "max", "min", "mean")


def run(
    function: Callable[..., Any],
    ranks: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
) -> list[Any]:
    """What a function gives on each of `ranks` new processes of this machine, in order.

    Each is a rank of one world: `rank()` says which, and within a `mesh` of as many ranks collectives run between
    them. The function stands at the top of a module; it, its arguments and its results go from process to process as
    `pickle` has them. What ranks print has their number in front. `timeout` is how many seconds a collective waits for
    a rank that does not come (300 where nobody says).

    Raises: RankError (T0712) where a rank fails, with its error as the cause; all others are ended then.
    """
    from tessera.runtime.ranks.processes import MOST, launch  # noqa: PLC0415 - few programs start others

    check_callables("run", function=function)
    if not 1 <= check_int("run", "ranks", ranks) <= MOST:
        raise ArgumentError(f"`run` takes 1 to {MOST} `ranks`, got {ranks}", fix="write `run(function, ranks=4)`")
    _check_run(args, kwargs, timeout)
    task = {"function": function, "args": tuple(args), "kwargs": dict(kwargs or {})}
    return launch(task, ranks, seconds=timeout, table=table_for(ranks))


def table_for(ranks: int) -> Table | None:
    """The algorithms that were measured for a world of so many ranks; None where nobody measured any."""
    if not has_plans():
        return None
    from tessera.api.collective_tuning import stored_table  # noqa: PLC0415 - sqlite, for those who tuned something

    return stored_table(ranks)


def _check_run(args: Any, kwargs: Any, timeout: Any) -> None:
    if not isinstance(args, list | tuple):
        raise ArgumentError(f"`run` takes a list or tuple as `args`, got {args!r}", fix="write `args=(x,)`")
    if kwargs is not None and not (isinstance(kwargs, dict) and all(isinstance(name, str) for name in kwargs)):  # pyright: ignore[reportUnknownVariableType]
        raise ArgumentError(f"`run` takes arguments by name as `kwargs`, got {kwargs!r}", fix='write `kwargs={"x": x}`')
    if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise ArgumentError(f"`run` takes a `timeout` above 0 s, got {timeout!r}", fix="write `timeout=60`")


def save_trace(path: str, spans: Iterable[Span]) -> None:
    """Write spans of any number of ranks as a Chrome trace, for `chrome://tracing` or Perfetto."""
    from tessera.runtime import timeline  # noqa: PLC0415 - few programs record

    check_string("save_trace", "path", path)
    try:
        listed: list[Any] = list(spans)
    except TypeError:
        listed = [spans]
    if not all(isinstance(one, timeline.Span) for one in listed):
        raise ArgumentError(f"`save_trace` takes spans, got {spans!r}", fix="give it `timeline.spans`")
    timeline.save_trace(path, listed)


def rank() -> int:
    """The number of this process among the ranks of its world; 0 where it is alone.

    A process that `mpiexec`, `srun` or `torchrun` has started joins its world with the first call of this, of
    `world_size` or of `mesh`; raises RankError (T0712) where it cannot.
    """
    world.current()
    return world.rank()


def world_size() -> int:
    """How many ranks the world of this process has."""
    world.current()
    return world.size()


def mesh(devices: Any = None, /, *, layout: Any = None, **sizes: int) -> Mesh:
    """A mesh with these axes, in force within it: `with mesh(dp=4, tp=2): ...`; ranks of the last axis are neighbours.

    `devices` says of how many ranks it is, or lists them: `mesh(8, dp=4, tp=2)`; without axes it has one, `devices`.

    `with mesh(dp=4) as m:` names it, and `with m.axis("dp"):` in a jitted function marks a part that is written for one
    rank of that axis: in the plan (`fn.schedule()`) it is a `tsched.mesh.region`, and collectives there are over axes
    of the regions around them. Axes nest, each once. What runs is the same.

    `layout` says over which axes dims of annotations are sharded, by their names: `mesh(dp=4, tp=2, layout={"batch":
    "dp", "seq": None})`; `"shard"` is the only axis of the mesh, `"replicate"` and None none. `"params"` is for
    parameters (tensors of modules, and arguments named `params`) of which nothing else is said: they are cut along
    their first dim. `partition` takes it.

    `mesh(4).shard(W["d_model"])` shards: an annotation `W = Tensor["vocab", "d_model", f32]` becomes one with a
    sharding, for a jitted function; a tensor becomes this rank's part, and so does a tree of parameters, by the layout.
    `shard_report` of the same says what each rank has.

    Raises: RankError (T0712) in a process that is one of several ranks, where they cannot be those of the mesh;
    ShardingError (T0307) for a layout with axes that it does not have.

    >>> W = ts.Tensor["vocab", "d_model", ts.f32]
    >>> ts.dist.mesh(4).shard(W["d_model"])
    Tensor["vocab", "d_model", f32] @ shard(None, "devices")
    """
    for name, size in sizes.items():
        if check_int("mesh", name, size) < 1:
            raise ArgumentError(f"`mesh` takes `{name}` from 1, got {size}", fix=f"write `mesh({name}=2)`")
    if devices is not None:
        sizes = _axes_of(devices, sizes)
    axes = tuple({**MESH.get().sizes, **sizes}.items())
    made = mesh_of(axes, MESH.get().layout if layout is None else read_layout(layout, dict(axes)))
    world.current()  # a process that was started as a rank is one from here on
    ranks = world.size()
    if ranks > 1 and ranks % made.size:
        raise RankError(
            f"{made} has {format_count(made.size, 'rank')}, and the world has {ranks}",
            fix=f"let the sizes of its axes make {ranks}",
        )
    return made


def _axes_of(devices: Any, sizes: dict[str, int]) -> dict[str, int]:
    """The axes of a mesh of so many devices; raises ArgumentError (T0202) where they are not those."""
    listed: list[Any] = list(devices) if isinstance(devices, list | tuple | range) else []  # pyright: ignore[reportUnknownArgumentType]
    count = len(listed) if listed else check_int("mesh", "devices", devices)
    if listed and listed != list(range(count)):
        raise ArgumentError(
            f"a mesh is of the ranks from 0 on, got {listed}", fix=f"write `mesh({count})`, or start fewer ranks"
        )
    if count < 1 or (sizes and math.prod(sizes.values()) != count):
        axes = ", ".join(f"{name}={size}" for name, size in sizes.items())
        what = f"axes {axes} make {math.prod(sizes.values())}" if sizes else "a mesh has one or more"
        fix = f"let the sizes of its axes make {count}" if sizes and count > 0 else "write `mesh(2)`"
        raise ArgumentError(f"`mesh` is of {count} devices, and {what}", fix=fix)
    return sizes or {"devices": count}


def read_layout(layout: Any, sizes: Mapping[str, int]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A layout as a value; raises ShardingError (T0307) where it names an axis that the mesh lacks."""
    listed = ", ".join(f"`{axis}` ({format_count(size, 'rank')})" for axis, size in sizes.items()) or "no axis"
    if not isinstance(layout, Mapping):
        raise ArgumentError(
            f"`mesh` takes `layout` as axes by dim, got {layout!r}", fix='write `layout={"batch": "dp"}`'
        )
    found: list[tuple[str, tuple[str, ...]]] = []
    given: Mapping[Any, Any] = layout  # pyright: ignore[reportUnknownVariableType]
    for dim, axes in given.items():
        if axes == "shard":
            if len(sizes) != 1:
                raise ShardingError(
                    f'the layout of dim `{dim}` is "shard", and the mesh has {listed}', fix="name one of its axes"
                )
            axes = next(iter(sizes))
        (own,) = Sharding.of(None if axes == "replicate" else axes).dims
        missing = [axis for axis in own if axis not in sizes]
        if missing:
            raise ShardingError(
                f"the layout shards dim `{dim}` over mesh axis `{missing[0]}`, and the mesh has {listed}",
                fix="name one of them",
            )
        found.append((str(dim), own))
    return tuple(found)


@contextmanager
def open_axis(around: Mesh, axis: str) -> Generator[None]:
    """The scope of a mesh axis in a traced program; raises TracingError (T0201) for an axis that cannot be here."""
    trace: Any = dispatch.tracing()
    listed = ", ".join(f"`{name}` ({format_count(size, 'rank')})" for name, size in around.axes) or "no axis"
    if not isinstance(axis, str) or axis not in around.sizes:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TracingError(
            f"`mesh.axis` takes an axis of the mesh, got {axis!r}",
            notes=(f"{around} has {listed}",),
            fix=f'write `mesh.axis("{around.axes[0][0]}")`' if around.axes else "name it in `tessera.dist.mesh(...)`",
        )
    if trace is None:
        raise TracingError(
            f'`mesh.axis("{axis}")` marks a part of a program: open it in a jitted function',
            fix="put `@jit` on the function around it",
        )
    known = [one.partition("=")[0] for one in trace.region.split("/") if one]
    if axis in known:
        raise TracingError(
            f'`mesh.axis("{axis}")` is within another of that axis; the axes around it are '
            f"{', '.join(f'`{one}`' for one in known)}",
            notes=("rule: a rank has one position along an axis", f"{around} has {listed}"),
            fix="nest scopes of different axes, or end the first one before",
        )
    tensor.notify_readers(around)  # what is traced is for this mesh, and under another it is traced again
    trace.root.tape.promises.setdefault(PLANNED_MESH, around.sizes)
    outer, trace.region = trace.region, "/".join(filter(None, (trace.region, f"{axis}={around.sizes[axis]}")))
    token = MESH.set(around)
    try:
        yield
    finally:
        MESH.reset(token)
        trace.region = outer


world.OPEN_AXIS[:] = [open_axis]


def all_reduce(x: Any, axis: str, op: str = "sum") -> Any:
    """`x` of all devices along mesh axis `axis`, reduced by `op`; every device gets the result.

    `op` is sum, prod, max, min or mean; integers become floats for a mean, as for `ops.mean`.
    """
    op = _reduction("all_reduce", op)
    return _on_mesh("all_reduce", (_as_operand(x, op),), {"axis": axis, "op": op})


def all_gather(x: Any, axis: str, dim: int = 0) -> Any:
    """`x` of all devices along mesh axis `axis`, joined along `dim`."""
    return _on_mesh("all_gather", (x,), {"axis": axis, "dim": axis_of("all_gather", dim, rank_of(x))})


def reduce_scatter(x: Any, axis: str, dim: int = 0, op: str = "sum") -> Any:
    """`x` of all devices reduced by `op`, each device keeping its part along `dim`."""
    dim = axis_of("reduce_scatter", dim, rank_of(x))
    op = _reduction("reduce_scatter", op)
    return _on_mesh("reduce_scatter", (_as_operand(x, op),), {"axis": axis, "dim": dim, "op": op})


def all_to_all(x: Any, axis: str, split: int = 0, concat: int = 0) -> Any:
    """Part `i` of `x` along `split` goes to device `i`; what arrives is joined along `concat`."""
    rank = rank_of(x)
    dims = {"split": axis_of("all_to_all", split, rank), "concat": axis_of("all_to_all", concat, rank)}
    return _on_mesh("all_to_all", (x,), {"axis": axis, **dims})


def axis_index(axis: str) -> Any:
    """The number of this device along mesh axis `axis`."""
    return _on_mesh("axis_index", (), {"axis": axis})


def replicated(x: Any, axis: str) -> Any:
    """`x`, promised to be the same on all devices along mesh axis `axis`, so that it may decide for all of them."""
    return _on_mesh("replicated", (x,), {"axis": axis})


def _as_operand(x: Any, op: str) -> Any:
    """The operand of a reduction: for a mean, a float."""
    return cast(x, float_of(dtype_of(x))) if op == "mean" else x


def _reduction(name: str, op: str) -> str:
    if not isinstance(op, str) or op not in _REDUCTIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TracingError(f"`{name}` has no reduction `{op}`", fix=f"`op` is one of {', '.join(_REDUCTIONS)}")
    return op


def _on_mesh(name: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    for operand in operands:
        dtype_of(operand)
    if not isinstance(attributes["axis"], str):
        raise TracingError(
            f"`{name}` takes the name of a mesh axis, got {attributes['axis']!r}", fix='write its name: `axis="tp"`'
        )
    around, trace = mesh_in_force(), dispatch.tracing()
    axis, sizes = attributes["axis"], around.sizes
    batches: Mapping[str, Dim] = getattr(trace, "axes", {})
    if axis in batches:
        return apply(name, operands, {**attributes, "size": (batches[axis],)})
    if axis not in sizes:
        notes = [f"what is in force here is {around}"] if sizes else []
        notes += [f"axes of `vmap` around it are {', '.join(f'`{one}`' for one in batches)}"] if batches else []
        raise TracingError(
            f"`{name}` is a collective over mesh axis `{axis}`, and there is no such axis",
            notes=tuple(notes),
            fix=f"call it within `with tessera.dist.mesh({axis}=...)`, or in a function under "
            f'`tessera.vmap(function, axis_name="{axis}")`',
        )
    if trace is None:
        raise TracingError(
            f"`{name}` is part of a program: call it in a jitted function", fix="put `@jit` on the function around it"
        )
    scopes = [one.partition("=")[0] for one in getattr(trace, "region", "").split("/") if one]
    if scopes and axis not in scopes:
        raise TracingError(
            f"`{name}` is over mesh axis `{axis}`, and the scopes around it are of {', '.join(map(repr, scopes))}",
            notes=(f"what is in force here is {around}",),
            fix=f'call it within `with mesh.axis("{axis}")`, where values are one rank\'s part along it',
        )
    tensor.notify_readers(around)  # what is traced is for this mesh, and under another it is traced again
    return apply(name, operands, {**attributes, "size": (Dim.constant(sizes[axis]),)})


def check_order(tape: Tape) -> None:
    """Raise EffectOrderError (T0302) where ranks could reach the collectives of a program in different orders."""
    if not any(record.bodies for record in tape.records):
        return  # without branches all ranks have one order, which is known without loading the compiler
    from tessera.ir.graph.dialect import function_of  # noqa: PLC0415 - loads the compiler
    from tessera.ir.graph.tape_analysis import check_collective_order  # noqa: PLC0415

    check_collective_order(function_of(tape, "main"))


def refuse_to_run(tape: Tape, backend: str, meshes: Sequence[Mesh]) -> None:
    """Raise RankError (T0712) where a program needs the ranks of meshes, and they are not there."""
    found = other_ranks(tape)
    if found is None:
        return
    ranks = world.size()
    around = next((one for one in meshes if one.size != ranks), None)
    if around is not None:
        alone = "this process is alone" if ranks == 1 else f"the world has {ranks} ranks"
        raise RankError(
            f"{found[0]} cannot run: {around} has {format_count(around.size, 'rank')}, and {alone}",
            span=found[1],
            notes=("its shapes and types are checked, and `lower` shows its IR",),
            fix=f"start it with `tessera.dist.run(function, ranks={around.size})`, "
            f"or the file with `tessera run --ranks {around.size}`",
        )
    if not manifest_of(backend).has_collectives:
        raise RankError(
            f"{found[0]} cannot run on `{backend}`, whose programs have no collectives",
            span=found[1],
            fix=f'compile it for the CPU: `@jit(backend="{backend_for_kind("cpu").name}")`',
        )


def other_ranks(tape: Tape) -> tuple[str, source.Span | None] | None:
    """The first op of a program that needs other ranks, in words, and where it stands."""
    for record in tape.records:
        spec = REGISTRY[record.op]
        if "size" in record.attributes and ("collective" in spec.effects or not record.operands):
            size = record.attributes["size"][0]
            if size.value != 1:
                return f"`{record.op.split('.', 1)[1]}` over {size} ranks", record.span
        inner = next((found for body in record.bodies if (found := other_ranks(body)) is not None), None)
        if inner is not None:
            return inner
    return None
