"""Latency: what a call costs beside its kernel, how long imports and first calls take, cold and from the cache."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import environment
from benchmarks.solver import guard_time, solving_time
from benchmarks.tables import seconds_text

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Finding:
    """One figure in seconds and the most it is meant to be; None where it only gives the others a scale."""

    name: str
    seconds: float
    limit: float | None = None

    @property
    def is_reached(self) -> bool:
        """Whether it is within its limit."""
        return self.limit is None or self.seconds <= self.limit


def time_of(function: Callable[[], Any], *, calls: int = 20_000, repeats: int = 9) -> float:
    """Seconds of one call: the median over repeats of a loop, less what an empty loop takes."""

    def loop(body: Callable[[], Any]) -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            body()
        return (time.perf_counter_ns() - start) / calls

    def nothing() -> None:
        return None

    loop(function)
    empty = statistics.median(loop(nothing) for _ in range(repeats))
    return max(0.0, statistics.median(loop(function) for _ in range(repeats)) - empty) * 1e-9


def processor_time_of(function: Callable[[], Any], *, calls: int = 20_000, repeats: int = 9) -> float:
    """Seconds of this thread that one call takes: the least over repeats, whatever else the machine is doing."""
    times: list[int] = []
    for _ in range(repeats + 1):
        start = time.thread_time_ns()
        for _ in range(calls):
            function()
        times.append(time.thread_time_ns() - start)
    return min(times[1:]) / calls * 1e-9


def calls() -> list[Finding]:
    """A cached function of four small tensors, for NumPy arrays and tensors, and its entry alone."""
    import tessera as ts  # noqa: PLC0415 - imports are timed in processes of their own

    def four(
        a: ts.Tensor["N", ts.f32], b: ts.Tensor["N", ts.f32], c: ts.Tensor["N", ts.f32], d: ts.Tensor["N", ts.f32]
    ) -> Any:
        return a * b + c * d

    # This file's annotations are texts, which see the names of the module and of the function's closure only.
    four.__annotations__ = dict.fromkeys("abcd", ts.Tensor["N", ts.f32])
    function = ts.jit(four)
    a, b, c, d = (np.full(64, value, np.float32) for value in (1, 2, 3, 4))
    assert np.all(np.asarray(function(a, b, c, d)) == 14)
    ta, tb, tc, td = (ts.array(array) for array in (a, b, c, d))
    np.testing.assert_array_equal(np.asarray(function(ta, tb, tc, td)), np.asarray(function(a, b, c, d)))
    kernel = entry_time(function, (a, b, c, d))
    arrays, tensors = time_of(lambda: function(a, b, c, d)), time_of(lambda: function(ta, tb, tc, td))
    return [
        Finding("kernel alone (64 elements)", kernel),
        Finding("call with 4 NumPy arrays, less the kernel", arrays - kernel, 1.5e-6),
        Finding("call with 4 tensors, less the kernel", tensors - kernel, 1.5e-6),
        Finding("NumPy: a * b + c * d", time_of(lambda: a * b + c * d)),
        *_peer_calls(),
    ]


def rules() -> list[Finding]:
    """Rules about sizes: solving them, and the guards that are left at a call, in time of a CPU."""
    return [
        Finding("a thousand constraints read and solved", solving_time(), 0.1),
        Finding("what five guards add to a call", guard_time(processor_time_of), 2e-6),
    ]


def entry_time(function: Any, arrays: tuple[Any, ...]) -> float:
    """The compiled entry through ctypes, less what ctypes takes for a function that does nothing."""
    (made,) = function.specializations
    program = made.loaded._record.program  # the only look inside; there is no public call without the checks
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)
    entry, empty = signature(program.entry), signature(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0)
    out = np.empty_like(arrays[0])
    inputs = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    outputs = (ctypes.c_void_p * 1)(out.ctypes.data)
    symbols = (ctypes.c_int64 * 1)(len(out))
    workspace = ctypes.create_string_buffer(1 << 16)
    pointers = [ctypes.addressof(block) for block in (inputs, outputs, symbols, workspace)]
    return max(0.0, time_of(lambda: entry(*pointers)) - time_of(lambda: empty(*pointers)))


def _peer_calls() -> list[Finding]:
    found: list[Finding] = []
    arrays = [np.full(64, value, np.float32) for value in (1, 2, 3, 4)]

    def body(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * b + c * d

    jax, torch = _peer("jax"), _peer("torch")
    if jax is not None:
        jitted, given = jax.jit(body), [jax.numpy.asarray(array) for array in arrays]
        found.append(Finding("jax.jit of the same", time_of(lambda: jitted(*given).block_until_ready(), calls=5000)))
    if torch is not None:
        compiled, tensors = torch.compile(body, dynamic=False), [torch.from_numpy(array) for array in arrays]
        with torch.inference_mode():
            found.append(Finding("torch.compile of the same", time_of(lambda: compiled(*tensors), calls=3000)))
    return found


def _peer(name: str) -> Any:
    """A library by name, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_IMPORTS = """
import json, time
import numpy
start = time.perf_counter()
import tessera
bare = time.perf_counter() - start
tessera.jit, tessera.ops, tessera.Tensor
print(json.dumps([bare, time.perf_counter() - start]))
"""

