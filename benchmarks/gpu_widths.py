"""Rows of many widths on a GPU, static and dynamic, against a copy of the same bytes: softmax and both norms.

Run it where there is an NVIDIA GPU and torch: `python -m benchmarks.gpu widths`. As `rows`: in one process, in
turns, by events of the device, medians; values are compared with f64 first, and outputs of dynamic and static sizes
against each other, bit for bit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from types import FunctionType
from typing import Any

import tessera as ts
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from benchmarks.gpu_rows import CHECKED, LARGEST_ERROR, layernorm, measured, rmsnorm, softmax

WIDTHS = (1024, 2048, 4096, 4097, 5000, 6144, 8192, 12288, 16384, 32768)
ELEMENTS = 1 << 27
"""Of a matrix: 256 MB of bf16."""


WORKS: tuple[Callable[..., Any], ...] = (softmax, rmsnorm, layernorm)


def free(function: Any, dtype: Any = ts.bf16) -> Any:
    """The function with every dim dynamic: of rows `x` and `y`, and of lines as long as those."""
    made = FunctionType(function.__code__, function.__globals__)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    made.__annotations__ = {
        name: ts.Tensor["M", "N", dtype] if name in ("x", "y") else ts.Tensor["N", dtype] for name in names
    }
    return made


def _expected(torch: Any, name: str, given: list[Any]) -> Any:
    wide, of = [part[:CHECKED].double() if at == 0 else part.double() for at, part in enumerate(given)], torch.nn
    if name == "softmax":
        return of.functional.softmax(wide[0], -1)
    if name == "rmsnorm":
        return of.functional.rms_norm(wide[0], (wide[0].shape[-1],), wide[1], 1e-6)
    return of.functional.layer_norm(wide[0], (wide[0].shape[-1],), wide[1], wide[2], 1e-5)


def row_of(torch: Any, columns: int, jitted: dict[str, Any], rounds: int, calls: int) -> dict[str, Any]:
    """One width: what each function takes, static and dynamic, and a copy."""
    rows = ELEMENTS // columns
    whole = torch.randn(rows, columns, device="cuda").to(torch.bfloat16)
    lines = [torch.randn(columns, device="cuda").to(torch.bfloat16) for _ in range(2)]
    target = torch.empty_like(whole)
    runs = {"copy": measured(torch, lambda: target.copy_(whole), calls)}
    for function in WORKS:
        name, given = function.__name__, [whole, *lines][: function.__code__.co_argcount]
        tensors = [ts.cuda.array(part) for part in given]
        results: list[Any] = []
        for kind, one in (("static", ts.jit(function, backend="cuda")), ("free", jitted[name])):
            results.append(torch.from_dlpack(one(*tensors)))
            runs[f"{name} {kind}"] = measured(torch, lambda one=one, tensors=tensors: one(*tensors), calls)
        expected = _expected(torch, name, given)
        error = float((results[0][:CHECKED].double() - expected).norm() / expected.norm())
        if not error < LARGEST_ERROR or not torch.equal(results[0], results[1]):
            raise SystemExit(f"{name} of {columns} columns is wrong: the error is {error}")
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    medians = {name: statistics.median(found) for name, found in times.items()}
    ratios = {name: round(medians["copy"] / time, 3) for name, time in medians.items() if name != "copy"}
    return {"columns": columns, "copy_microseconds": round(medians["copy"], 1), "ratio_to_copy": ratios}


def main() -> None:
    """Measure all widths, print a table, and write what was found."""
    parser = options("widths", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5)
    asked = parser.parse_args()
    need_gpu()
    torch = need_torch()
    jitted = {function.__name__: ts.jit(free(function), backend="cuda") for function in WORKS}
    widths = [int(width) for width in chosen(asked.only, [str(width) for width in WIDTHS], parser)]
    rows: list[dict[str, Any]] = []
    for columns in widths:
        rows.append(row_of(torch, columns, jitted, asked.rounds, asked.calls))
        shown = "  ".join(f"{name} {ratio:.2f}" for name, ratio in rows[-1]["ratio_to_copy"].items())
        print(f"{columns:6} {rows[-1]['copy_microseconds']:7.1f} us  {shown}", flush=True)
    write(asked.out, {"device": torch.cuda.get_device_name(), "dtype": "bf16", "elements": ELEMENTS, "rows": rows})


if __name__ == "__main__":
    main()
