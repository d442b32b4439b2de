"""The plan of a program: fusion groups and what was chosen for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.schedule.kinds import kernel_kinds
from tessera.ir.schedule.ops import COST, IN_PLACE, host_op
from tessera.ir.schedule.ops.mesh import check_mesh

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import FuseOp, ModuleOp, TileOp

MOST_STAGES = 8
"""Buffers of one tile at most: deeper prefetches find no shared memory."""


def _check_program(op: ModuleOp) -> None:
    from tessera.ir.schedule.host_program.accesses import check_program  # noqa: PLC0415 - it needs the classes made here

    check_mesh(op)
    check_program(op)


def _check_fuse(op: FuseOp) -> None:
    name, kinds = op.kind, kernel_kinds()
    if name and name not in kinds:
        op.fail(f"`kind` is one of {', '.join(kinds)}, got {name!r}")
    if op.axes and name and not kinds[name].has_axes:
        op.fail(f"only a row group has reduced `axes`, and this one is of kind {name}")
    try:
        stages_of(op.pipeline)
    except ValueError as error:
        op.fail(str(error))


def stages_of(pipeline: Any) -> int:
    """Buffers that each tile of a loop has under a `pipeline` annotation; 0 leaves it to the machine.

    Raises ValueError for anything else.
    """
    if pipeline is None:
        return 0
    if not isinstance(pipeline, Mapping):
        raise ValueError(f"`pipeline` is {{double_buffer = true}} or {{stages = n}}, got {pipeline!r}")
    given: Mapping[str, Any] = pipeline  # pyright: ignore[reportUnknownVariableType]
    unknown = sorted(set(given) - {"double_buffer", "stages"})
    if unknown or len(given) != 1:
        raise ValueError(f"`pipeline` says `double_buffer` or `stages`, one of them, got {sorted(given)}")
    if "double_buffer" in given:
        if not isinstance(given["double_buffer"], bool):
            raise ValueError(f"`double_buffer` is true or false, got {given['double_buffer']!r}")
        return 2 if given["double_buffer"] else 1
    if type(given["stages"]) is not int or not 1 <= given["stages"] <= MOST_STAGES:
        raise ValueError(f"`stages` is 1 to {MOST_STAGES} buffers, got {given['stages']!r}")
    return given["stages"]


def _check_tile(op: TileOp) -> None:
    candidates, chosen = op.candidates, op.chosen
    if not isinstance(candidates, tuple):
        op.fail(f"`candidates` are a list, as in [32, 64], got {candidates}", "restore the line as it was exported")
    if candidates and chosen is not None and chosen not in candidates:
        op.fail(f"`chosen` is none of the candidates {list(candidates)}, got {chosen}")  # pyright: ignore[reportUnknownArgumentType]
    if candidates == () and chosen is None:
        op.fail("a tile choice has candidates or a chosen value")


SPECS = (
    OpSpec(
        name="tsched.module",
        summary="A program: its plan, and after lowering the host program that runs its kernels.",
        results=(),
        attributes=(
            Attribute("symbol", "symbol", "", "the name of the program"),
            Attribute("names", "strs", (), "the path of each argument in the user's call"),
            Attribute("guards", "guards", (), "triples (left, right, what): equalities of dims checked at every call"),
            Attribute("workspace", "dim", None, "bytes of temporaries, once memory is planned"),
            Attribute("offloaded", "dim", None, "bytes of offloaded values in host memory, where there are any"),
            Attribute("mesh", "any", None, "axes of the mesh with their sizes, as in {dp = 2, tp = 4}"),
            *COST,
        ),
        regions=("body",),
        form="plan",
        is_isolated=True,
        verify=_check_program,
    ),
    host_op(
        name="tsched.return",
        summary="The end of a program: its results.",
        operands=("values*",),
        results=(),
        is_terminator=True,
    ),
    host_op(
        name="tsched.fuse",
        summary="A fusion group: the results of a body on values, computed by one kernel.",
        operands=("values*",),
        results=("results*",),
        attributes=(
            Attribute("body", "symbol", doc="a function of Graph IR; once tiles are emitted, its kernels"),
            Attribute("pattern", "str", "", "what the group was recognized as"),
            Attribute("kind", "str", "", "a kind of `ir/schedule/kinds`: map, row, contraction, assembly, library"),
            Attribute("axes", "ints", (), "the reduced axes of a row group"),
            Attribute("sizes", "sizes", (), "pairs (size of the body, dim here), where their names differ"),
            *COST,
            Attribute("kernels", "strs", (), "the tile kernels of the group, in the order they run"),
            IN_PLACE,
            Attribute("pipeline", "any", None, "how its loops prefetch: {double_buffer = true}, or {stages = 3}"),
            Attribute("launch", "int", -1, "groups of one body with one number, side by side, are one launch; or -1"),
            Attribute("rows", "int", -1, "the rows that its tiles are chosen for; -1 where those are its own"),
        ),
        verify=_check_fuse,
    ),
    host_op(
        name="tsched.tile",
        summary="The tile sizes of a group: the candidates, or what was chosen and by whom.",
        operands=("group",),
        results=(),
        attributes=(
            Attribute("candidates", "any", (), "in order of preference"),
            Attribute("chosen", "any", None, "one of them"),
            Attribute("source", "str", "", "who chose: default, a model, override or autotune"),
            Attribute("knob", "str", "", "the name of the choice"),
        ),
        verify=_check_tile,
    ),
    host_op(
        name="tsched.materialize",
        summary="The kernel that a group becomes.",
        operands=("group",),
        results=("function",),
    ),
)
