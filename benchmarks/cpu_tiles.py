"""Matmuls of int8 and bf16 on the tiles of a CPU (AMX), against oneDNN through PyTorch and against our own vectors."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer

from benchmarks import environment

RESULTS = Path(__file__).parent / "results"
Array = np.ndarray[Any, Any]
Run = Callable[[], Any]

SHAPES = (
    *((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)),
    *((128, 4096, 4096), (16, 4096, 4096), (1000, 1111, 777), (64, 11008, 4096), (2048, 768, 3072)),
)
"""M, N, K: squares, batches of tokens by the weights of a layer, and sizes that no tile divides."""
PAUSE = 0.25
"""Seconds before each burst, so that other pools stop spinning."""


@dataclass(frozen=True)
class Case:
    """A matmul; of `nt` the weight is stored transposed, [N, K], as layers of PyTorch have it."""

    dtype: str
    layout: str
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.m * self.n * self.k

    def arrays(self) -> tuple[Array, Array]:
        """Operands; of bytes any value, of floats normal ones."""
        rng = np.random.default_rng(self.m + self.n + self.k)
        shapes = (self.m, self.k), ((self.k, self.n) if self.layout == "nn" else (self.n, self.k))
        if self.dtype == "int8":
            a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in shapes)
        else:
            a, b = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in shapes)
        return a, b


@dataclass
class Row:
    """Seconds of each contender's bursts, how far off its answer is, and why others are missing."""

    case: Case
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """The row of the table: throughput of each, and what the best peer takes in our time."""
        medians = {name: statistics.median(times) for name, times in self.samples.items()}
        rates = ", ".join(f"{name} {self.case.flops / time / 1e12:.2f}" for name, time in medians.items())
        errors = ", ".join(f"{name} {error:.1e}" for name, error in self.errors.items())
        peer, ours = medians.get("torch"), medians.get("tiles", medians.get("vectors"))
        ratio = f"torch/ours {peer / ours:.2f}" if peer and ours else ""
        return f"{self.case.name:28s} T/s: {rates}; {ratio}; errors {errors} {self.skipped or ''}"


def tessera_runs(case: Case, a: Array, b: Array, vectors: bool) -> dict[str, Run]:
    """Our program on tiles, where the machine has them, and on vectors where there are none or both are asked for."""
    import tessera as ts  # noqa: PLC0415 - threads are set before it is loaded
    from tessera.backends.cpu.match_contraction import instruction_choices  # noqa: PLC0415
    from tessera.ir.target.architectures import host_machine  # noqa: PLC0415

    def multiply(a: Any, b: Any) -> Any:
        return ts.ops.matmul(a, b if case.layout == "nn" else b.T, dtype=ts.i32 if case.dtype == "int8" else ts.bf16)

    x, w = ts.array(a), ts.array(b)
    choices = instruction_choices(host_machine())
    if f"amx-{case.dtype}" not in choices:
        jitted = ts.jit(multiply)
        return {"vectors": lambda: jitted(x, w)}
    tiles = ts.jit(multiply, overrides={"matrix.instruction": f"amx-{case.dtype}"})
    others = ts.jit(multiply, overrides={"matrix.instruction": "multiply-adds"})
    return {"tiles": lambda: tiles(x, w), **({"vectors": lambda: others(x, w)} if vectors else {})}


def torch_run(case: Case, a: Array, b: Array) -> Run:
    """PyTorch's matmul of the dtype, which is oneDNN's."""
    torch: Any = importlib.import_module("torch")  # threads are set before it is loaded
    words = np.int8 if case.dtype == "int8" else np.uint16
    x, w = (torch.from_numpy(one.view(words)) for one in (a, b))
    if case.dtype == "bf16":
        x, w = x.view(torch.bfloat16), w.view(torch.bfloat16)
    w = w if case.layout == "nn" else w.t()
    return (lambda: torch._int_mm(x, w)) if case.dtype == "int8" else (lambda: x @ w)


