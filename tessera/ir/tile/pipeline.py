"""The passes of the tile stage, in order, and what may leave it."""

from __future__ import annotations

from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import Legality
from tessera.ir.tile.passes.drop_bounds import DropBounds
from tessera.ir.tile.passes.expand_softmax import ExpandSoftmax

EXIT = Legality("tile", frozenset(["tsched", "ttile"]))


def pipeline(*, debug: bool = False, fast_math: bool = False) -> list[Pass]:
    """Kernels that the compiler makes are right by construction, so only a debug build pays for being told so."""
    # First: no other pass knows ops that stand for others.
    # Bounds next: what is left out here is proved once more by the checks of a debug build.
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
        # Bounds next: two programs that leave a buffer may meet anywhere.
        CheckBounds(),
        CheckRaces(),
        # Last, as a barrier keeps workers of one program apart, and programs have none.
        CheckBarriers(),
        # Anywhere: no other pass changes how a kernel rounds.
        CheckPolicy(),
    ]
