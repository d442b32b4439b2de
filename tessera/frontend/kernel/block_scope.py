"""Results that depend on block sizes: refused, or fixed where the author computes on single blocks.

A schedule says how a kernel runs, never what it computes, so that schedules may be searched. A reduction of one block
of a row breaks that: its value is another one for every block size. `check_blocks` proves that no result depends on
blocks, refuses the kernel, or guards it where the number of blocks is known only when it is called.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import BlockValueError, ScheduleError
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder, ProgramAxis, current
from tessera.frontend.kernel.extents import RowExtent, ScheduleFloat, ScheduleInt, roles_of, with_roles
from tessera.frontend.kernel.tiles import Operand, Tile, make_tile, number_of, unbroadcast
from tessera.ir.tile.block_dependence import FIX, RULE, BlockDependence, describe_dependence
from tessera.ir.tile.block_facts import Coordinate
from tessera.ir.tile.block_tiles import Dependence
from tessera.ir.tile.records import Body
from tessera.types.schedule import NAMES, Schedule

SCOPES = ("row", "block")
PARAMETERS = {role: name for name, role in NAMES.items()}


def per_block(x: Any) -> Any:
    """A value that depends on block sizes on purpose: a reduction of one block, `T.n` as a number, a block's start.

    The blocks that it depends on are fixed: a schedule must give them, and neither the compiler nor `kernel.autotune`
    tries others. Reductions, scans and `dot` have `scope="block"` for it.
    """
    b = current()
    if isinstance(x, int | float) and not isinstance(x, bool):
        b.blocks.fixed.update(dict.fromkeys(sorted(roles_of(x))))
        return int(x) if isinstance(x, int) else float(x)
    if not isinstance(x, Operand):
        raise b.fail(f"`per_block` takes a tile or a number, got {type(x).__name__}")
    tile = unbroadcast(b, x.materialize())
    made = make_tile(b, "per_block", [number_of(b, tile)], {}, tile.type, tile.axes, tile.pad_value)
    made.loop_end = tile.loop_end
    return made


def in_scope(scope: Any, tile: Tile) -> Tile:
    """The result of a reduction in a scope: `block` marks it as one of each block."""
    if scope not in SCOPES:
        raise current().fail(
            f"`scope` is one of {', '.join(SCOPES)}, got {scope!r}",
            'write `scope="block"` for a reduction of each block, and nothing for one of whole rows',
        )
    return per_block(tile) if scope == "block" else tile


def tile_shape(b: KernelBuilder, x: Operand) -> tuple[int, ...]:
    """The shape of a tile as the kernel sees it: sizes that are blocks of the schedule say so."""
    tile = x.materialize()
    roles = b.blocks.sized.get(tile.number, ())
    found: list[int] = []
    for axis, (origin, size) in enumerate(zip(tile.axes, tile.shape, strict=True)):
        known = b.coordinate_roles(origin.name) if origin is not None else frozenset[str]()
        given = roles_of_text(roles[axis]) if axis < len(roles) else frozenset[str]()
        dim = origin.dim if origin is not None and origin.name == "_z" else None
        if dim is not None and dim.value is None:
            found.append(RowExtent(size, dim))
        else:
            found.append(with_roles(size, known | given))
    return tuple(found)


def roles_of_text(text: str) -> frozenset[str]:
    """Roles from their text: `m,n`."""
    return frozenset(text.split(",")) if text else frozenset[str]()


def check_number(b: KernelBuilder, value: Any) -> None:
    """Raises BlockValueError (T0504) for a number of the schedule beside tiles."""
    roles = sorted(roles_of(value))
    if not roles:
        return
    names = " and ".join(f"`T.{role}`" for role in roles)
    raise BlockValueError(
        f"{value} is computed from {names}, a choice of the schedule, and would change the result with it",
        span=b.span,
        notes=(RULE,),
        fix="use a size of a tensor, such as `x.shape[1]`, or a number; `tile.per_block(...)` fixes the block",
    )


def check_choice(b: KernelBuilder, is_fixed: bool, *values: Any) -> None:
    """Raises BlockValueError (T0504) where Python decides by a number of the schedule, or fixes its blocks."""
    for value in numbers_in(values):
        if not is_fixed:
            check_number(b, value)
        b.blocks.fixed.update(dict.fromkeys(sorted(roles_of(value))))


def numbers_in(value: Any) -> list[Any]:
    """The numbers of the schedule in a value: in its items, and in the parts of slices."""
    if isinstance(value, slice):
        part: Any = value  # pyright: ignore[reportUnknownVariableType]
        return numbers_in((part.start, part.stop, part.step))
    if isinstance(value, tuple | list):
        items: Any = value  # pyright: ignore[reportUnknownVariableType]
        return [number for item in items for number in numbers_in(item)]
    return [value] if isinstance(value, ScheduleInt | ScheduleFloat) and value.roles else []


def check_blocks(b: KernelBuilder, body: Body) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Blocks of the schedule that bits of results depend on, and those that the author fixed.

    Raises BlockValueError (T0504) where a result depends on others; where a single block may hold the whole dim, the
    kernel is guarded instead.
    """
    walk = BlockDependence(b.types, _coordinates(b), b.blocks.sized)
    walk.run(body)
    fixed = {*b.blocks.fixed, *(role for text in walk.marked for role in text.split(","))}
    for found in walk.found:
        _refuse(b, found)
    pinned = [role for text in walk.pinned for role in text.split(",")]
    return tuple(dict.fromkeys(pinned)), tuple(sorted(fixed))


def _coordinates(b: KernelBuilder) -> dict[int, Coordinate]:
    """The starts of blocks: of the grid where it has several, and of loops whose step the schedule gives."""
    found = dict(b.blocks.starts)
    for role in ("m", "n"):
        axis = b.axes.get(f"_{role}")
        if axis is not None and axis.extent != UNKNOWN and axis.blocks.value not in (0, 1):
            found[b.coords[axis.name]] = Coordinate(f"%{axis.name}", role, axis.size, axis.extent)
    return found


def _refuse(b: KernelBuilder, found: Dependence) -> None:
    """Raise, or guard a kernel that is right where one block holds the whole dim."""
    cause = found.cause or found.store
    axis: ProgramAxis | None = None if found.coordinate.is_loop else b.axes.get(f"_{found.coordinate.role}")
    message = describe_dependence(found)
    if axis is not None and axis.blocks.value is None:
        where = f" (line {cause.span.line})" if cause.span is not None else ""
        rule = f"{message}{where}, so one block must hold all of them: `T.d` or `:` loads the whole dim"
        b.require_one_block(axis, rule)
        return
    notes = [RULE]
    if found.store.span is not None and found.store.span != cause.span:
        notes.insert(0, f"it is stored at {found.store.span}")
    raise BlockValueError(message, span=cause.span or found.store.span or b.span, notes=tuple(notes), fix=FIX)


def check_fixed(name: str, fixed: tuple[str, ...], given: Schedule | None) -> None:
    """Raises ScheduleError (T0401) where no schedule gives a block that a kernel fixes."""
    missing = [role for role in fixed if getattr(given or Schedule(), role) is None]
    if missing:
        listed = ", ".join(f"`{PARAMETERS.get(role, role)}`" for role in missing)
        raise ScheduleError(
            f"`{name}` computes on single blocks, and no schedule gives {listed}",
            notes=("rule: a block that results depend on is given by a schedule, never chosen",),
            fix="write it, as in `@kernel.schedule(Schedule(block=(16, 128)))`",
        )
