"""Compares this checkout with another one, interleaved in one run: the same programs, the same arrays, bits and times.

    python -m benchmarks.commits OTHER [--device cpu|gpu] [--rounds N] [--out FILE]

OTHER is the root of another checkout. Each checkout runs in a process of its own, since one process holds one
`tessera`; a round times both in an order that alternates, so that clocks and neighbours disturb both alike. A ratio is
the median over rounds of other / this: above 1 this checkout is faster. Results must be equal bit for bit. Only the
public interface is used, so that checkouts may differ in everything else.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, cast

import ml_dtypes
import numpy as np

ROOT = Path(__file__).parents[1]
ts: Any = None
"""The `tessera` of the checkout that a server runs for."""
BURST_SECONDS = 0.02
"""A burst lasts about this long: far above the clock's grain, far below what heats a GPU."""
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}


def _matmul(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def _layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh")


def _attention(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def _softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def _layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def _add(x: Any, y: Any) -> Any:
    return x + y


def _columns(x: Any) -> Any:
    return x.sum(axis=0)


def _block(x: Any, g: Any, w1: Any, w2: Any) -> Any:
    return x + ts.ops.matmul(ts.ops.gelu(ts.ops.matmul(ts.ops.rmsnorm(x, g), w1)), w2)


def _conv(x: Any, w: Any) -> Any:
    return ts.ops.conv2d(x, w)


def _top(x: Any) -> Any:
    return ts.ops.topk(x, 10)[0]


Row = tuple[Callable[..., Any], str, tuple[tuple[int, ...], ...]]
ROWS: dict[str, dict[str, Row]] = {
    "cpu": {
        "call 4": (_add, "f32", ((4,), (4,))),
        "matmul 256": (_matmul, "f32", ((256, 256), (256, 256))),
        "matmul 777x300x513": (_matmul, "f32", ((777, 513), (300, 513))),
        "matmul bf16 512": (_matmul, "bf16", ((512, 512), (512, 512))),
        "bias gelu 512": (_layer, "f32", ((512, 512), (512, 512), (512,))),
        "attention 4x8x256x64": (_attention, "f32", ((4, 8, 256, 64),) * 3),
        "softmax 512x1000": (_softmax, "f32", ((512, 1000),)),
        "layernorm 512x768": (_layernorm, "f32", ((512, 768), (768,), (768,))),
        "columns 1024x777": (_columns, "f32", ((1024, 777),)),
        "conv 8x16x28x28": (_conv, "f32", ((8, 16, 28, 28), (32, 16, 3, 3))),
        "topk 64x4096": (_top, "f32", ((64, 4096),)),
        "mlp block 128x256": (_block, "f32", ((128, 256), (256,), (256, 1024), (1024, 256))),
    },
    "gpu": {
        "call 4": (_add, "f32", ((4,), (4,))),
        "matmul 4096": (_matmul, "bf16", ((4096, 4096), (4096, 4096))),
        "matmul 8192x1024x4096": (_matmul, "bf16", ((8192, 4096), (1024, 4096))),
        "matmul 3001x2000x1000": (_matmul, "bf16", ((3001, 1000), (2000, 1000))),
        "matmul f32 1024": (_matmul, "f32", ((1024, 1024), (1024, 1024))),
        "bias gelu 4096": (_layer, "bf16", ((4096, 4096), (4096, 4096), (4096,))),
        "attention 4x16x2048x128": (_attention, "bf16", ((4, 16, 2048, 128),) * 3),
        "decode 16x16x4096x128": (_attention, "bf16", ((16, 16, 1, 128), (16, 16, 4096, 128), (16, 16, 4096, 128))),
        "softmax 8192x4096": (_softmax, "bf16", ((8192, 4096),)),
        "softmax 8192x5000": (_softmax, "bf16", ((8192, 5000),)),
        "layernorm 8192x4096": (_layernorm, "bf16", ((8192, 4096), (4096,), (4096,))),
        "columns 8192x4096": (_columns, "bf16", ((8192, 4096),)),
        "conv 8x16x28x28": (_conv, "f32", ((8, 16, 28, 28), (32, 16, 3, 3))),
        "mlp block 512x1024": (_block, "bf16", ((512, 1024), (1024,), (1024, 4096), (4096, 1024))),
    },
}


class Server:
    """One checkout: answers a line of JSON for each it reads."""

    def __init__(self, device: str, delay: float = 0.0) -> None:
        global ts
        ts = importlib.import_module("tessera")
        self.device, self.delay = device, delay
        self.runs: dict[str, Callable[[], Any]] = {}

    def prepare(self, name: str) -> dict[str, Any]:
        """Compile a row; the hash of its result, and the seconds of one call."""
        function, dtype, shapes = ROWS[self.device][name]
        rng = np.random.default_rng(0)
        arrays: list[Any] = [rng.standard_normal(shape).astype(np.float32).astype(DTYPES[dtype]) for shape in shapes]
        options = {"backend": "cuda"} if self.device == "gpu" else {}
        jitted = ts.jit(function, **options)
        tensors = [ts.cuda.array(one) if self.device == "gpu" else ts.array(one) for one in arrays]
        bits = np.ascontiguousarray(np.asarray(jitted(*tensors))).tobytes()
        self.runs[name] = lambda: jitted(*tensors)
        for _ in range(20):  # past the first calls, which find their way
            self.burst(name, 1)
        return {"hash": hashlib.sha256(bits).hexdigest(), "seconds": min(self.burst(name, 3) for _ in range(5))}

    def burst(self, name: str, calls: int) -> float:
        """Seconds of one call, from `calls` of them one after the other."""
        run = self.runs[name]
        self._wait()
        started = time.perf_counter()
        for _ in range(calls):
            run()
        self._wait()
        taken = time.perf_counter() - started
        until = started + taken * (1 + self.delay)
        while time.perf_counter() < until:
            pass
        return (time.perf_counter() - started) / calls

    def _wait(self) -> None:
        if self.device == "gpu":
            ts.cuda.synchronize()

    def serve(self, lines: IO[str], answers: IO[str]) -> None:
        """Answer until the other end is closed."""
        for line in lines:
            asked = json.loads(line)
            found = self.prepare(asked["row"]) if "calls" not in asked else self.burst(asked["row"], asked["calls"])
            print(json.dumps(found), file=answers, flush=True)


class Checkout:
    """A checkout as the comparison sees it: a process that is asked. With a `delay` it takes so much longer."""

    def __init__(self, root: Path, device: str, delay: float = 0.0) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", "--device", device, "--delay", str(delay)]
        self.process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **question: Any) -> Any:
        """The answer to a question; raises RuntimeError where the process died of it."""
        into, out = cast("IO[str]", self.process.stdin), cast("IO[str]", self.process.stdout)
        print(json.dumps(question), file=into, flush=True)
        line = out.readline()
        if not line:
            raise RuntimeError(f"a checkout ended with status {self.process.wait()} at {question}")
        return json.loads(line)

    def close(self) -> None:
        """End its process."""
        with self.process:
            self.process.communicate()


class Asked(Protocol):
    """What a comparison needs of a checkout."""

    def ask(self, **question: Any) -> Any:
        """The answer to a question."""
        ...


def compare(this: Asked, other: Asked, name: str, rounds: int) -> dict[str, Any]:
    """One row: both results equal, and the ratio of times round by round."""
    first, second = this.ask(row=name), other.ask(row=name)
    calls = max(1, round(BURST_SECONDS / max(first["seconds"], 1e-7)))
    samples: list[tuple[float, float]] = []
    for number in range(rounds):
        pair = (this, other) if number % 2 else (other, this)
        times = {id(one): one.ask(row=name, calls=calls) for one in pair}
        samples.append((times[id(this)], times[id(other)]))
        time.sleep(0.05)
    return {
        "row": name,
        "equal": first["hash"] == second["hash"],
        "this_us": statistics.median(mine for mine, _ in samples) * 1e6,
        "other_us": statistics.median(theirs for _, theirs in samples) * 1e6,
        "ratio": statistics.median(theirs / mine for mine, theirs in samples),
        "samples": samples,
    }


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table, with the geometric mean and the lowest ratio."""
    lines = [f"{'row':<28}{'this us':>12}{'other us':>12}{'ratio':>8}  bits"]
    for row in rows:
        bits = "equal" if row["equal"] else "DIFFER"
        lines.append(f"{row['row']:<28}{row['this_us']:>12.2f}{row['other_us']:>12.2f}{row['ratio']:>8.3f}  {bits}")
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    return "\n".join([*lines, f"geometric mean {mean:.3f}, lowest {min(row['ratio'] for row in rows):.3f}"])


def main() -> int:
    """Compare, print and write; 1 where results differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", nargs="?", type=Path, help="the root of another checkout")
    parser.add_argument("--device", choices=sorted(ROWS), default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a JSON file to write")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--delay", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        Server(given.device, given.delay).serve(sys.stdin, sys.stdout)
        return 0
    if given.other is None:
        parser.error("name the root of another checkout")
    from benchmarks.environment import describe  # noqa: PLC0415 - a checkout that is asked does not need it

    this, other = Checkout(ROOT, given.device), Checkout(given.other.resolve(), given.device)
    rows = [compare(this, other, name, given.rounds) for name in ROWS[given.device]]
    print(report(rows))
    if given.out is not None:
        given.out.write_text(json.dumps({**describe(), "other": str(given.other), "rows": rows}, indent=1) + "\n")
    return 0 if all(row["equal"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
