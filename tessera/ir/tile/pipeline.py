"""The passes of the tile stage, in order, and what may leave it."""

from __future__ import annotations

from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import Legality
from tessera.ir.tile.passes.drop_bounds import DropBounds
from tessera.ir.tile.passes.expand_softmax import ExpandSoftmax

EXIT = Legality("tile", frozenset(["tsched", "ttile"]))


def pipeline(*, debug: bool = False, fast_math: bool = False) -> list[Pass]:
    """Kernels that the compiler makes are right by construction, so only a debug build pays for being told so."""
    # Composite ops first: no other pass knows them. Then bounds, before the checks of a debug build prove the rest.
    passes: list[Pass] = [ExpandSoftmax(), DropBounds()]
    if fast_math:
        from tessera.ir.tile.passes.fuse_multiply_adds import FuseMultiplyAdds  # noqa: PLC0415 - few ask for it

        # Before the checks, which then look at what will run.
        passes.append(FuseMultiplyAdds())
    if not debug:
        return passes
    # None is loaded unless it is asked for: proofs need isl, and run addresses on NumPy.
    from tessera.ir.tile.passes.check_barriers import CheckBarriers  # noqa: PLC0415
    from tessera.ir.tile.passes.check_bounds import CheckBounds  # noqa: PLC0415
    from tessera.ir.tile.passes.check_policy import CheckPolicy  # noqa: PLC0415
    from tessera.ir.tile.passes.check_races import CheckRaces  # noqa: PLC0415

    return [
        *passes,
        # Before the two checks of races: accesses that leave their buffer may conflict anywhere.
        CheckBounds(),
        CheckRaces(),
        # After races of programs, which no barrier orders: here those of workers of one program are left.
        CheckBarriers(),
        # Anywhere: no other pass changes how a kernel rounds.
        CheckPolicy(),
    ]
