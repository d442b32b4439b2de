"""Random programs of the ops whose results are defined to the last bit, each under a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import round_as
from tessera.types.policy import SILENT, Policy

POLICIES: tuple[Policy, ...] = (
    SILENT,
    ts.Training(),
    ts.Training(ts.f16),
    ts.Inference(),
    ts.NVFP4(),
    ts.NVFP4(ts.f16),
    Policy(storage=ts.bf16, rounding="toward_zero"),
    Policy(storage=ts.bf16, rounding="stochastic", accumulate=ts.bf16),
    Policy(storage=ts.f16, saturation="saturate", denormals="flush"),
    Policy(compute=ts.tf32, denormals="flush"),
    Policy(storage=ts.f8e5m2, compute=ts.f16, rounding="stochastic", accumulate=ts.f64),
)
UNARY = ("neg", "abs", "sqrt", "relu", "floor", "ceil", "round", "trunc", "sign", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
OTHERS = (
    "matmul",
    "sum",
    "max",
    "mean",
    "cast",
    "flip",
    "transpose",
    "where",
    "clamp",
    "round_to",
    "concat",
    "broadcast",
    "conv1d",
    "dot_general",
    "var",
    "norm",
    "prod",
    "cumsum",
    "scatter_add",
    "avg_pool",
    "sort",
    "take",
)
SIZE = 16


@dataclass(frozen=True)
class Program:
    """Steps on a list of square matrices, each by the places of its operands; the policy they are taken under."""

    seed: int
    policy: Policy
    steps: tuple[tuple[str, int, int, int], ...]

    def __call__(self, *given: Any) -> Any:
        values = list(given)
        with ts.policy(self.policy):
            for step in self.steps:
                values.append(_applied(values, step))
        return tuple(values[len(given) :])

    def arrays(self) -> list[Any]:
        """Inputs with small and large numbers, zeros of both signs and denormals among ordinary ones."""
        rng = np.random.default_rng(self.seed)
        made = (rng.standard_normal((3, SIZE, SIZE)) * np.exp(rng.standard_normal((3, SIZE, SIZE)) * 2)).astype(
            np.float32
        )
        ends = np.array([0.0, -0.0, 1e-40, -1e-39, 65504.0, 1e-5, 448.0, -1e6], np.float32)
        flat = made.reshape(-1)
        flat[rng.permutation(flat.size)[:64]] = rng.choice(ends, 64)
        return [made[0], made[1], round_as(made[2], ts.bf16)]


def _applied(values: list[Any], step: tuple[str, int, int, int]) -> Any:
    name, left, right, choice = step
    x, y = values[left % len(values)], values[right % len(values)]
    if name in UNARY:
        return getattr(ops, name)(x)
    if name in BINARY or name == "matmul":
        return getattr(ops, name)(*_alike(x, y))
    if name in ("conv1d", "dot_general"):
        return _product(name, *_alike(x, y))
    return _other(name, x, y, choice)


def _product(name: str, x: Any, y: Any) -> Any:
    """Products over more than one axis, as a matrix again."""
    if name == "dot_general":
        left, right = ops.reshape(x, (4, 4, SIZE)), ops.reshape(y, (SIZE, 4, 4))
        made = ops.reshape(ops.dot_general(left, right, contract=((1, 2), (1, 0))), (4, 1, 4, 1))
        return ops.reshape(ops.broadcast_to(made, (4, 4, 4, 4)), (SIZE, SIZE))
    made = ops.conv1d(ops.reshape(x, (1, SIZE, SIZE)), ops.reshape(y, (8, SIZE, 2)), padding="same")
    return ops.concat([made[0], made[0]], axis=0)


def _other(name: str, x: Any, y: Any, choice: int) -> Any:
    if name in ("where", "concat"):
        a, b = _alike(x, y)
        return ops.where(a > b, a, b) if name == "where" else ops.concat([a[: SIZE // 2], b[SIZE // 2 :]], axis=0)
    if name in ("cast", "round_to"):
        return _converted(name, x, choice)
    if name in ("sum", "max", "mean", "var", "norm", "prod"):
        found, zeros = _alike(getattr(ops, name)(x, axis=choice % 2, keepdims=True), x * 0)
        return found + zeros
    if name == "cumsum":
        return ops.cumsum(x, axis=choice % 2)
    if name == "scatter_add":
        return ops.scatter_add(x, ts.array([(5 * at + choice) % 7 for at in range(SIZE)]), x, axis=choice % 2)
    if name == "avg_pool":
        return ops.avg_pool(x, (3,), stride=1, padding=1, count_padding=bool(choice % 2))
    return _moved(name, x, choice)


def _converted(name: str, x: Any, choice: int) -> Any:
    if name == "cast":
        return x.cast((ts.f32, ts.bf16, ts.f16, ts.f8e4m3)[choice % 4])
    wide = x.cast(ts.f32)
    return ops.round_to(wide, ("bf16", "f8e5m2", "tf32", "i8")[choice % 4], saturation="saturate").cast(ts.f32)


def _moved(name: str, x: Any, choice: int) -> Any:
    if name == "sort":
        return ops.sort(x, axis=choice % 2)
    if name == "take":
        return ops.take(x, ts.array([(3 * at + choice) % SIZE for at in range(SIZE)]), axis=choice % 2)
    if name == "flip":
        return ops.flip(x, choice % 2)
    if name == "transpose":
        return ops.transpose(x, (1, 0))
    if name == "clamp":
        return ops.clamp(x, -2.0, 3.0)
    return ops.broadcast_to(x[:1], (SIZE, SIZE))


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Both in one dtype: where no dtype holds both, f32 does."""
    return (x, y) if x.dtype is y.dtype else (x.cast(ts.f32), y.cast(ts.f32))


def random_program(seed: int) -> Program:
    """The program of a number."""
    rng = np.random.default_rng([seed, 17])
    names = rng.choice([*UNARY, *BINARY * 2, *OTHERS], int(rng.integers(3, 8)))
    steps = tuple((str(name), *(int(one) for one in rng.integers(0, 12, 3))) for name in names)
    return Program(seed, POLICIES[seed % len(POLICIES)], steps)  # pyright: ignore[reportArgumentType]
