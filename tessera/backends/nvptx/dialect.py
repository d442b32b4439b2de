"""What NVIDIA GPUs add to the dialects: ops and types of `ttarget`, features, and what verifiers must know of them."""

from __future__ import annotations

from tessera.backends.nvptx.ops import REGISTRY
from tessera.backends.nvptx.tensor_cores import FEATURES, GPUS, INSTRUCTIONS, LEVELS
from tessera.backends.nvptx.types import TYPES
from tessera.ir.base.dialect_of import contribute
from tessera.ir.target.dialect import DIALECT as TTARGET
from tessera.ir.target.limits import MOVES, WARP, Move, Width, add_features
from tessera.ir.tile.choices import describe_machines

_MOVES = {
    "ttarget.copy": (Move("global", "shared", "tma"),),
    "ttarget.copy_async": (Move("global", "shared", "cp.async"),),
    "ttarget.store_tile": (Move("register", "shared"), Move("shared", "global", "tma")),
    "ttarget.store_rows": (Move("register", "shared"), Move("shared", "register"), Move("register", "global")),
    "ttarget.mma_sync": (Move("shared", "register", "ldmatrix"),),
    "ttarget.fragment_load": (Move("global", "register"),),
    "ttarget.fragment_read": (Move("shared", "register"),),
    "ttarget.fragment_store": (Move("register", "global"),),
    "ttarget.tensor_mma": (Move("shared", "tmem", "tcgen05"),),
    "ttarget.tensor_load": (Move("tmem", "register", "tcgen05"),),
}
"""What ops move between memory spaces, and by which feature."""

DIALECT = contribute(TTARGET, REGISTRY, TYPES)
"""All of `ttarget`, with the ops of this backend."""
add_features(FEATURES, LEVELS, [Width(WARP, "sm_80", 255)], INSTRUCTIONS)
MOVES.update(_MOVES)
describe_machines(GPUS.values())
