"""What the compiler chooses by itself beside what is asked for: schedules, stages of copies, and epilogues.

    python -m benchmarks.gpu choices [--only PARTS] [--out FILE]

`schedules` holds a kernel without a schedule against the fastest of a space; `stages` a kernel that waits for memory
with one stage of copies against several; `automatic` a plain matmul with the stages that it gets against one;
`epilogue` a matmul with what follows it in one kernel against a kernel for each op. Contenders of a row run in one
process, interleaved, by events of the device, after each was compared with float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import matmul, nt, timed
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from tessera import Schedule, kernel

Size = tuple[int, int, int]
SHAPES: tuple[Size, ...] = (
    *((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 1024), (4097, 4104, 4104), (3840, 3840, 3840)),
    *((16, 8192, 8192), (128, 8192, 8192), (512, 4096, 4096), (1024, 8192, 4096), (768, 3072, 16384)),
)
"""Matmuls for which a schedule is found: large, ragged, of few rows, and of long sums."""
BLOCKS = (
    *((64, 64, 64), (64, 128, 64), (64, 256, 64), (128, 64, 64), (128, 128, 64), (128, 192, 64), (128, 256, 64)),
    *((128, 144, 64), (192, 192, 64), (256, 128, 64), (64, 64, 128), (128, 128, 128)),
)
SPACE = (*(Schedule(block=block) for block in BLOCKS), Schedule(block=(128, 128, 64), stages=3))
WAITING: Size = (64, 16384, 8192)
"""Few rows by a matrix of 256 MiB, read once: memory alone says how long it takes."""
AUTOMATIC: tuple[Size, ...] = ((4096, 4096, 4096), WAITING)
LAYERS: tuple[Size, ...] = ((8192, 8192, 1024), (4096, 16384, 1024), (4096, 4096, 4096))
STAGES = (1, 2, 3, 4)
FINAL, SCREENED = 5, 3
"""Rounds of the last comparison, and candidates that come into it."""

kernel_alone = kernel.auto(matmul.definition.function)


def layer(x: Any, w: Any, b: Any) -> Any:
    """A matmul, a bias and relu."""
    return ts.ops.relu(ts.ops.matmul(x, ts.ops.transpose(w)) + b)


def called(made: Any, **given: Any) -> Any:
    """A kernel of the kernel language as a program for the GPU, with sizes as numbers."""

    def program(x: Any, w: Any) -> Any:
        return made(x, w)

    return ts.jit(program, backend="cuda", **given)


def text_of(schedule: Schedule) -> str:
    """A schedule in a few words."""
    return "x".join(map(str, schedule.block)) + (f" {schedule.stages} stages" if schedule.stages else "")


def micro(times: Mapping[str, float]) -> dict[str, float]:
    """Seconds as microseconds."""
    return {name: round(1e6 * value, 3) for name, value in times.items()}


def schedule_row(size: Size, found: str, times: Mapping[str, float], screened: Mapping[str, float]) -> dict[str, Any]:
    """How much of the fastest of a space the schedule that nobody gave reaches; `times` have it as `default`."""
    best = min(times, key=lambda name: times[name])
    return {
        "size": list(size),
        "found": found,
        "best": found if best == "default" else best,
        "share": round(times[best] / times["default"], 4),
        "microseconds": micro(times),
        "screened": micro(screened),
    }


def gain_row(form: str, size: Size, slow: str, times: Mapping[str, float], **facts: Any) -> dict[str, Any]:
    """How many times as fast each variant is as the slow one."""
    gains = {name: round(times[slow] / value, 4) for name, value in times.items() if name != slow}
    return {"form": form, "size": list(size), "microseconds": micro(times), "gains": gains, **facts}


class Bench:
    """Operands on the device, and the parts."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def sides(self, size: Size, form: str) -> tuple[list[Any], Any]:
        """Random operands of a matmul on the device, and what they give in float64."""
        m, n, k = size
        x = self.torch.randn(m, k, device="cuda").bfloat16()
        w = self.torch.randn(*((n, k) if form == "nt" else (k, n)), device="cuda").bfloat16()
        return [ts.cuda.array(x), ts.cuda.array(w)], x.double() @ (w.double().T if form == "nt" else w.double())

    def check(self, name: str, made: Any, wanted: Any) -> Any:
        """The bits of a result that is right; leaves where it is not."""
        found = self.torch.from_dlpack(made)
        if not float((found.double() - wanted).norm() / wanted.norm()) < 1e-2:
            raise SystemExit(f"{name} is wrong")
        return found

    def ready(self, made: Mapping[str, Any], given: Sequence[Any], wanted: Any) -> bool:
        """Compile and check all variants, some at a time; whether all have the same bits."""

        def first(name: str) -> Any:
            return self.check(name, made[name](*given), wanted)

        with ThreadPoolExecutor(12) as pool:
            results = list(pool.map(first, made))
        return all(bool((one == results[0]).all()) for one in results)

    def measured(self, made: Mapping[str, Any], given: Sequence[Any], size: Size, rounds: int) -> dict[str, float]:
        """Median seconds of each variant."""
        runs = {name: (lambda function=function: function(*given)) for name, function in made.items()}
        return timed(self.torch, runs, 2.0 * size[0] * size[1] * size[2], rounds)

    def schedules(self) -> list[dict[str, Any]]:
        """A schedule that nobody gave, beside the fastest of a space."""
        return [self.schedule(size) for size in SHAPES]

    def schedule(self, size: Size) -> dict[str, Any]:
        """One matmul: the space is gone through once, and the fastest few of it are then compared."""
        given, wanted = self.sides(size, "nn")
        found = text_of(kernel_alone.discover(*given))
        legal = kernel_alone.legal(SPACE, *given)
        ways = {text_of(one): called(kernel_alone.with_schedule(one)) for one in legal}
        default = called(kernel_alone)
        self.ready({"default": default, **ways}, given, wanted)
        screened = self.measured(ways, given, size, 1)
        first = sorted(screened, key=lambda name: screened[name])[:SCREENED]
        last = {"default": default, **{name: ways[name] for name in first if name != found}}
        row = schedule_row(size, found, self.measured(last, given, size, FINAL), screened)
        return shown(f"schedule {size}: {row['found']} reaches {row['share']} of {row['best']}", row)

    def stages(self) -> list[dict[str, Any]]:
        """A kernel that waits for memory, by the stages of its copies."""
        given, wanted = self.sides(WAITING, "nn")
        blocks = Schedule(block=(64, 64, 128))
        ways = {str(count): called(kernel_alone.with_schedule(blocks.with_stages(count))) for count in STAGES}
        same = self.ready(ways, given, wanted)
        row = gain_row("nn", WAITING, "1", self.measured(ways, given, WAITING, FINAL), same_bits=same)
        return [shown(f"stages: {row['gains']}", row)]

    def automatic(self) -> list[dict[str, Any]]:
        """A plain matmul, with the stages that it gets, and with one."""
        rows: list[dict[str, Any]] = []
        for size in AUTOMATIC:
            given, wanted = self.sides(size, "nt")
            one = ts.jit(nt, backend="cuda", overrides={"pipeline.stages": 1})
            ways = {"off": one, "automatic": ts.jit(nt, backend="cuda")}
            same = self.ready(ways, given, wanted)
            rows.append(gain_row("nt", size, "off", self.measured(ways, given, size, FINAL), same_bits=same))
            shown(f"automatic {size}: {rows[-1]['gains']}", rows[-1])
        return rows

    def epilogue(self) -> list[dict[str, Any]]:
        """A matmul with a bias and relu: one kernel, and three."""
        rows: list[dict[str, Any]] = []
        for size in LAYERS:
            (x, w), product = self.sides(size, "nt")
            b = self.torch.randn(size[1], device="cuda").bfloat16()
            given = [x, w, ts.cuda.array(b)]
            ways = {"apart": ts.jit(layer, backend="cuda", fusion=False), "fused": ts.jit(layer, backend="cuda")}
            wanted = self.torch.relu((product.bfloat16() + b).double())
            same = self.ready(ways, given, wanted)
            counts = {name: len(function.explain(*given).report["kernels"]) for name, function in ways.items()}
            times = self.measured(ways, given, size, FINAL)
            rows.append(gain_row("nt", size, "apart", times, same_bits=same, kernels=counts))
            shown(f"epilogue {size}: {rows[-1]['gains']} {counts}", rows[-1])
        return rows


def shown(line: str, row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes."""
    print(line, flush=True)
    return row


PARTS: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {
    "stages": Bench.stages,
    "automatic": Bench.automatic,
    "epilogue": Bench.epilogue,
    "schedules": Bench.schedules,
}


def summary_of(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """The least of each part: fractions of the best, and gains."""
    found: dict[str, float] = {}
    for name, rows in parts.items():
        values = [row["share"] if name == "schedules" else max(row["gains"].values()) for row in rows]
        found[name] = min(values, default=0.0)
    return found


def main() -> None:
    """The command line."""
    parser = options("choices", __doc__)
    asked = parser.parse_args()
    names = chosen(asked.only, list(PARTS), parser)
    need_gpu()
    torch = need_torch()
    bench, parts = Bench(torch), dict[str, list[dict[str, Any]]]()
    for name in names:
        parts[name] = PARTS[name](bench)
        # What is left is written after each part, so that what was measured stays.
        write(asked.out, {"least": summary_of(parts), "parts": parts})


if __name__ == "__main__":
    main()
