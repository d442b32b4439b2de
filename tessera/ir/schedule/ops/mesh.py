"""Distribution in a plan: layouts, collectives and topologies, mesh regions, pipelines, their stages, and functions.

The mesh is what the `tsched.module` around an op declares (`mesh = {dp = 2, tp = 4}`). Where it declares none, names of
axes are free, as in a text that stands alone. A `tsched.mesh.region` is written for one rank of its axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from xdsl.ir import Operation, OpResult, SSAValue

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import format_count
from tessera.ir.base.op import SpecOp, guards_of
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, TensorAttr
from tessera.ir.schedule.ops import COST, host_op
from tessera.types.constraint import ConstraintSolver
from tessera.types.constraint_text import Constraint
from tessera.types.dim import Dim
from tessera.types.topology import topology_of

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import CollectiveOp, LayoutOp, MeshRegionOp, PipelineOp, PipelineRegionOp

PATTERNS = ("RS_MM_AG", "AG_MM", "MM_RS", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALGORITHMS = ("ring", "tree", "direct", "hierarchical", "in_network")
WIRE_DTYPES = ("off", "fp8", "fp8_e4m3", "fp8_e5m2", "bf16")
SCHEDULES = ("1f1b", "interleaved")
_REGION, _PIPELINE, _STAGE = "tsched.mesh.region", "tsched.pipeline.region", "tsched.stage"
_ANNOTATIONS = ("tsched.tile", "tsched.layout", "tsched.collective")


# The mesh around an op.


def declared_mesh(op: Operation) -> dict[str, int] | None:
    """The axes of the mesh that the program around an op declares, with their sizes; None where it declares none."""
    at: Operation | None = op
    while at is not None and at.name != "tsched.module":
        at = at.parent_op()
    mesh = at.value("mesh") if isinstance(at, SpecOp) else None
    if mesh is None:
        return None
    assert isinstance(at, SpecOp)
    check_mesh(at)
    return dict(mesh)


def check_mesh(program: SpecOp) -> None:
    """Raises unless the mesh of a program is axes with their numbers of ranks."""
    mesh: Any = program.value("mesh")
    if mesh is None:
        return
    if not isinstance(mesh, Mapping):
        program.fail(f"`mesh` is axes with their sizes, as in {{dp = 2, tp = 4}}, got {mesh!r}")
    for axis, size in cast("Mapping[str, Any]", mesh).items():
        if type(size) is not int or size < 1:
            program.fail(f"mesh axis `{axis}` has at least 1 rank, got {size!r}", f"write `{axis} = 2`")


def regions_around(op: Operation) -> dict[str, int]:
    """The axes of the mesh regions around an op, outermost first, with their sizes (0: nobody says)."""
    found: list[tuple[str, int]] = []
    at = op.parent_op()
    while at is not None:
        if isinstance(at, SpecOp) and at.name == _REGION:
            found.append((at.value("axis"), at.value("size") or (declared_mesh(at) or {}).get(at.value("axis"), 0)))
        at = at.parent_op()
    return dict(reversed(found))


def size_of_axis(op: SpecOp, axis: str) -> int:
    """How many ranks an axis has at an op; 0 where nobody says. Raises where the mesh has no such axis."""
    mesh, regions = declared_mesh(op), regions_around(op)
    if mesh is not None and axis not in mesh:
        listed = ", ".join(f"`{name}` ({format_count(size, 'rank')})" for name, size in mesh.items()) or "no axis"
        op.fail(
            f"`{op.name}` is over mesh axis `{axis}`, and the mesh of this program has {listed}",
            f"name one of them, or declare it: `mesh = {{{axis} = 2}}`",
        )
    return (mesh or {}).get(axis, 0) or regions.get(axis, 0)


def _refuse_unknown(op: SpecOp, name: str, known: tuple[str, ...]) -> None:
    if op.value(name) and op.value(name) not in known:
        op.fail(f"`{name}` of `{op.name}` is one of {', '.join(known)}, got {op.value(name)!r}")


# Layouts: which dims of a tensor are sharded, over which axes.


def _check_layout(op: LayoutOp) -> None:
    dims, axes = op.partition, op.mesh_axes
    if len(dims) != len(axes):
        op.fail(f"`partition` names {len(dims)} dims and `mesh_axes` {len(axes)} axes of the mesh")
    for axis in axes:
        if axes.count(axis) > 1:
            op.fail(
                f"mesh axis `{axis}` shards {axes.count(axis)} dims of one tensor, {list(dims)}",
                "a rank has one position along an axis: shard one of them over another axis",
            )
        if axis in regions_around(op):
            op.fail(
                f"`tsched.layout` shards over `{axis}` within the region of that axis",
                "a value there is one rank's part already: lay it out before the region",
            )
    for other in (use.operation for use in op.operands[0].uses):
        if isinstance(other, SpecOp) and other.name == op.name and other is not op and _is_before(other, op):
            op.fail("a value has one layout, and this one has two", "name all sharded dims in one `tsched.layout`")
    _check_shards(op)
    _check_order(op)


def _check_order(op: LayoutOp) -> None:
    """Raise unless `order` has each dim of the tensor once."""
    type_, order = op.operands[0].type, tuple(op.order)
    rank = len(type_.shape) if isinstance(type_, TensorAttr | BufferAttr) else len(order)
    if order and sorted(order) != list(range(rank)):
        op.fail(
            f"`order` names each dim of the tensor once, the innermost last: it has {rank}, got {list(order)}",
            f"write an order of {', '.join(map(str, range(rank)))}",
        )


def _is_before(first: Operation, second: Operation) -> bool:
    at = second.prev_op
    while at is not None and at is not first:
        at = at.prev_op
    return at is first


def dim_positions(op: LayoutOp) -> dict[str, int]:
    """The position of each dim that a layout of a typed value names; empty for a value without a type.

    A dim is named by its symbol, by `dims` of the layout, or by its number.
    """
    type_ = op.operands[0].type
    if not isinstance(type_, TensorAttr | BufferAttr):
        return {}
    names = op.dims or tuple(dim.symbol_name or str(axis) for axis, dim in enumerate(type_.shape))
    if len(names) != len(type_.shape):
        op.fail(f"`dims` names {len(names)} dims, and the tensor {type_.data} has {len(type_.shape)}")
    found: dict[str, int] = {}
    for name in op.partition:
        if name in names:
            found[name] = names.index(name)
        elif name.isdigit() and int(name) < len(names):
            found[name] = int(name)
        else:
            listed = ", ".join(f"`{one}`" for one in names)
            op.fail(
                f"`partition` names dim `{name}`, and the dims of {type_.data} are {listed}",
                f"name one of them, or say what they are called: `dims = [{', '.join(['...'] * len(names))}]`",
            )
    return found


def _check_shards(op: LayoutOp) -> None:
    counts: dict[str, int] = {}
    for dim, axis in zip(op.partition, op.mesh_axes, strict=True):
        size = size_of_axis(op, axis)
        counts[dim] = counts.get(dim, 1) * size
    for name, position in dim_positions(op).items():
        axes = [f"`{axis}`" for dim, axis in zip(op.partition, op.mesh_axes, strict=True) if dim == name]
        type_ = op.operands[0].type
        assert isinstance(type_, TensorAttr | BufferAttr)
        if counts[name]:
            check_divides(op, type_.shape[position], counts[name], f"dim `{name}` over {' and '.join(axes)}")


def check_divides(op: SpecOp, dim: Dim, count: int, what: str) -> None:
    """Raises unless a dim is known to be a multiple of a number of ranks, by itself or by guards of the program."""
    if dim.value is not None:
        if dim.value % count:
            up = -(-dim.value // count) * count
            op.fail(
                f"`{op.name}` shards {what}: {dim.value} elements among {count} ranks leave {dim.value % count} over",
                f"pad it to {up}, or shard another dim; rule: a shard has {dim.value}/{count} elements, an integer",
            )
        return
    solver = ConstraintSolver(Constraint.equality(left, right) for left, right, _ in guards_of(op).pairs)
    answer = solver.decide(Constraint.equality(dim % count, 0))
    if answer.is_proved:
        return
    verb = "is not" if answer.is_refuted else "is not known to be"
    op.fail(
        f"`{op.name}` shards {what}: {dim} {verb} a multiple of {count}",
        f'declare `{dim} % {count} == 0`; in IR, a guard of the program: `[dim<{dim}>, dim<{count}*n>, "shards"]`',
    )


# Collectives of groups.


def _check_collective(op: CollectiveOp) -> None:
    _refuse_unknown(op, "pattern", PATTERNS)
    _refuse_unknown(op, "algo", ALGORITHMS)
    _refuse_unknown(op, "quantize", WIRE_DTYPES)
    size = size_of_axis(op, op.axis) if op.axis else 0
    regions = regions_around(op)
    if regions and op.axis and op.axis not in regions:
        listed = ", ".join(map(repr, regions))
        op.fail(
            f"`tsched.collective` is over `{op.axis}`, and the regions around it are of {listed}",
            f"put it into a `tsched.mesh.region` of `{op.axis}`, where values are one rank's part along it",
        )
    if op.algo == "tree" and op.pattern == "all_to_all":
        op.fail("`tree` has no all_to_all: a tree reduces to one rank, or sends from one", 'write `algo = "direct"`')
    if op.algo == "in_network" and op.pattern == "all_to_all":
        op.fail("`in_network` has no all_to_all: switches reduce and multicast", 'write `algo = "direct"`')
    if op.topology is not None:
        _check_topology(op, size)
    group = op.operands[0]
    if op.pattern in ("reduce_scatter", "all_to_all") and size and isinstance(group.type, TensorAttr):
        check_divides(op, group.type.data.size, size, f"the elements of {group.type.data} over `{op.axis}`")


def _check_topology(op: CollectiveOp, ranks: int) -> None:
    try:
        topology = topology_of(op.topology)
    except ScheduleError as error:
        op.fail(error.message, error.fix.message if error.fix else "")
    if ranks and topology.ranks % ranks:
        op.fail(
            f"`{op.axis}` has {ranks} ranks, and the topology {topology.nodes} x {topology.devices} = {topology.ranks}",
            "the ranks of an axis are a part of the devices: their number divides that of the devices",
        )
    if op.algo == "in_network" and not topology.can_reduce:
        op.fail(
            "`in_network` needs switches that reduce, and the topology says of none that it does",
            "write `in_network = true` in the topology where its switches do, or another `algo`",
        )


# Mesh regions.


def _types_of_yield(op: SpecOp) -> list[Any]:
    last = op.regions[0].block.last_op
    return [value.type for value in last.operands] if last is not None else []


def _check_results(op: SpecOp) -> None:
    if _types_of_yield(op) != list(op.result_types):
        op.fail(f"`{op.name}` gives what its body yields, {_types_of_yield(op)}, not {list(op.result_types)}")
    if op.regions[0].block.args:
        op.fail(f"the body of `{op.name}` takes no arguments: it sees the values around it")


def _check_region(op: MeshRegionOp) -> None:
    if not op.axis:
        op.fail("`tsched.mesh.region` needs the `axis` of the mesh that it is of")
    if op.size < 0:
        op.fail(f"`size` of mesh axis `{op.axis}` is at least 1, got {op.size}")
    size = size_of_axis(op, op.axis)
    if op.size and size and op.size != size:
        op.fail(
            f"the region of `{op.axis}` is for {op.size} ranks, and that axis of the mesh has {size}",
            "leave `size` out, or declare another mesh",
        )
    if op.axis in regions_around(op):
        op.fail(
            f"a region of `{op.axis}` is within another of that axis",
            "a rank has one position along an axis: nest regions of different axes",
        )
    _check_results(op)


# Pipelines and their stages.


def check_pipeline_numbers(schedule: str, stages: int, microbatch: int, chunks: int) -> tuple[str, str] | None:
    """What is wrong with the numbers of a pipeline and what to write instead, or None.

    >>> check_pipeline_numbers("interleaved", 4, 6, 2)[0]
    'interleaved stages take microbatches 4 at a time, and 6 microbatches leave 2 over'
    """
    if schedule not in SCHEDULES:
        return f"`schedule` is one of {', '.join(SCHEDULES)}, got {schedule!r}", 'write `schedule = "1f1b"`'
    for name, value in (("stages", stages), ("microbatch", microbatch), ("chunks", chunks)):
        if value < 1:
            return f"`{name}` must be at least 1, got {value}", f"write `{name} = {max(2, stages)}`"
    if schedule == "1f1b" and chunks > 1:
        return f"1f1b has 1 chunk on a rank, got {chunks}", 'write `schedule = "interleaved"`'
    if schedule == "interleaved" and chunks < 2:
        return (
            "interleaved stages have at least 2 chunks on a rank, got 1",
            'write `schedule = "1f1b"`, or `chunks = 2`',
        )
    if microbatch < stages:
        return (
            f"{microbatch} microbatches never fill {stages} stages",
            f"write `microbatch = {stages}` or more, or fewer stages",
        )
    if schedule == "interleaved" and microbatch % stages:
        over, up = microbatch % stages, -(-microbatch // stages) * stages
        return (
            f"interleaved stages take microbatches {stages} at a time, and {microbatch} microbatches leave {over} over",
            f"write `microbatch = {up}`, or `1f1b`",
        )
    return None


def _check_pipeline(op: PipelineOp) -> None:
    problem = check_pipeline_numbers(op.schedule, op.stages, op.microbatch, op.chunks)
    if problem is not None:
        op.fail(*problem)
    if not op.axis:
        op.fail("`tsched.pipeline` needs the `axis` of the mesh along which its stages are")
    _check_orders(op)


def _check_pipeline_region(op: PipelineRegionOp) -> None:
    if not op.axis:
        op.fail("`tsched.pipeline.region` needs the `axis` of the mesh along which its stages are")
    size = size_of_axis(op, op.axis)
    stages = op.stages or size
    if not stages:
        op.fail(f"nobody says how many stages there are along `{op.axis}`", "write `stages = 4`, or declare the mesh")
    problem = check_pipeline_numbers(op.schedule, stages, op.microbatch, op.chunks)
    if problem is not None:
        op.fail(*problem)
    if size and stages != size:
        op.fail(
            f"`{op.axis}` has {size} ranks, and the pipeline {stages} stages along it",
            f"each rank has a stage: write `stages = {size}`; several parts on a rank are `chunks`",
        )
    outer = op.parent_op()
    while outer is not None:
        if outer.name == _PIPELINE:
            op.fail("a pipeline is within another", "give the inner stages numbers of their own in the outer one")
        outer = outer.parent_op()
    _check_results(op)
    _check_stages(op, stages * op.chunks)
    _check_orders(op)


def _check_orders(op: PipelineOp | PipelineRegionOp) -> None:
    """Orders that a text gives have every action once, and no deadlock: they are run."""
    from tessera.ir.schedule.planning import pipelines  # noqa: PLC0415 - it imports this file

    given = op.orders
    if given == ():
        return
    rows = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given,)
    if not all(isinstance(row, tuple) for row in rows):
        op.fail(f"`orders` has a list for each rank, got {given!r}")
    try:
        orders = [[pipelines.parse_action(str(one)) for one in row] for row in rows]
        pipelines.run_orders(pipelines.pipeline_of(op), orders)
    except ScheduleError as error:
        op.fail(error.message, error.fix.message if error.fix else "")


def stages_in(op: SpecOp) -> list[SpecOp]:
    """The stages of a pipeline region, in program order."""
    return [part for part in op.regions[0].block.ops if isinstance(part, SpecOp) and part.name == _STAGE]


def stage_of(value: SSAValue) -> int | None:
    """The number of the stage that gives a value; None for one that is given from outside."""
    owner = value.owner if isinstance(value, OpResult) else None
    return owner.value("index") if isinstance(owner, SpecOp) and owner.name == _STAGE else None


def _check_stages(op: PipelineRegionOp, count: int) -> None:
    for part in op.regions[0].block.ops:
        if part.name not in (_STAGE, "tsched.yield", *_ANNOTATIONS):
            op.fail(f"`{part.name}` is in a pipeline, and in no stage of it", "make it a part of a `tsched.stage`")
    stages = stages_in(op)
    for stage in stages:
        if not 0 <= stage.value("index") < count:
            stage.fail(
                f"stage {stage.value('index')} of a pipeline of {count}: they have the numbers 0 to {count - 1}",
                "number them in the order in which microbatches pass, or write more `stages` or `chunks`",
            )
    used = {stage.value("index") for stage in stages}
    if len(used) < count:
        missing = next(number for number in range(count) if number not in used)
        op.fail(f"nothing is in stage {missing} of {count}", "a rank without work waits: use fewer stages")
    for stage in stages:
        for operand in stage.operands:
            _check_edge(stage, stage_of(operand))
    fed = {stage_of(operand) for stage in stages for operand in stage.operands if stage_of(operand) is not None}
    last = op.regions[0].block.last_op
    fed |= {stage_of(value) for value in (last.operands if last is not None else ())}
    unread = [stage for stage in range(count) if stage not in fed]
    if unread:
        op.fail(f"nobody reads what stage {unread[0]} gives", "let the next stage take it, or yield it from the region")


def _check_edge(stage: SpecOp, source: int | None) -> None:
    own = stage.value("index")
    if source is None or source in (own, own - 1):
        return
    if source > own:
        stage.fail(
            f"stage {own} reads what stage {source} gives: {own} -> ... -> {source} -> {own} is a cycle",
            "microbatches pass from a stage to the next: number the stages in that order",
        )
    stage.fail(
        f"stage {own} reads what stage {source} gives, past stage {source + 1}",
        f"ranks send to their neighbours: let stage {source + 1} take it and give it on",
    )


def _check_stage(op: SpecOp) -> None:
    around = op.parent_op()
    if around is not None and around.name != _PIPELINE:
        op.fail(f"a stage stands in a `{_PIPELINE}`, not in a `{around.name}`")


# Functions: one fusion group by itself.


def _check_function(op: SpecOp) -> None:
    groups = [part for part in op.regions[0].block.ops if part.name == "tsched.fuse"]
    if len(groups) != 1:
        op.fail(f"`tsched.func` is one fusion group, a future kernel, and this one has {len(groups)}")
    for part in op.regions[0].block.ops:
        if part.name not in ("tsched.fuse", "tsched.return", *_ANNOTATIONS):
            op.fail(f"`tsched.func` has a group and what was chosen for it, and no `{part.name}`")
    last = op.regions[0].block.last_op
    if last is None or list(last.operands) != list(groups[0].results):
        op.fail("`tsched.func` returns the results of its group, all of them in their order")


_AXIS = Attribute("axis", "str", doc="the axis of the mesh")
_PIPELINE_ATTRIBUTES = (
    Attribute("schedule", "str", "1f1b", "1f1b, or interleaved with several chunks on a rank"),
    Attribute("chunks", "int", 1, "parts of the program on each rank; virtual stages are stages * chunks"),
    Attribute("orders", "any", (), "what each rank runs, as in [[F0, F1, B0, B1], ...]; those of the schedule without"),
)

SPECS = (
    OpSpec(
        name="tsched.func",
        summary="A fusion group by itself, a future kernel: the group and what was chosen for it.",
        results=(),
        attributes=(
            Attribute("symbol", "symbol", doc="its name"),
            Attribute("names", "strs", (), "names of its arguments"),
            *COST,
        ),
        regions=("body",),
        form="function",
        is_isolated=True,
        verify=_check_function,
    ),
    host_op(
        name="tsched.layout",
        summary="How a tensor is laid out: its dims that are sharded over the mesh, or their order in memory.",
        operands=("value",),
        results=(),
        attributes=(
            Attribute("partition", "strs", (), "names of dims; one that is named twice is sharded over two axes"),
            Attribute("mesh_axes", "strs", (), "an axis of the mesh for each"),
            Attribute("dims", "strs", (), "names of all dims of the tensor, where they are not those of its type"),
            Attribute("halo", "any", (), "for each dim of `partition`, elements of the ranks below and above it"),
            Attribute("order", "ints", (), "its dims, the innermost last, as groups read it that would go across them"),
            Attribute("candidates", "any", (), "the orders that were to choose from"),
            Attribute("source", "str", "", "who chose the order: default, a model, override, autotune or plan"),
        ),
        verify=_check_layout,
    ),
    host_op(
        name="tsched.collective",
        summary="The plan of a group's collective: pattern, mesh axis, algorithm, dtype on the wire, topology.",
        operands=("group",),
        results=(),
        attributes=(
            Attribute("pattern", "str", "", ", ".join(PATTERNS)),
            Attribute("axis", "str", "", "the axis of the mesh"),
            Attribute("algo", "str", "", ", ".join(ALGORITHMS)),
            Attribute("quantize", "str", "", f"the dtype on the wire: {', '.join(WIRE_DTYPES)}"),
            Attribute("topology", "any", None, "links of the devices: {nodes = 2, devices = 8, inside = 450.0, ...}"),
            Attribute("plan", "any", None, "steps, bytes from each rank and nanoseconds, once an algorithm is chosen"),
        ),
        verify=_check_collective,
    ),
    host_op(
        name="tsched.mesh.region",
        summary="A part of a program that is written for one rank of a mesh axis.",
        results=("results*",),
        attributes=(_AXIS, Attribute("size", "int", 0, "its ranks; 0 for what the program declares"), *COST),
        regions=("body",),
        verify=_check_region,
    ),
    host_op(
        name="tsched.pipeline.region",
        summary="Stages along a mesh axis, through which microbatches go in the order of a schedule.",
        results=("results*",),
        attributes=(
            Attribute("schedule", "str", doc="1f1b, or interleaved with several chunks on a rank"),
            _AXIS,
            Attribute("stages", "int", 0, "ranks of the pipeline; 0 for those of the axis"),
            Attribute("microbatch", "int", doc="how many microbatches a step has"),
            *_PIPELINE_ATTRIBUTES[1:],
        ),
        regions=("body",),
        verify=_check_pipeline_region,
    ),
    host_op(
        name="tsched.stage",
        summary="A part of the program that one stage of a pipeline runs.",
        operands=("values*",),
        results=("results*",),
        attributes=(
            Attribute("body", "symbol", doc="the function or program of the stage"),
            Attribute("index", "int", doc="the number of the (virtual) stage, from 0"),
            *COST,
        ),
        verify=_check_stage,
    ),
    host_op(
        name="tsched.pipeline",
        summary="A program split into pipeline stages along a mesh axis, through which microbatches go.",
        results=(),
        attributes=(
            Attribute("symbol", "symbol", doc="the program"),
            _AXIS,
            Attribute("stages", "int"),
            Attribute("microbatch", "int"),
            *_PIPELINE_ATTRIBUTES,
        ),
        verify=_check_pipeline,
    ),
)
