"""Recurrences, long convolutions and fused norms on an NVIDIA GPU, beside kernels that were written for them.

    python -m benchmarks.gpu ports [--only NAME,...] [--rounds N] [--out FILE]

Values are compared with float64 first, on the first batch and head, and two runs with each other. cuFFT and PyTorch run
in the same process, interleaved in bursts. The kernels of ThunderKittens and of Mamba are no packages: their times are
those that were measured on a card of the same kind in a run of their own, and a ratio to one is marked so. A backward
pass is what a forward and backward pass takes less what a forward pass takes.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import argparse
import importlib
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_record import chosen, need_gpu, options, write

THUNDER_KITTENS = "ThunderKittens 0b55588d, in another run"
MAMBA = "state-spaces/mamba e9594ce1, in another run"
DEVICE = "cuda"
Program = Callable[..., Any]


@dataclass(frozen=True)
class Port:
    """A program, its operands, what it is in float64 on a part of them, and who else computes it."""

    run: Program
    operands: Callable[[Any], list[Any]]
    exact: Callable[..., Any]
    part: Callable[[Any], Any] = lambda out: out[:1, :1]
    bound: float = 2.0**-6
    peer: Callable[[Any], Program] | None = None
    recorded: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    """Milliseconds of a pass, and whose."""
    has_gradients: bool = True


def _normal(torch: Any, *shape: int, dtype: str = "bfloat16") -> Any:
    return torch.randn(*shape, device=DEVICE).to(getattr(torch, dtype))


def _attend(q: Any, k: Any, v: Any, g: Any) -> Any:
    return ts.ops.linear_attention(q, k, v, g)


def _attention_operands(batch: int, groups: int, heads: int, rows: int, head: int) -> Callable[[Any], list[Any]]:
    def make(torch: Any) -> list[Any]:
        q, k = (_normal(torch, batch, groups, rows, head) for _ in range(2))
        decay = -0.1 * torch.rand(batch, heads, rows, device=DEVICE)
        return [q, k, _normal(torch, batch, heads, rows, head), decay]

    return make


def _attend_exactly(torch: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
    q, k, v, g = (one[:1, :1].double() for one in (q, k, v, g))
    total = g.cumsum(-1)
    weights = torch.exp((total[..., :, None] - total[..., None, :]).tril()).tril()
    return (q @ k.transpose(-1, -2) * weights) @ v


def _scan(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return ts.ops.selective_scan(x, delta, a, b, c, d)


def _scan_operands(batch: int, rows: int, channels: int, states: int) -> Callable[[Any], list[Any]]:
    def make(torch: Any) -> list[Any]:
        x = _normal(torch, batch, rows, channels)
        delta = torch.nn.functional.softplus(torch.randn(batch, rows, channels, device=DEVICE) - 2).bfloat16()
        a = -torch.exp(torch.randn(channels, states, device=DEVICE) * 0.5)
        b, c = (_normal(torch, batch, rows, states) for _ in range(2))
        return [x, delta, a, b, c, torch.randn(channels, device=DEVICE)]

    return make


def _scan_exactly(torch: Any, x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    few = 64
    x, delta, b, c = (one[0].double() for one in (x[..., :few], delta[..., :few], b, c))
    a, d = a[:few].double(), d[:few].double()
    state = torch.zeros_like(a)
    rows: list[Any] = []
    for t in range(len(x)):
        state = torch.exp(delta[t, :, None] * a) * state + (delta[t] * x[t])[:, None] * b[t]
        rows.append(state @ c[t] + d * x[t])
    return torch.stack(rows)[None]


def _convolve(mode: str) -> Program:
    def run(x: Any, k: Any) -> Any:
        return ts.ops.fft_conv1d(x, k, mode)

    return run


def _convolution_operands(batch: int, heads: int, length: int, dtype: str) -> Callable[[Any], list[Any]]:
    def make(torch: Any) -> list[Any]:
        x = _normal(torch, batch, heads, length, dtype=dtype)
        return [x, _normal(torch, heads, length, dtype=dtype) / math.sqrt(length)]

    return make


def _transformed(torch: Any, period: int) -> Program:
    """By cuFFT in f32, as its users write it."""

    def run(x: Any, k: Any) -> Any:
        length = x.shape[-1]
        spectrum = torch.fft.rfft(x.float(), n=period) * torch.fft.rfft(k.float(), n=period)
        return torch.fft.irfft(spectrum, n=period)[..., :length].to(x.dtype)

    return run


def _convolve_exactly(torch: Any, x: Any, k: Any, period: int) -> Any:
    x, k = x[:1, :1].double(), k[:1].double()
    return torch.fft.irfft(torch.fft.rfft(x, n=period) * torch.fft.rfft(k, n=period), n=period)[..., : x.shape[-1]]


def _long(batch: int, heads: int, length: int, dtype: str) -> Port:
    return Port(
        _convolve("causal"),
        _convolution_operands(batch, heads, length, dtype),
        lambda torch, x, k: _convolve_exactly(torch, x, k, 2 * length),
        bound=2.0**-17 if dtype == "float32" else 2.0**-6,
        peer=lambda torch: _transformed(torch, 2 * length),
        has_gradients=False,
    )


def _normalize(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return ts.ops.dropout_residual_layernorm(x, residual, weight, bias)[0]


def _norm_operands(torch: Any) -> list[Any]:
    x, residual = (_normal(torch, 16, 8192, 1024) for _ in range(2))
    return [x, residual, *(torch.randn(1024, device=DEVICE) for _ in range(2))]


def _normalize_exactly(torch: Any, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    total = (x[:1].float() + residual[:1].float()).bfloat16().double()
    return torch.nn.functional.layer_norm(total, (1024,), weight.double(), bias.double())


def _delta(q: Any, k: Any, v: Any, beta: Any, g: Any) -> Any:
    return ts.ops.gated_delta_rule(q, k, v, beta, g)


def _delta_operands(torch: Any) -> list[Any]:
    q, k, v = (_normal(torch, 8, 16, 2048, 128) for _ in range(3))
    k = torch.nn.functional.normalize(k.float(), dim=-1).bfloat16()
    beta, decay = (torch.rand(8, 16, 2048, device=DEVICE) for _ in range(2))
    return [q, k, v, beta, -0.1 * decay]


def _delta_exactly(torch: Any, q: Any, k: Any, v: Any, beta: Any, g: Any) -> Any:
    q, k, v, beta, g = (one[0, 0].double() for one in (q, k, v, beta, g))
    state = torch.zeros(k.shape[-1], v.shape[-1], device=DEVICE, dtype=torch.float64)
    rows: list[Any] = []
    for t in range(len(q)):
        state = torch.exp(g[t]) * (state - beta[t] * torch.outer(k[t], k[t] @ state))
        state = state + beta[t] * torch.outer(k[t], v[t])
        rows.append(q[t] @ state)
    return torch.stack(rows)[None, None]


PORTS: dict[str, Port] = {
    "linear attention 16x16x4096x128": Port(
        _attend,
        _attention_operands(16, 16, 16, 4096, 128),
        _attend_exactly,
        recorded={"forward": (THUNDER_KITTENS, 0.3916)},
    ),
    "mamba-2 16x16x4096x64": Port(
        _attend,
        _attention_operands(16, 1, 16, 4096, 64),
        _attend_exactly,
        recorded={"forward": (THUNDER_KITTENS, 0.1520)},
    ),
    "mamba-2 16x16x16384x64": Port(
        _attend,
        _attention_operands(16, 1, 16, 16384, 64),
        lambda torch, q, k, v, g: _attend_exactly(torch, *(one[:1, :1, :2048] for one in (q, k, v, g))),
        part=lambda out: out[:1, :1, :2048],
        recorded={"forward": (THUNDER_KITTENS, 0.5697)},
    ),
    "selective scan 8x4096x2048 of 16": Port(
        _scan,
        _scan_operands(8, 4096, 2048, 16),
        _scan_exactly,
        part=lambda out: out[:1, :, :64],
        recorded={"forward": (MAMBA, 1.078), "backward": (MAMBA, 4.603)},
    ),
    "delta rule 8x16x2048x128": Port(_delta, _delta_operands, _delta_exactly, bound=2.0**-5),
    "circular convolution 16x1024x4096": Port(
        _convolve("circular"),
        _convolution_operands(16, 1024, 4096, "bfloat16"),
        lambda torch, x, k: _convolve_exactly(torch, x, k, 4096),
        peer=lambda torch: _transformed(torch, 4096),
        recorded={"forward": (THUNDER_KITTENS, 0.1927)},
        has_gradients=False,
    ),
    **{
        f"causal convolution 16x768x{length} {dtype}": _long(16, 768, length, dtype)
        for dtype in ("float32", "bfloat16")
        for length in (8192, 16384, 32768, 65536)
    },
    "residual layernorm 16x8192x1024": Port(
        _normalize,
        _norm_operands,
        _normalize_exactly,
        part=lambda out: out[:1],
        recorded={"forward": (THUNDER_KITTENS, 0.5082)},
    ),
}


def _with_gradients(run: Program, count: int) -> Program:
    def step(*operands: Any) -> Any:
        out, pull = ts.vjp(run, *operands[:count])
        return out, *pull(operands[count])

    return step


def _torch_of(torch: Any, value: Any) -> Any:
    return torch.from_dlpack(value)


def measure(torch: Any, name: str, rounds: int) -> dict[str, Any]:
    """One row: how far from float64, whether runs have the same bits, and milliseconds of everybody."""
    port = PORTS[name]
    operands = port.operands(torch)
    given = [ts.cuda.array(one) for one in operands]
    forward = ts.jit(port.run, backend="cuda")
    first, again = (_torch_of(torch, forward(*given)) for _ in range(2))
    wanted = port.exact(torch, *operands)
    error = float(((port.part(first).double() - wanted).norm() / wanted.norm()).item())
    same = bool(torch.equal(first, again))
    if not error <= port.bound:
        raise ArithmeticError(f"{name} is wrong by {error:.3g}, allowed {port.bound:.3g}")
    runs: dict[str, Callable[[], Any]] = {"forward": lambda: forward(*given)}
    if port.has_gradients:
        both = ts.jit(_with_gradients(port.run, len(given)), backend="cuda")
        cotangent = ts.cuda.array(torch.randn_like(first))
        both(*given, cotangent)
        runs["both"] = lambda: both(*given, cotangent)
    if port.peer is not None:
        peer = port.peer(torch)
        peer(*operands)
        runs["peer"] = lambda: peer(*operands)
    times = {key: 1e3 * seconds for key, seconds in timed(torch, runs, 1e12, rounds).items()}
    if "both" in times:
        times["backward"] = times["both"] - times["forward"]
    ratios = {f"{key}, {whose}": spent / times[key] for key, (whose, spent) in port.recorded.items()}
    if "peer" in times:
        ratios["forward, cuFFT through torch"] = times["peer"] / times["forward"]
    return {"name": name, "error": error, "same_bits": same, "milliseconds": times, "ratios": ratios}


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes."""
    times = ", ".join(f"{key} {value:.3f}" for key, value in row["milliseconds"].items())
    ratios = "; ".join(f"{value:.2f} of {key}" for key, value in row["ratios"].items())
    bits = "" if row["same_bits"] else " BITS DIFFER"
    print(f"{row['name']}: {times} ms; {ratios or 'no peer'}; error {row['error']:.1e}{bits}", flush=True)
    return row


def compile_beside(module: str, names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Compile all rows in processes side by side for the disk cache; what fails there is said when it is measured."""
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", module, "--compile", "--only", name, *others],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    for one in begun:
        one.wait()


def compile_row(torch: Any, name: str) -> None:
    """Fill the disk cache with the programs of a row."""
    port = PORTS[name]
    given = [ts.cuda.array(one) for one in port.operands(torch)]
    made = ts.jit(port.run, backend="cuda")(*given)
    if port.has_gradients:
        ts.jit(_with_gradients(port.run, len(given)), backend="cuda")(*given, made)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options("ports", __doc__)
    parser.add_argument("--rounds", type=int, default=5, help="bursts of each program")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    names = chosen(asked.only, list(PORTS), parser)
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    if asked.compile:
        for name in names:
            compile_row(torch, name)
        return
    compile_beside("benchmarks.gpu_ports", names)
    rows = [show(measure(torch, name, asked.rounds)) for name in names]
    write(asked.out, {"rows": rows})


if __name__ == "__main__":
    main()
