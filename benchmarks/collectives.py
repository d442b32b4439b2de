"""`python -m benchmarks.collectives`: an all-reduce between two ranks against torch.distributed (gloo), by size.

Two processes are ranks of both libraries at once, and reduce the same f32 values by each in turns, so that both see the
same machine in the same seconds. Results are compared before anything is timed. A time is that of the slower rank, and
of many the median; bandwidth is the bytes of the array over it. The ratio of the shortest times is beside that of the
medians: where other programs run too, it says more.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tessera as ts

SIZES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Bytes of the array."""


def calls_of(size: int) -> int:
    """How often a size is measured: small ones often, since they are short."""
    return max(5, min(200, (64 << 20) // size))


@ts.jit(dynamic=True)
def reduce_ours(x: Any) -> Any:
    """Our all-reduce."""
    return ts.dist.all_reduce(x, "dp")


def _torch_reduce(file: str, rank: int, ranks: int) -> Callable[[Any], None]:
    """An all-reduce in place by gloo."""
    import torch.distributed as dist  # noqa: PLC0415 - a peer, loaded where it is asked for

    peer: Any = dist
    peer.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    return lambda x: peer.all_reduce(x)


def measure(file: str) -> list[tuple[int, list[float], list[float]]]:
    """Of each size, the seconds of each call of ours and of the peer's on this rank."""
    import torch  # noqa: PLC0415 - a peer

    peer: Any = torch
    rank, ranks = ts.dist.rank(), ts.dist.world_size()
    peer.set_num_threads(1)
    theirs = _torch_reduce(file, rank, ranks)
    found: list[tuple[int, list[float], list[float]]] = []
    with ts.dist.mesh(dp=ranks):
        for size in SIZES:
            values = np.random.default_rng(rank).standard_normal(size // 4).astype(np.float32)
            x, y = ts.array(values), peer.from_numpy(values.copy())
            ours = np.asarray(reduce_ours(x))
            theirs(y)
            np.testing.assert_allclose(ours, y.numpy(), rtol=1e-6, atol=1e-6)
            times: tuple[list[float], list[float]] = ([], [])
            y.zero_()  # adding it up again and again stays finite
            for _ in range(calls_of(size) + 2):
                for at, call in enumerate((lambda: reduce_ours(x), lambda: theirs(y))):  # noqa: B023
                    begin = time.perf_counter()
                    call()
                    times[at].append(time.perf_counter() - begin)
            found.append((size, times[0][2:], times[1][2:]))
    peer.distributed.destroy_process_group()
    return found


def summarize(results: list[list[tuple[int, list[float], list[float]]]]) -> list[Mapping[str, float]]:
    """A row for each size: medians over calls of the slower rank."""
    rows: list[Mapping[str, float]] = []
    for parts in zip(*results, strict=True):
        size = parts[0][0]
        ours, theirs = (
            [max(times) for times in zip(*(part[which] for part in parts), strict=True)] for which in (1, 2)
        )
        medians = [statistics.median(ours), statistics.median(theirs)]
        ratios = {"ratio": medians[1] / medians[0], "best": min(theirs) / min(ours)}
        rows.append({"bytes": size, "ours": medians[0], "gloo": medians[1], **ratios})
    return rows


def main() -> None:
    """Print the table."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        rows = summarize(ts.dist.run(measure, ranks, args=(os.path.join(folder, "peers"),)))
    print(f"all_reduce (sum) of f32, {ranks} ranks on {len(os.sched_getaffinity(0))} CPUs; ratio > 1: faster than gloo")
    print(f"{'bytes':>10} {'ours':>12} {'gloo':>12} {'ours GB/s':>10} {'ratio':>6} {'of best':>8}")
    for row in rows:
        rate = row["bytes"] / row["ours"] / 1e9
        print(
            f"{row['bytes']:>10} {row['ours'] * 1e6:>9.1f} us {row['gloo'] * 1e6:>9.1f} us {rate:>10.3f} "
            f"{row['ratio']:>6.2f} {row['best']:>8.2f}"
        )


if __name__ == "__main__":
    main()
