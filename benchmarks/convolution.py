"""Convolutions on a CPU: layers of ResNet-50, ConvNeXt and a UNet, and random ones, against oneDNN (torch) and XLA.

`python -m benchmarks.convolution --threads 1` times forward passes with bias and ReLU, interleaved and in random order,
each peer in both layouts; `--direction image` and `--direction weights` time gradients. A ratio is the time of the best
peer over ours. Every answer is compared with float64 first.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks import environment
from benchmarks.harness import Entry, Plan, Row, take_turns, time_calls
from benchmarks.result import geometric_mean

DIRECTIONS = ("forward", "image", "weights")


@dataclass(frozen=True)
class Layer:
    """One convolution of a net: its images, channels and window."""

    net: str
    batch: int
    channels: int
    size: int
    outputs: int
    taps: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def name(self) -> str:
        shape = f"{self.batch}x{self.channels}x{self.size}x{self.size} to {self.outputs}"
        group = f" in {self.groups} groups" if self.groups > 1 else ""
        return f"{self.net} {shape} by {self.taps}x{self.taps}/{self.stride}{group}"

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """Images, weights, bias, and a gradient of the result."""
        rng = np.random.default_rng(0)
        extent = (self.size + 2 * self.padding - self.taps) // self.stride + 1
        inputs = self.channels // self.groups
        shapes = (
            (self.batch, self.channels, self.size, self.size),
            (self.outputs, inputs, self.taps, self.taps),
            (self.outputs,),
            (self.batch, self.outputs, extent, extent),
        )
        x, w, b, g = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        return x, w / np.float32((inputs * self.taps**2) ** 0.5), b, g


def resnet(batch: int) -> Iterator[Layer]:
    """The stem, and of each stage the 3 x 3, both 1 x 1 and what changes its size."""
    yield Layer("resnet", batch, 3, 224, 64, 7, 2, 3)
    before = 64
    for width, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        stride = 1 if width == 64 else 2
        yield Layer("resnet", batch, width, size, width, 3, 1, 1)
        yield Layer("resnet", batch, 4 * width, size, width, 1)
        yield Layer("resnet", batch, width, size, 4 * width, 1)
        if stride > 1:
            yield Layer("resnet", batch, width, 2 * size, width, 3, 2, 1)
        yield Layer("resnet", batch, before, stride * size, 4 * width, 1, stride)
        before = 4 * width


def convnext(batch: int) -> Iterator[Layer]:
    """The stem, and of each stage the depthwise 7 x 7 and what halves its size."""
    yield Layer("convnext", batch, 3, 224, 96, 4, 4)
    for width, size in ((96, 56), (192, 28), (384, 14), (768, 7)):
        yield Layer("convnext", batch, width, size, width, 7, 1, 3, width)
        if width < 768:
            yield Layer("convnext", batch, width, size, 2 * width, 2, 2)


def unet(batch: int) -> Iterator[Layer]:
    """Of each level the first convolution and the one after the skip connection."""
    for width, size in ((64, 128), (128, 64), (256, 32), (512, 16)):
        yield Layer("unet", batch, width, size, width, 3, 1, 1)
        yield Layer("unet", batch, 2 * width, size, width, 3, 1, 1)


def drawn(count: int, seed: int) -> Iterator[Layer]:
    """Layers that nobody named."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        taps, stride = int(rng.choice([1, 3, 3, 5, 7])), int(rng.choice([1, 1, 2]))
        channels, outputs = (int(8 * rng.integers(1, 40)) for _ in range(2))
        groups = channels if rng.random() < 0.25 else 1
        size = int(rng.integers(max(taps, 5), 64))
        whole = channels if groups > 1 else outputs
        yield Layer("drawn", int(rng.integers(1, 6)), channels, size, whole, taps, stride, taps // 2, groups)


def _with_tessera(layer: Layer, direction: str, arrays: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    ts: Any = importlib.import_module("tessera")  # after the number of threads is set

    window = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}

    def convolve(x: Any, w: Any) -> Any:
        return ts.ops.conv2d(x, w, **window)

    def run(x: Any, w: Any, b: Any, g: Any) -> Any:
        if direction == "forward":
            return ts.ops.relu(convolve(x, w) + b[None, :, None, None])
        if direction == "image":
            return ts.vjp(functools.partial(convolve, w=w), x)[1](g)[0]
        return ts.vjp(functools.partial(convolve, x), w)[1](g)[0]

    given = [ts.array(one) for one in arrays]
    return {"tessera": functools.partial(ts.jit(run), *given)}


def _with_torch(layer: Layer, direction: str, arrays: Sequence[Any], threads: int) -> dict[str, Callable[[], Any]]:
    torch: Any = importlib.import_module("torch")  # after the number of threads is set

    torch.set_num_threads(threads)
    step, pad = [layer.stride] * 2, [layer.padding] * 2

    def run(x: Any, w: Any, b: Any, g: Any) -> Any:
        with torch.no_grad():
            if direction == "forward":
                return torch.relu_(torch.conv2d(x, w, b, step, pad, [1, 1], layer.groups))
            wanted = [direction == "image", direction == "weights", False]
            backward: Any = torch.ops.aten.convolution_backward
            made = backward(g, x, w, None, step, pad, [1, 1], False, [0, 0], layer.groups, wanted)
            return made[0 if direction == "image" else 1]

    first = [torch.from_numpy(one) for one in arrays]
    last = [one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one for one in first]
    return {"torch": functools.partial(run, *first), "torch last": functools.partial(run, *last)}


def _with_jax(layer: Layer, direction: str, arrays: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    jax: Any = importlib.import_module("jax")  # after the number of threads is set

    found: dict[str, Callable[[], Any]] = {}
    x, w, b, g = arrays
    for name, layout in (("jax", ("NCHW", "OIHW", "NCHW")), ("jax last", ("NHWC", "HWIO", "NHWC"))):
        is_last = name == "jax last"

        def convolve(x: Any, w: Any, layout: Any = layout) -> Any:
            pads = [(layer.padding,) * 2] * 2
            return jax.lax.conv_general_dilated(
                x, w, (layer.stride,) * 2, pads, dimension_numbers=layout, feature_group_count=layer.groups
            )

        def run(x: Any, w: Any, b: Any, g: Any, convolve: Any = convolve, is_last: bool = is_last) -> Any:
            if direction == "forward":
                return jax.nn.relu(convolve(x, w) + (b if is_last else b[:, None, None]))
            if direction == "image":
                return jax.vjp(functools.partial(convolve, w=w), x)[1](g)[0]
            return jax.vjp(functools.partial(convolve, x), w)[1](g)[0]

        moved = [np.ascontiguousarray(np.moveaxis(one, 1, -1)) if is_last else one for one in (x, g)]
        own = np.ascontiguousarray(w.transpose(2, 3, 1, 0)) if is_last else w
        given = [jax.numpy.asarray(one) for one in (moved[0], own, b, moved[1])]
        compiled: Any = jax.jit(run)
        found[name] = lambda compiled=compiled, given=given: compiled(*given).block_until_ready()
    return found


def _as_first(name: str, direction: str, value: Any) -> Any:
    array = np.asarray(value)
    if name != "jax last":
        return array
    return array.transpose(3, 2, 0, 1) if direction == "weights" else np.moveaxis(array, -1, 1)


def measure(layer: Layer, direction: str, plan: Plan, peers: Sequence[str]) -> Row:
    """One layer: everybody's answer against float64, then their times."""
    torch: Any = importlib.import_module("torch")  # after the number of threads is set

    arrays = layer.arrays()
    exact = [torch.from_numpy(one).double() for one in arrays]
    wanted = next(iter(_with_torch(layer, direction, [one.numpy() for one in exact], plan.threads).values()))().numpy()
    runs = _with_tessera(layer, direction, arrays)
    runs |= _with_torch(layer, direction, arrays, plan.threads) if "torch" in peers else {}
    runs |= _with_jax(layer, direction, arrays) if "jax" in peers else {}
    row = Row(layer.net, layer.name, plan.threads, 0.0, "cpu" if plan.uses_cpu_time else "wall")
    depth = wanted.size and arrays[0].size * arrays[1].size / wanted.size
    # A bound on rounding: half an ulp of f32 for each of the products of an element, which have a variance of about 1.
    row.tolerance = float(np.abs(wanted).max() * max(depth, 1.0) ** 0.5 * 2.0**-20 + 1e-4)
    entries: list[Entry] = []
    for name, run in runs.items():
        error = float(np.abs(_as_first(name, direction, run()).astype(np.float64) - wanted).max())
        row.errors[name] = error
        if not error <= row.tolerance:
            raise ArithmeticError(f"{name} is wrong by {error:.3g} at {layer.name}, allowed {row.tolerance:.3g}")
        once = min(time_calls(run, 1, use_cpu_time=plan.uses_cpu_time) for _ in range(2))
        contender: Any = _Named(name)
        entries.append(Entry(contender, run, max(1, round(2e-3 / max(once, 1e-6))), once))
    take_turns(entries, plan, row)
    return row


@dataclass(frozen=True)
class _Named:
    name: str


def ratio_of(row: Row) -> float:
    """The time of the best peer over ours."""
    ratios = [row.ratio(name, "tessera") for name in row.samples if name != "tessera"]
    return min(ratio for ratio in ratios if ratio is not None)


def main(
    direction: Annotated[str, typer.Option(help=f"One of {', '.join(DIRECTIONS)}.")] = "forward",
    nets: Annotated[str, typer.Option(help="Only these: resnet, convnext, unet, drawn.")] = "",
    threads: Annotated[int, typer.Option(min=1)] = 2,
    batch: Annotated[int, typer.Option(min=1, help="Images of a layer; a UNet has one.")] = 4,
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    peers: Annotated[str, typer.Option()] = "torch,jax",
    count: Annotated[int, typer.Option(help="How many random layers.")] = 8,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Time convolutions, worst layer last."""
    if direction not in DIRECTIONS:
        raise typer.BadParameter(f"{direction!r} is none of {', '.join(DIRECTIONS)}")
    if "CONVOLUTION_BENCHMARK_CHILD" not in os.environ:
        # Libraries read how many threads they may have when they are loaded.
        variables = {**environment.thread_variables(threads), "CONVOLUTION_BENCHMARK_CHILD": "1"}
        arguments = [sys.executable, "-m", "benchmarks.convolution", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, **variables})
    environment.pin(threads)
    chosen = [name for name in nets.split(",") if name]
    layers = [*resnet(batch), *convnext(batch), *unet(1), *drawn(count, seed)]
    layers = [layer for layer in dict.fromkeys(layers) if not chosen or layer.net in chosen]
    console, plan = Console(width=200), Plan(threads, rounds, pause=0.05)
    found: list[tuple[float, Row]] = []
    for layer in layers:
        row = measure(layer, direction, plan, peers.split(","))
        found.append((ratio_of(row), row))
        times = ", ".join(f"{name} {1e3 * row.median(name):.2f}" for name in row.samples)
        console.print(f"{found[-1][0]:.2f} {row.name}: {times} ms", highlight=False, markup=False)
    for net in (*dict.fromkeys(row.family for _, row in found), ""):
        ratios = [ratio for ratio, row in found if net in ("", row.family)]
        mean = geometric_mean(ratios)
        console.print(f"{net or 'all'}: geometric mean {mean:.3f}, worst {min(ratios):.2f} of {len(ratios)} layers")


if __name__ == "__main__":
    typer.run(main)