_SMALL = """
import json, time
import numpy as np
import tessera as ts
def plain(x: ts.Tensor["B", "K", ts.f32]):
    return x + 1
def small(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32], b: ts.Tensor["N", ts.f32]):
    return ts.ops.softmax(ts.ops.gelu(x @ w + b))
arguments = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32), np.ones(32, np.float32)
def first(function, *arguments):
    jitted = ts.jit(function)
    start = time.perf_counter()
    jitted(*arguments)
    return time.perf_counter() - start
"""

_FRESH = f"{_SMALL}print(json.dumps([first(small, *arguments)]))"
# The plain one loads the compiler and starts its processes, and shares no kernel with the other.
_LATER = f"{_SMALL}print(json.dumps([first(plain, arguments[0]), first(small, *arguments)]))"

_TRANSFORMER = """
import json, time
import numpy as np
import tessera as ts
from examples.transformer import forward, random_layer
rng = np.random.default_rng(0)
layers = [random_layer(64, rng) for _ in range(12)]
x = rng.standard_normal((1, 16, 64), np.float32)
jitted = ts.jit(forward)
start = time.perf_counter()
jitted(x, layers, 8)
print(json.dumps([time.perf_counter() - start]))
"""


def in_fresh_process(program: str, cache: Path, bytecode: Path) -> list[float]:
    """The numbers that a program prints, run by a new interpreter with a cache folder of its own."""
    path = os.pathsep.join(filter(None, (str(environment.ROOT), os.environ.get("PYTHONPATH"))))
    # Installed packages are beside their byte code; a checkout may not, and would be compiled by each process again.
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    variables |= {"TESSERA_CACHE_DIR": str(cache), "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(bytecode)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        cwd=environment.ROOT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def medians(program: str, repeats: int, *, warm: bool = False) -> list[float]:
    """The median of each number over fresh processes, each with an empty cache, or all with one that is filled."""
    with tempfile.TemporaryDirectory() as name:
        folder, bytecode = Path(name), Path(name) / "bytecode"
        in_fresh_process(program, folder / "cache", bytecode)
        runs = [
            in_fresh_process(program, folder / ("cache" if warm else str(index)), bytecode) for index in range(repeats)
        ]
    return [statistics.median(numbers) for numbers in zip(*runs, strict=True)]


def processes(repeats: int) -> list[Finding]:
    """Imports and first calls, each in fresh processes."""
    bare, names = medians(_IMPORTS, repeats)
    return [
        Finding("import tessera, beyond NumPy", bare, 0.05),
        Finding("the same, with jit, ops and Tensor loaded", names, 0.05),
        Finding("first call of a small fused function, fresh process", medians(_FRESH, repeats)[0], 0.9),
        Finding("first call of the same, compiler imported", medians(_LATER, repeats)[1], 0.3),
        Finding("first call, fresh process, from the disk cache", medians(_FRESH, repeats, warm=True)[0], 0.03),
        Finding("first call of another one, from the disk cache", medians(_LATER, repeats, warm=True)[1], 0.03),
    ]


def transformers(repeats: int) -> list[Finding]:
    """Compiling twelve layers, cold and from the cache."""
    return [
        Finding("12-layer transformer, first call, fresh process", medians(_TRANSFORMER, repeats)[0], 6.0),
        Finding("12-layer transformer, from the disk cache", medians(_TRANSFORMER, repeats, warm=True)[0], 1.0),
    ]


def write_record(benchmark: str, name: str | None, findings: Sequence[Finding]) -> Path:
    """Write what a benchmark found to a file of a name, or else of the benchmark and the time; its path."""
    described = environment.describe()
    file = RESULTS / f"{name or benchmark + '-' + described['date'].replace(':', '')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {"schema": 1, **described, "findings": [asdict(finding) for finding in findings]}
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return file


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Fresh processes for each figure.")] = 5,
    only: Annotated[str, typer.Option(help="Only calls, solver, processes or transformers.")] = "",
    name: Annotated[str, typer.Option(help="Name of the file in benchmarks/results.")] = "",
) -> None:
    """Measure latencies against their limits; exit code 1 if one is missed."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    parts: dict[str, Callable[[], list[Finding]]] = {
        "calls": calls,
        "solver": rules,
        "processes": lambda: processes(repeats),
        "transformers": lambda: transformers(repeats),
    }
    if only and only not in parts:
        raise typer.BadParameter(f"{only!r} is none of {', '.join(parts)}")
    findings: list[Finding] = []
    for part, measured in parts.items():
        if only in ("", part):
            with console.status(f"measuring {part}"):
                findings += measured()
    table = Table(title="latency")
    for column in ("what", "time", "limit", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for finding in findings:
        limit = "" if finding.limit is None else seconds_text(finding.limit)
        word = "" if finding.limit is None else "[green]reached[/]" if finding.is_reached else "[red]missed[/]"
        table.add_row(finding.name, seconds_text(finding.seconds), limit, word)
    console.print(table)
    console.print(f"written: {write_record('latency', name, findings)}")
    raise typer.Exit(0 if all(finding.is_reached for finding in findings) else 1)


if __name__ == "__main__":
    typer.run(main)
