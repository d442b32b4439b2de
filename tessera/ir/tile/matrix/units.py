"""The matrix units there are: their instructions, how they share out a tile, and which of them a machine prefers."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target import ampere_limits, blackwell_limits, hopper_limits
from tessera.ir.target.hopper_limits import ROWS
from tessera.ir.target.matrix_instructions import PLAIN
from tessera.ir.target.ops.hopper_kernel import FEATURES as HOPPER_FEATURES
from tessera.ir.tile.matrix.plan import UnfitError, Units
from tessera.types.machine import Machine

AUTOMATIC = "automatic"
_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
"""Warpgroups for so many rows; two of them take 128 rows each where there are 256."""
_MOST_SUMS = 128
"""Accumulators of a thread of single warps, of all products together."""
_COLUMNS = 16
"""Columns of a right side that one `ldmatrix` reads."""
_ONE_GROUP = 128
"""Columns of tensor memory that one warpgroup has registers for; more are shared by two."""


def _warpgroups(rows: int, columns: Sequence[int]) -> int:
    if rows not in _CONSUMERS:
        raise UnfitError(f"products have {' or '.join(map(str, _CONSUMERS))} rows, got {rows}")
    return _CONSUMERS[rows]


def _warps(rows: int, columns: Sequence[int]) -> int:
    """The fewest groups of four warps whose sums fit their registers: the more rows a warp has, the less it reads."""
    if any(count % _COLUMNS for count in columns):
        raise UnfitError(f"products have columns in {_COLUMNS}s, got {', '.join(map(str, columns))}")
    blocks, rest = divmod(rows, ROWS)
    for groups in range(1, ampere_limits.MAX_GROUPS + 1):
        if not rest and blocks and blocks % groups == 0 and blocks // groups * sum(columns) // 2 <= _MOST_SUMS:
            return groups
    raise UnfitError(f"products of {rows} x {', '.join(map(str, columns))} do not fit the registers of whole warps")


def _tensors(rows: int, columns: Sequence[int]) -> int:
    most, widest = blackwell_limits.ROWS, blackwell_limits.WIDEST
    if rows != most or len(columns) != 1 or columns[0] % 16 or columns[0] > widest:
        raise UnfitError(
            f"tensor memory takes one product of {most} rows by columns in 16s up to {widest}, "
            f"got {rows} by {', '.join(map(str, columns))}"
        )
    return 1 if columns[0] <= _ONE_GROUP else 2


WARPGROUPS = Units(
    "wgmma",
    HOPPER_FEATURES,
    hopper_limits.PRODUCTS,
    _warpgroups,
    3,
    rounded=hopper_limits.FORMS,
    trims=True,
    sends=True,
    cuts=True,
    formats=("tf32",),
    lines=hopper_limits.SPANS,
)
"""Those of Hopper."""
WARPS = Units(
    "mma.sync",
    ampere_limits.FEATURES,
    ampere_limits.PRODUCTS,
    _warps,
    ampere_limits.MAX_GROUPS,
    rounded=ampere_limits.FORMS,
)
"""Matrix units of single warps, as every machine from sm_80 on has them."""
TENSORS = Units("tcgen05", blackwell_limits.FEATURES, blackwell_limits.PRODUCTS, _tensors, 2)
"""Matrix units that sum in tensor memory."""
UNITS = {units.name: units for units in (TENSORS, WARPGROUPS, WARPS)}
"""By the name of their instruction, the best first."""
_ORDER = {WARPGROUPS.name: (WARPGROUPS,), TENSORS.name: (TENSORS, WARPS), WARPS.name: (WARPS,)}
"""The best units that a machine may have, each with what takes over where they do not fit."""


def units_of(machine: Machine) -> tuple[str, ...]:
    """What `matrix.units` can be on a machine."""
    return (AUTOMATIC, *(name for name in UNITS if machine.has(name)), PLAIN)


def tried_on(machine: Machine) -> tuple[Units, ...]:
    """The units that a kernel is tried on where nobody asks for others, in order."""
    return next((ways for name, ways in _ORDER.items() if machine.has(name)), ())


def check_machine(machine: Machine, features: Sequence[str]) -> None:
    """Raises `UnfitError` for a machine that lacks what a kernel cannot be without."""
    if not all(machine.has(feature) for feature in features):
        raise UnfitError(f"{machine.name} lacks {' or '.join(features)}")
