"""Programs to tune, drawn by a seed, and the workload of each as children of the tuner build it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.api.compilation import choose_device, device_of
from tessera.api.workload import ProgramWorkload, RunnableProgram, make_tensors
from tessera.compiler.backend import backend_of, manifest_of
from tessera.compiler.prediction import predictor
from tessera.compiler.space import ProgramSpace, TunableKnob, space_of
from tessera.tuner.cost_model import Predict
from tessera.tuner.protocol import DeviceEviction
from tessera.tuner.records import Plan


@dataclass(frozen=True)
class Case:
    """A program of a family at its sizes; a child builds it from this."""

    family: str
    sizes: tuple[int, ...]
    backend: str
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """What a row is called."""
        return f"{self.family} {'x'.join(map(str, self.sizes))} {self.dtype}"


def _matmul(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def _layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh")


def _attention(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def _softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def _convolution(x: Any, w: Any) -> Any:
    return ts.ops.conv2d(x, w, padding=1)


def _mlp(x: Any, w: Any, b: Any, v: Any, scale: Any, shift: Any) -> Any:
    hidden = ts.ops.gelu(ts.ops.matmul(ts.ops.layernorm(x, scale, shift), w) + b, approximate="tanh")
    return x + ts.ops.matmul(hidden, v)


def _elementwise(x: Any, y: Any) -> Any:
    return ts.ops.gelu(x * y + x, approximate="tanh") * 0.5


FAMILIES: dict[str, tuple[Callable[..., Any], Callable[[tuple[int, ...]], list[tuple[int, ...]]]]] = {
    "gemm": (_matmul, lambda s: [(s[0], s[2]), (s[1], s[2])]),
    "layer": (_layer, lambda s: [(s[0], s[2]), (s[2], s[1]), (s[1],)]),
    "mlp": (_mlp, lambda s: [(s[0], s[2]), (s[2], s[1]), (s[1],), (s[1], s[2]), (s[2],), (s[2],)]),
    "attention": (_attention, lambda s: [s] * 3),
    "row": (_softmax, lambda s: [s]),
    "norm": (_layer_norm, lambda s: [s, s[1:], s[1:]]),
    "conv": (_convolution, lambda s: [s[:4], (s[4], s[1], 3, 3)]),
    "map": (_elementwise, lambda s: [s, s]),
}
"""Functions, and the shapes of their arguments by the sizes of a case."""


def _between(rng: np.random.Generator, low: int, high: int, step: int) -> int:
    """A multiple of a step, by the logarithm between two numbers."""
    return max(step, round(math.exp(rng.uniform(math.log(low), math.log(high))) / step) * step)


def draw(family: str, rng: np.random.Generator, backend: str) -> Case:
    """A case of a family: sizes as models have them, most of them multiples of 8 or 64, some ragged."""
    large = backend == "cuda"
    step = int(rng.choice([8, 64, 128]))
    if family in ("gemm", "layer", "mlp"):
        low, high = (128, 8192) if large else (16, 512)
        sizes = tuple(_between(rng, low, high, step) for _ in range(3))
    elif family == "attention":
        width = int(rng.choice([64, 128]))
        sizes = (_between(rng, 1, 8 if large else 2, 1), _between(rng, 4, 32 if large else 8, 4))
        sizes = (*sizes, _between(rng, 512 if large else 64, 8192 if large else 256, 64), width)
    elif family in ("row", "norm"):
        sizes = (_between(rng, 16, 16384 if large else 512, 1), _between(rng, 256, 65536 if large else 8192, 8))
    elif family == "conv":
        low, high = (32, 512) if large else (4, 32)
        image = _between(rng, 14, 112 if large else 28, 2)
        sizes = (_between(rng, 1, 32 if large else 2, 1), _between(rng, low, high, 8), image, image)
        sizes = (*sizes, _between(rng, low, high, 8))
    else:
        sizes = (_between(rng, 64, 8192 if large else 1024, 8), _between(rng, 64, 8192 if large else 1024, 8))
    return Case(family, sizes, backend, "bf16" if large else "f32")


def draw_all(counts: dict[str, int], backend: str, seed: int) -> list[Case]:
    """So many cases of each family."""
    rng = np.random.default_rng(seed)
    return [draw(family, rng, backend) for family, count in counts.items() for _ in range(count)]


def space_for(case: Case) -> ProgramSpace:
    """The choices of a case; nothing is compiled."""
    function: Any = ts.jit(FAMILIES[case.family][0], backend=case.backend)
    dtype = ml_dtypes.bfloat16 if case.dtype == "bf16" else np.float32
    tape = function.trace(*(np.empty(shape, dtype) for shape in FAMILIES[case.family][1](case.sizes))).tape
    options, manifest = choose_device(function.options, tape), manifest_of(case.backend)
    if manifest.asks_device:
        options = replace(options, features=device_of(manifest).features())
    return space_of(tape, options)


class Workload(ProgramWorkload):
    """A case as `protocol.Workload`; tensors are there when a plan is first to run, and L2 is evicted on a GPU."""

    def __init__(self, case: Case) -> None:
        super().__init__(space_for(case), ())
        self._is_host = manifest_of(case.backend).runs_in_host_memory

    def compile(self, plan: Plan) -> RunnableProgram:
        """The program under a plan, with tensors."""
        if not self._tensors:
            self._tensors = make_tensors(self.space.tape, {}, self.space.options)
            self._flush = None if self._is_host else DeviceEviction()
        return super().compile(plan)


def build(case: Case) -> Workload:
    """What children build."""
    return Workload(case)


def plans_of(space: ProgramSpace, most: int, seed: int = 0) -> list[Plan]:
    """Plans that differ from the safe one by one knob of its groups, then by two; drawn where they are too many.

    Blocks that the machine's model says nothing of are multiplied by threads, which changes bits: they are left out
    where there are others.
    """
    rng = np.random.default_rng(seed)
    names = {group.name for group in space.groups}
    knobs = [knob for knob in space.knobs if knob.location in names]
    if any(knob.name.startswith(("contraction", "attention")) for knob in knobs):
        knobs += [knob for knob in space.knobs if knob.name in SHARED]
    single = [Plan.of({knob.key: value}) for knob in knobs for value in _able(space, knob)]
    pairs = [
        Plan.of({one.key: value, other.key: second})
        for number, one in enumerate(knobs)
        for other in knobs[number + 1 :]
        for value in _able(space, one)
        for second in _able(space, other)
    ]
    drawn = [pairs[int(k)] for k in rng.permutation(len(pairs)).tolist()[: max(0, most - len(single))]]
    if len(single) > most:
        single = [single[int(k)] for k in sorted(rng.permutation(len(single)).tolist()[:most])]
    return [*single, *drawn]


SHARED = ("matrix.roles", "matrix.lag", "matrix.multicast", "matrix.epilogue")
"""Knobs of a machine that change no bits."""


def _able(space: ProgramSpace, knob: TunableKnob) -> list[Any]:
    times = backend_of(space.options.backend).times.get(knob.name)
    if times is None:
        return list(knob.others)
    known = [value for value in knob.others if times(value, knob.context, {}) is not None]
    return known or list(knob.others)


def model_of(space: ProgramSpace) -> Predict | None:
    """The static model of a case."""
    return predictor(space)
