"""What ranks run in tests of tuned collectives: functions that a new process can find."""

from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts


@ts.jit
def reduce(x: Any) -> Any:
    """Every collective that reduces, and one that does not."""
    total, largest = ts.dist.all_reduce(x, "dp"), ts.dist.all_reduce(x.cast("bf16"), "dp", "mean")
    return total, largest, ts.dist.reduce_scatter(x, "dp"), ts.dist.all_to_all(x, "dp")


def reduce_here(rows: int) -> tuple[list[bytes], list[str]]:
    """The bits that a rank gets, and what its collectives were called."""
    x = ts.array(np.random.default_rng(ts.dist.rank()).standard_normal((rows, 16)).astype(np.float32))
    with ts.dist.timeline() as timeline, ts.dist.mesh(dp=ts.dist.world_size()):
        found = reduce(x)
    return [one.tobytes() for one in found], [span.name for span in timeline.spans if span.kind == "collective"]
