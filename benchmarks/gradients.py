"""Gradients: what a cached call costs, what compiling one takes beside the function, and the memory that one needs."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import tessera as ts
from benchmarks.latency import Finding, processor_time_of, write_record
from benchmarks.tables import seconds_text
from tessera.frontend.pytree import flatten
from tessera.ir.target import machine_code
from tessera.runtime.native.support import load_support

MOST = 1.5
"""The most that the first call of a gradient may take, as a multiple of the function's."""


def layer(x: Any, w: Any, b: Any) -> Any:
    """The layer of the README."""
    return ts.ops.softmax(ts.ops.gelu(x @ w + b))


def loss(x: Any, w: Any, b: Any) -> Any:
    """A scalar of it, with a gradient that is not zero."""
    y = layer(x, w, b)
    return (y * y).sum()


def small(x: Any, w: Any) -> Any:
    """A function of two vectors whose kernels take next to nothing."""
    return (x * w).sum() ** 2.0


def annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function anew, with the dims of the README's layer."""

    def run(x: Any, w: Any, b: Any) -> Any:
        return function(x, w, b)

    dims = (("B", "K"), ("K", "N"), ("N",))
    run.__annotations__ = {name: ts.Tensor[(*one, ts.f32)] for name, one in zip("xwb", dims, strict=True)}
    return run


GRADIENTS: dict[str, int | tuple[int, ...]] = {"w": 1, "w and b": (1, 2), "x, w and b": (0, 1, 2)}


def used_time() -> float:
    """Seconds of CPU that this process and its compile workers have used: other work of the machine does not count."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # a process that ended while this looked
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))  # its own, and those of its children that ended
    family, count = {os.getpid()}, 0
    while len(family) != count:
        count = len(family)
        family |= {process for process, parent in parents.items() if parent in family}
    return sum(ticks[process] for process in family) / os.sysconf("SC_CLK_TCK")


def first_call(function: Callable[..., Any], arguments: Sequence[Any], *, keeps: bool = False) -> float:
    """Seconds of CPU of a function's first call, with empty caches; those of before stay where it `keeps` them."""
    if not keeps:
        os.environ["TESSERA_CACHE_DIR"] = tempfile.mkdtemp()
        machine_code.forget()
    begun = used_time()
    function(*arguments)
    return used_time() - begun


def compiling(repeats: int) -> list[Finding]:
    """First calls of the layer and of gradients of it, in one process; ratios are medians over rounds."""
    rng = np.random.default_rng(0)
    shapes = ((7, 64), (64, 32), (32,))
    arguments = [rng.standard_normal(shape, np.float32) for shape in shapes]
    rounds: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        found = {"forward": first_call(ts.jit(annotated(layer)), arguments)}
        for name, argnums in GRADIENTS.items():
            found[name] = first_call(ts.grad(annotated(loss), argnums), arguments)
        first_call(ts.jit(annotated(layer)), arguments)
        later = ts.grad(annotated(loss), (1, 2))
        found["later"] = first_call(later, arguments, keeps=True)
        rounds.append(found)
    del rounds[0]  # it loads the compiler

    def ratio(name: str) -> float:
        return statistics.median(one[name] / one["forward"] for one in rounds)

    forward = statistics.median(one["forward"] for one in rounds)
    return [
        Finding("first call of the layer, seconds of CPU", forward),
        *(Finding(f"gradient by {name}, over the layer", ratio(name), MOST) for name in GRADIENTS),
        Finding("gradient by w and b behind the layer, over the layer", ratio("later"), MOST),
    ]


def calls() -> list[Finding]:
    """Cached calls, kernels included, in seconds of this thread."""
    x, w = (ts.array(np.full(64, value, np.float32)) for value in (1, 2))
    rows = ts.array(np.ones((8, 64), np.float32))
    made: dict[str, tuple[Callable[..., Any], Any]] = {
        "jit(f)": (ts.jit(small), (x, w)),
        "grad(f)": (ts.grad(small), (x, w)),
        "value_and_grad(f, (0, 1))": (ts.value_and_grad(small, (0, 1)), (x, w)),
        "jit(grad(f))": (ts.jit(ts.grad(small)), (x, w)),
        "vmap(f)": (ts.vmap(small), (rows, rows)),
    }
    found: list[Finding] = []
    for name, (function, arguments) in made.items():
        expected = [np.asarray(leaf) for leaf in flatten(function(*arguments))[0]]
        again = [np.asarray(leaf) for leaf in flatten(function(*arguments))[0]]
        assert all(map(np.array_equal, expected, again))
        seconds = processor_time_of(lambda f=function, given=arguments: f(*given), calls=5000)
        found.append(Finding(f"cached call of {name}, kernels included", seconds, 2e-6))
    eager = processor_time_of(lambda: ts.grad(small)(x, w), calls=2000)
    return [*found, Finding("grad(f)(x, w) written in a loop", eager, 1e-5)]


