"""How near matmuls come to the peak of the tensor cores: a few launches after a pause, and at which clock they ran.

    python -m benchmarks.gpu peaks [--only FORMS] [--out FILE]

The peak that a data sheet names is that of one clock. A board at the limit of its power runs slower than it, and one
that was idle faster, for a while: so launches are few and come after a pause, the clock of every SM is read
off before and after them, beside the time, and both fractions are recorded.
"""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_gemm import FUNCTIONS, Run, error_of, peer_of, shared, sides
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from tessera.runtime.devices.cuda.driver import Module, driver

SIZE = (8192, 8192, 8192)
PEAKS = {"nt": 989e12, "e4m3": 1979e12}
"""What the data sheet of an H200 says of dense matmuls, in operations a second."""
CYCLE = {"nt": 4096, "e4m3": 8192}
"""Operations of an SM in a cycle."""
LAUNCHES: dict[str, Sequence[int]] = {"nt": (1, 4), "e4m3": (1, 2, 4, 16)}
GOAL = 0.8
_PAUSE, _ROUNDS, _HELD = 0.2, 11, 3_000_000
_QUERY = "clocks.max.sm,power.limit"

STAMP = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry stamp(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %smid;
    mul.wide.u32 %d1, %r0, 16;
    add.u64 %d1, %d0, %d1;
    mov.u64 %d2, %clock64;
    mov.u64 %d3, %globaltimer;
    st.global.v2.u64 [%d1], {%d2, %d3};
    ret;
}
"""
"""Each SM writes its cycles and the time in nanoseconds to a location of its own."""


class Clock:
    """The clock of SMs between two points of the stream."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.module = torch, Module(STAMP)
        self.blocks = driver().attribute("blocks")
        # Numbers of SMs may have gaps.
        self.stamps = [torch.zeros(2 * self.blocks, 2, dtype=torch.int64, device="cuda") for _ in range(2)]
        self.function = ctypes.c_void_p(self.module.function("stamp"))

    def stamp(self, which: int) -> None:
        """Put the reading of all clocks into the stream."""
        given = (ctypes.c_void_p * 1)()
        address = ctypes.c_uint64(self.stamps[which].data_ptr())
        given[0] = ctypes.cast(ctypes.pointer(address), ctypes.c_void_p)
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        driver().call("cuLaunchKernel", self.function, self.blocks, 1, 1, 1, 1, 1, 0, stream, given, None)

    def hertz(self) -> float:
        """The clock between both readings; the device has done all of it."""
        return hertz_of(*(one.tolist() for one in self.stamps))


def hertz_of(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> float:
    """The median clock of those SMs that wrote (cycles, nanoseconds) twice."""
    both = [(one, two) for one, two in zip(before, after, strict=True) if one[1] and two[1]]
    return statistics.median(1e9 * (two[0] - one[0]) / (two[1] - one[1]) for one, two in both)


def share_of(form: str, seconds: float, hertz: float, blocks: int) -> dict[str, float]:
    """The rate of a matmul that took so long, as a fraction of the peak by the data sheet, and at its own clock."""
    rate = 2.0 * SIZE[0] * SIZE[1] * SIZE[2] / seconds
    peak = float(blocks * CYCLE[form]) * hertz
    return {
        "tflops": rate / 1e12,
        "of_nominal": rate / PEAKS[form],
        "clock_mhz": hertz / 1e6,
        "peak_at_clock": peak / 1e12,
        "of_clock": rate / peak,
    }


def burst(torch: Any, clock: Clock, run: Run, count: int) -> tuple[float, float]:
    """Seconds of one of so many launches after a pause, and the clock that they ran at."""
    time.sleep(_PAUSE)
    # The stream is held until all is in it: what is measured is the device's time.
    torch.cuda._sleep(_HELD)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    clock.stamp(0)
    begin.record()
    for _ in range(count):
        run()
    end.record()
    clock.stamp(1)
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count / 1e3, clock.hertz()


def rows_of(torch: Any, form: str, clock: Clock) -> list[dict[str, Any]]:
    """A matmul by us and by cuBLAS: bursts of each length are interleaved."""
    x, w, more = sides(torch, form, SIZE)
    given = [shared(torch, value) for value in (x, w, *more)]
    runs: Mapping[str, Run] = {
        "tessera": lambda: FUNCTIONS[form](*given),
        "torch": peer_of(torch, form, x, w.T, more),
    }
    error = error_of(torch, runs["tessera"](), x.double() @ w.double().T)
    runs["torch"]()
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(_ROUNDS):
        for count in LAUNCHES[form]:
            for name, run in runs.items():
                found.setdefault((name, count), []).append(burst(torch, clock, run, count))
    rows: list[dict[str, Any]] = []
    for (name, count), times in found.items():
        seconds, hertz = (statistics.median(column) for column in zip(*times, strict=True))
        best = min(one for one, _ in times)
        row: dict[str, Any] = {"form": form, "by": name, "launches": count, "rounds": _ROUNDS, "error": error}
        row |= {
            **share_of(form, seconds, hertz, clock.blocks),
            "best_of_nominal": share_of(form, best, hertz, 1)["of_nominal"],
        }
        rows.append(row)
        print(
            f"{form:5} {name:8} {count:3} launches {row['tflops']:7.1f} TFLOP/s: {row['of_nominal']:.3f} of the data "
            f"sheet's, {row['of_clock']:.3f} at {row['clock_mhz']:.0f} MHz",
            flush=True,
        )
    return rows


def board() -> dict[str, str]:
    """What the board may do: its highest clock, and the limit of its power."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    asked = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return dict(zip(_QUERY.split(","), (part.strip() for part in said.split(",")), strict=False))


def main() -> None:
    """Measure the forms that are asked for, and write them down."""
    parser = options("peaks", __doc__)
    asked = parser.parse_args()
    wanted = chosen(asked.only, list(PEAKS), parser)
    need_gpu()
    torch = need_torch()
    clock = Clock(torch)
    rows = [row for form in wanted for row in rows_of(torch, form, clock)]
    write(asked.out, {"goal": GOAL, "size": list(SIZE), "board": board(), "pause": _PAUSE, "rows": rows})


if __name__ == "__main__":
    main()
