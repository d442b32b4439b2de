"""What ranks run in the tests: functions that a new process can find."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np

import tessera as ts
from tessera import ops
from tessera.runtime.timeline import Span, Timeline


def values(rank: int, *shape: int) -> Any:
    """What a rank has."""
    return ts.array(np.random.default_rng(rank).standard_normal(shape).astype(np.float32))


def everything(x: Any, axis: str) -> Any:
    """Every collective along an axis."""
    reduced = tuple(ts.dist.all_reduce(x, axis, op) for op in ("sum", "max"))
    gathered = tuple(ts.dist.all_gather(x, axis, dim) for dim in (0, 1))
    shared = ts.dist.reduce_scatter(x, axis, 1)
    swapped = ts.dist.all_to_all(x, axis, 1, 0)
    narrow, whole = x.cast("bf16"), (x * 100.0).cast("i32")
    means = tuple(ts.dist.all_reduce(one, axis, "mean") for one in (x, narrow, whole))
    parts = ts.dist.reduce_scatter(narrow, axis, 1, "mean")
    return (*reduced, *means, parts, *gathered, shared, swapped, ts.dist.axis_index(axis))


JITTED = ts.jit(everything, static_argnames="axis", dynamic=True)
PLAIN = ts.jit(everything, static_argnames="axis", backend="reference")


def raw(found: Any) -> list[bytes]:
    return [one.tobytes() for one in found]


def compare() -> list[tuple[tuple[int, ...], bool]]:
    """Compiled code and the reference between the same ranks: for which shapes they agree bit for bit."""
    found: list[tuple[tuple[int, ...], bool]] = []
    for shape in ((4, 8), (3, 4), (0, 4)):
        x = values(ts.dist.rank(), *shape)
        with ts.dist.mesh(dp=4):
            found.append((shape, raw(JITTED(x, "dp")) == raw(PLAIN(x, "dp"))))
    return found


@ts.jit
def seed_step(A: Any, B: Any) -> Any:
    return ts.dist.all_reduce(ops.matmul(A, B), axis="dp", op="sum")


def seed_snippet() -> Any:
    """Data parallel: each rank has a part of the inner axis."""
    rank = ts.dist.rank()
    with ts.dist.mesh(dp=4):
        return seed_step(values(rank, 3, 5), values(10 + rank, 5, 2))


def four_ranks() -> Any:
    """All that a world of four is asked for."""
    return compare(), seed_snippet(), refused_mesh()


def refused_mesh() -> str:
    try:
        with ts.dist.mesh(dp=3):
            return ""
    except ts.TesseraError as error:
        return error.message


LENGTH = 40


def step(x: Any, w: Any) -> Any:
    total = ts.dist.all_reduce(ops.matmul(x, x), "dp")
    for _ in range(LENGTH):
        w = ops.matmul(w, w)
    return total, w


OVERLAPPED = ts.jit(step)
APART = ts.jit(step, overrides={"collectives.overlap": False})


def run_timed(folder: str) -> list[tuple[tuple[Span, ...], list[bytes]]]:
    """The spans and results of a step with and without overlap.

    With it, rank 1 comes to the collective only when rank 0 has said that a kernel of it runs while the collective is
    under way: where nothing overlaps, it never does, and rank 1 comes after all when it has waited long enough.
    """
    rank = ts.dist.rank()
    x, w = (ts.array((np.eye(size) * (1 + rank)).astype(np.float32)) for size in (64, 448))
    found: list[tuple[tuple[Span, ...], list[bytes]]] = []
    flag = os.path.join(folder, "running")
    with ts.dist.mesh(dp=2):
        for program in (APART, OVERLAPPED):
            program(x, w)  # compiled, and all ranks are there
            with ts.dist.timeline() as timeline:
                if program is OVERLAPPED and rank == 0:
                    threading.Thread(target=_tell, args=(timeline, flag), daemon=True).start()
                if program is OVERLAPPED and rank == 1:
                    _await(flag)
                results = program(x, w)
            found.append((timeline.spans, raw(results)))
    return found


def _tell(timeline: Timeline, flag: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if {"kernel", "collective"} <= {kind for kind, _ in timeline.running()}:
            with open(flag, "w", encoding="utf-8"):
                return
        time.sleep(0.0005)


def _await(flag: str) -> None:
    end = time.monotonic() + 20
    while not os.path.exists(flag) and time.monotonic() < end:
        time.sleep(0.001)


@ts.jit(backend="reference")
def total(x: Any) -> Any:
    return ts.dist.all_reduce(x, "dp")


def dying() -> Any:
    """One rank dies where the others wait for it."""
    with ts.dist.mesh(dp=3):
        total(ts.ones(2))  # all are there
        if ts.dist.rank() == 1:
            os._exit(7)
        return total(ts.ones(4)).tolist()


def failing() -> Any:
    print("from", ts.dist.rank())
    with ts.dist.mesh(dp=2):
        total(ts.ones(2))  # all are there
        if ts.dist.rank() == 1:
            raise ValueError("no good")
        return total(ts.ones(4)).tolist()


def sleeping(folder: str) -> None:
    with open(os.path.join(folder, str(os.getpid())), "w", encoding="utf-8"):
        time.sleep(60)


def layer_data() -> tuple[Any, Any, Any]:
    """Weights, inputs and labels of a layer in f64."""
    rng = np.random.default_rng(8)
    return rng.standard_normal((8, 6)), rng.standard_normal((12, 8)), rng.integers(0, 6, 12)


def layer_loss(w: Any, x: Any, y: Any) -> Any:
    return ops.cross_entropy(ops.tanh(x @ w), y, reduction="sum")


@ts.jit
def sharded_step(part: Any, x: Any, y: Any) -> Any:
    def loss(part: Any) -> Any:
        return layer_loss(ts.dist.all_gather(part, "dp", 0), x, y)

    value, gradient = ts.value_and_grad(loss)(part)
    return ts.dist.all_reduce(value, "dp", "sum"), gradient


def sharded_gradient() -> Any:
    """What a rank gets that has a quarter of the weights and of the data."""
    rank, (w, x, y) = ts.dist.rank(), layer_data()
    with ts.dist.mesh(dp=4):
        return sharded_step(np.split(w, 4)[rank], np.split(x, 4)[rank], np.split(y, 4)[rank])


def _step(w: Any, x: Any, y: Any) -> Any:
    """A step of a layer on whole tensors."""

    def loss(one: Any) -> Any:
        return ((ops.tanh(x @ one) - y) ** 2).mean()

    value, gradient = ts.value_and_grad(loss)(w)
    return value, w - 0.5 * gradient


def _step_data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(11)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 16), (8, 8)))  # pyright: ignore[reportReturnType]


def partitioned_step() -> list[float]:
    """Three steps on this rank's parts: data over `dp`, columns of the weight over `tp`."""
    w, x, y = _step_data()
    with ts.dist.mesh(dp=2, tp=2):
        specs = ((None, "tp"), ("dp", None), ("dp", "tp"))
        step = ts.dist.partition(_step, specs, (None, (None, "tp")))
        w, x, y = (ts.dist.shard_of(one, spec) for one, spec in zip((w, x, y), specs, strict=True))
        losses: list[float] = []
        for _ in range(3):
            value, w = step(w, x, y)
            losses.append(float(value))
    return losses


def whole_step() -> list[float]:
    """The same in one process."""
    w, x, y = _step_data()
    losses: list[float] = []
    for _ in range(3):
        value, w = ts.jit(_step)(w, x, y)
        losses.append(float(value))
    return losses