# Memory: what is planned for twelve layers is what a call takes, whatever of the forward part is kept.

LAYERS, WIDTH, HEADS = 12, 16, 2


def block(p: Any, x: Any) -> Any:
    """Attention and an MLP, each behind a norm."""
    batch, length, width = x.shape
    hidden = ts.ops.layernorm(x, p["gain"], p["shift"]) @ p["qkv"]
    q, k, v = hidden.reshape((batch, length, 3, HEADS, width // HEADS)).transpose((2, 0, 3, 1, 4))
    mixed = ts.ops.attention(q, k, v, causal=True).transpose((0, 2, 1, 3)).reshape((batch, length, width))
    x = x + mixed @ p["out"]
    return x + ts.ops.gelu(ts.ops.layernorm(x, p["gain"], p["shift"]) @ p["up"]) @ p["down"]


@dataclass(frozen=True)
class Peak:
    """The bytes of workspace that are planned for a program, those that a call has in use at most, and its results."""

    planned: int
    measured: int
    results: tuple[bytes, ...]


def peak_of(gradient: Callable[..., Any], *arguments: Any) -> Peak:
    """What a call takes on one thread: kernels have scratch on each, which no plan counts."""
    results = tuple(np.asarray(leaf).tobytes() for leaf in flatten(gradient(*arguments))[0])
    lines = str(gradient.explain(*arguments)).splitlines()  # pyright: ignore[reportFunctionMemberAccess]
    planned = next(int(line.split()[1]) for line in lines if line.split()[:1] == ["workspace:"])
    support = load_support()
    threads = support.threads()
    support.configure(1)
    try:
        support.memory.peak = before = support.memory.in_use
        gradient(*arguments)
        return Peak(planned, support.memory.peak - before, results)
    finally:
        support.configure(threads)


def peaks() -> dict[str, Peak]:
    """Gradients of twelve layers by what they keep."""
    rng = np.random.default_rng(0)
    shapes = {"gain": (WIDTH,), "shift": (WIDTH,), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = [
        {name: rng.standard_normal(shape, np.float32) / 4 for name, shape in shapes.items()} for _ in range(LAYERS)
    ]
    x = rng.standard_normal((2, 16, WIDTH), np.float32)

    def gradient_of(block: Callable[..., Any]) -> Callable[..., Any]:
        def loss(layers: Any, x: Any) -> Any:
            for one in layers:
                x = block(one, x)
            return (x * x).mean()

        return ts.grad(loss)

    dots = ts.checkpoint(block, policy=ts.checkpoint_policies.dots_saveable)
    kinds = {"minimum cut": block, "dots_saveable": dots, "checkpoint of each layer": ts.checkpoint(block)}
    return {name: peak_of(gradient_of(one), layers, x) for name, one in kinds.items()}


def memory() -> list[Finding]:
    """Planned and measured peaks; what a call has in use beside its plan is the same for each of them."""
    found = peaks()
    first, *others = found.values()
    assert all(one.results == first.results for one in others), "gradients have other bits where they keep less"
    beside = first.measured - first.planned
    return [
        finding
        for name, one in found.items()
        for finding in (
            Finding(f"{LAYERS} layers, {name}: bytes planned", one.planned, first.planned),
            Finding(f"{LAYERS} layers, {name}: bytes in use at the peak", one.measured, one.planned + beside),
        )
    ]


def text_of(name: str, value: float) -> str:
    """A figure in its unit."""
    if "bytes" in name:
        return f"{value:,.0f} B"
    return f"{value:.2f}x" if name.startswith("gradient by") else seconds_text(value)


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of first calls.")] = 5,
    name: Annotated[str, typer.Option(help="Name of the file in benchmarks/results.")] = "",
) -> None:
    """Measure gradients against their limits; exit code 1 if one is missed."""
    console, started = Console(width=140), time.perf_counter()
    findings = [*calls(), *memory(), *compiling(repeats)]
    for one in findings:
        texts = [text_of(one.name, value) for value in (one.seconds, one.limit or 0.0)]
        word = "" if one.limit is None else f"limit {texts[1]}: " + ("reached" if one.is_reached else "missed")
        console.print(f"{one.name:64} {texts[0]:>10}  {word}")
    file = write_record("gradients", name, findings)
    console.print(f"written: {file}, after {time.perf_counter() - started:.0f} s")
    raise typer.Exit(0 if all(finding.is_reached for finding in findings) else 1)


if __name__ == "__main__":
    typer.run(main)