def _error(case: Case, made: Any, exact: Array) -> float:
    """The largest error, for floats relative to the largest result; a sample of rows tells."""
    if hasattr(made, "float"):
        made = made.float().numpy() if case.dtype == "bf16" else made.numpy()
    found = np.asarray(made).astype(np.float64)[:: max(1, case.m // 64)]
    scale = 1.0 if case.dtype == "int8" else float(np.abs(exact).max())
    return float(np.abs(found - exact).max()) / scale


def measure(case: Case, bursts: int, seconds: float, vectors: bool = True) -> Row:
    """Check all, then time them interleaved: bursts of calls, each after a pause."""
    row, (a, b) = Row(case), case.arrays()
    wide = b.astype(np.float64) if case.layout == "nn" else b.T.astype(np.float64)
    exact = a[:: max(1, case.m // 64)].astype(np.float64) @ wide
    makers: Mapping[str, Callable[[], Mapping[str, Run]]] = {
        "tessera": lambda: tessera_runs(case, a, b, vectors),
        "torch": lambda: {"torch": torch_run(case, a, b)},
    }
    runs: dict[str, Run] = {}
    for name, make in makers.items():
        try:
            found = make()
            row.errors |= {one: _error(case, run(), exact) for one, run in found.items()}
            runs |= found
        except Exception as error:  # a peer that lacks the op is left out, and says so
            row.skipped[name] = f"{type(error).__name__}: {error}"[:200]
    for _ in range(bursts):
        for name, run in runs.items():
            row.samples.setdefault(name, []).append(_burst(run, seconds))
    return row


def _burst(run: Run, seconds: float) -> float:
    """Seconds of one call, in a burst of so many seconds."""
    time.sleep(PAUSE)
    run()
    count, start = 0, time.perf_counter()
    while count < 3 or time.perf_counter() - start < seconds:
        run()
        count += 1
    return (time.perf_counter() - start) / count


def _cases(dtypes: Sequence[str], layouts: Sequence[str], match: str) -> list[Case]:
    found = [Case(dtype, layout, *shape) for dtype in dtypes for layout in layouts for shape in SHAPES]
    return [case for case in found if match in case.name]


def main(
    threads: Annotated[int, typer.Option(help="Threads of everybody; 0 for one on each CPU.")] = 0,
    dtypes: Annotated[str, typer.Option(help="int8, bf16, or both.")] = "int8,bf16",
    layouts: Annotated[str, typer.Option(help="nn, nt, or both.")] = "nn,nt",
    match: Annotated[str, typer.Option(help="Only rows whose name contains this.")] = "",
    bursts: Annotated[int, typer.Option(help="Bursts of each contender.")] = 7,
    seconds: Annotated[float, typer.Option(help="Seconds of a burst.")] = 0.01,
    vectors: Annotated[bool, typer.Option(help="Time our vectors beside our tiles.")] = True,
    name: Annotated[str, typer.Option(help="Name of the file in benchmarks/results; none: nothing is written.")] = "",
) -> None:
    """Time matmuls on tiles, on vectors and by oneDNN, each checked against float64 first."""
    wanted = threads or len(os.sched_getaffinity(0))
    if os.environ.get("TESSERA_NUM_THREADS") != str(wanted):
        # Libraries read how many threads to use when they are loaded.
        variables = {**os.environ, **environment.thread_variables(wanted)}
        command = [sys.executable, "-m", "benchmarks.cpu_tiles", *sys.argv[1:]]
        raise typer.Exit(subprocess.run(command, env=variables, check=False).returncode)
    rows: list[Row] = []
    for case in _cases(dtypes.split(","), layouts.split(","), match):
        rows.append(measure(case, bursts, seconds, vectors))
        print(rows[-1].text(), flush=True)
    if name:
        found = {**environment.describe(), "threads": wanted, "rows": [asdict(row) for row in rows]}
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
