"""Training on a GPU beside torch.compile: whole steps, their first call, memory and losses, and backward ops.

    python -m benchmarks.gpu train [--only step,attention] [--seconds 570] [--out FILE]

Each part is a process with a time limit of its own, and every row is written as it is found, so that a part that takes
too long loses itself alone; parts that do not fit into the seconds that are left are not begun. Within a part bursts of
both sides are interleaved in one process. `first` has empty caches first, and then those that it left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

import tessera as ts
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from benchmarks.gpu_train_ops import ATTENTION, adamw_row, attention_row, norm_row
from benchmarks.training_models import (
    GPT2,
    LLAMA,
    Model,
    TorchTrainer,
    draw_parameters,
    make_state,
    make_step,
    torch_model,
)

STEPS, WINDOW, SEEDS = 200, 20, 5
"""Steps of a comparison of losses, how many of them are one mean, and how many runs of torch there are."""
Row = dict[str, Any]


def random_batch(model: Model, seed: int = 0) -> tuple[Any, Any]:
    """Random tokens, and those that follow them."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, model.config.vocabulary, (model.batch, model.config.length + 1), dtype=np.int64)
    return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


# Parts: each gives its rows one by one.


def first_rows(torch: Any) -> Iterator[Row]:
    """The seconds of a first step, in processes of their own: with empty caches, and with those on disk."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "from the disk cache"):
            command = [sys.executable, "-m", "benchmarks.gpu", "train", "--child", "first-step"]
            env = {**os.environ, "TESSERA_CACHE_DIR": folder}
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                yield {"name": f"first step, {name}", "wrong": done.stderr.strip()[-2000:]}
                return
            yield {"name": f"first step, {name}", **json.loads(done.stdout.splitlines()[-1])}


def first_step() -> Row:
    """The first step of this process: tracing, compiling, loading and one run."""
    values, batch = draw_parameters(GPT2.config), random_batch(GPT2)
    state, given = make_state(GPT2.config, values), [ts.cuda.array(one) for one in batch]
    ts.cuda.synchronize()
    begun = time.perf_counter()
    _, metrics = make_step()(state, tuple(given))
    loss = float(metrics["loss"])
    return {"seconds": time.perf_counter() - begun, "loss": loss, "reserved_bytes": ts.cuda.POOL.reserved}


def step_rows(torch: Any, model: Model = GPT2, name: str = "GPT-2-small") -> Iterator[Row]:
    """Tokens a second of whole steps beside torch.compile, the bytes of both, and the first losses."""
    values, batch = draw_parameters(model.config), random_batch(model)
    state, given = [make_state(model.config, values)], tuple(ts.cuda.array(one) for one in batch)
    step, begun = make_step(), time.perf_counter()
    ours: list[float] = []

    def run() -> Any:
        state[0], metrics = step(state[0], given)
        return metrics["loss"]

    ours.append(float(run()))
    first = time.perf_counter() - begun
    ours += [float(run()) for _ in range(9)]
    host = time.perf_counter()
    run()
    host = time.perf_counter() - host
    ts.cuda.synchronize()
    yield {"name": f"{name}: ours alone", "first_s": first, "host_us": 1e6 * host, "losses": ours,
           "reserved_bytes": ts.cuda.POOL.reserved}  # fmt: skip
    torch.cuda.reset_peak_memory_stats()
    peer = TorchTrainer(torch, torch_model(torch, model.config, values), compiled=True)
    tensors, begun = [torch.tensor(one, device="cuda") for one in batch], time.perf_counter()
    theirs = [float(peer.step(*tensors))]
    compiled = time.perf_counter() - begun
    theirs += [float(peer.step(*tensors)) for _ in range(9)]
    times = timed(torch, {"tessera": run, "torch.compile": lambda: peer.step(*tensors)}, 1e13)
    rates = {who: model.tokens / seconds for who, seconds in times.items()}
    yield {
        "name": name, "milliseconds": {who: 1e3 * one for who, one in times.items()}, "tokens_per_second": rates,
        "teraflops": {who: model.flops / one / 1e12 for who, one in times.items()},
        "ratio": rates["tessera"] / rates["torch.compile"], "torch_first_s": compiled, "losses": [ours, theirs],
        "torch_peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": ts.cuda.POOL.reserved,
    }  # fmt: skip


def llama_rows(torch: Any) -> Iterator[Row]:
    """A model of a billion parameters with checkpointed blocks."""
    yield from step_rows(torch, LLAMA, "Llama-like 1B")


def attention_rows(torch: Any) -> Iterator[Row]:
    """Gradients of attention."""
    for one in ATTENTION:
        yield attention_row(torch, *one)
        torch.cuda.empty_cache()


def op_rows(torch: Any) -> Iterator[Row]:
    """Gradients of rows, and the update."""
    for name in ("layernorm", "rmsnorm", "softmax"):
        yield norm_row(torch, name)
        torch.cuda.empty_cache()
    yield adamw_row(torch)


def text_tokens() -> Any:
    """The bytes of Python's standard library."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8).astype(np.int64)


def windows(tokens: Any, model: Model, seed: int) -> Iterator[tuple[Any, Any]]:
    """Random windows of tokens, and those that follow."""
    rng, length = np.random.default_rng(seed), model.config.length
    while True:
        starts = rng.integers(0, len(tokens) - length - 1, model.batch)
        rows = np.stack([tokens[start : start + length + 1] for start in starts])
        yield np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def means(losses: Sequence[float], window: int = WINDOW) -> list[float]:
    """Losses as means of so many steps."""
    return [statistics.fmean(losses[at : at + window]) for at in range(0, len(losses), window)]


def judge_losses(ours: Sequence[float], twin: Sequence[float], theirs: Sequence[Sequence[float]]) -> Row:
    """Whether each mean of ours lies between the least and the largest of the others; and how far outside.

    `twin` is torch from the parameters of ours: where that is as far outside of the others, it is the parameters.
    """
    mine, same, others = means(ours), means(twin), [means(one) for one in theirs]
    low, high = ([bound(column) for column in zip(*others, strict=True)] for bound in (min, max))

    def outside(found: Sequence[float]) -> list[float]:
        return [max(a - one, one - b, 0.0) for one, a, b in zip(found, low, high, strict=True)]

    apart = max(abs(one - other) for one, other in zip(mine, same, strict=True))
    return {
        "ours": mine, "twin": same, "least": low, "largest": high, "outside": outside(mine),
        "twin_outside": outside(same), "apart": apart, "is_within": not any(outside(mine)),
    }  # fmt: skip


def loss_rows(torch: Any, steps: int = STEPS) -> Iterator[Row]:
    """200 steps of GPT-2-small on the same text by bytes, beside torch from the same parameters, and from others."""
    model = replace(GPT2, config=replace(GPT2.config, vocabulary=256))
    tokens, step = text_tokens(), make_step()
    state, batches = make_state(model.config, draw_parameters(model.config)), windows(tokens, model, 0)
    ours = list[float]()
    for _ in range(steps):
        state, metrics = step(state, tuple(ts.cuda.array(one) for one in next(batches)))
        ours.append(float(metrics["loss"]))
    yield {"name": "losses of ours", "losses": ours}
    del state
    theirs = list[list[float]]()
    for seed in range(SEEDS + 1):
        peer = TorchTrainer(
            torch, torch_model(torch, model.config, draw_parameters(model.config, seed)), compiled=False
        )
        batches, found = windows(tokens, model, 0), list[float]()
        for _ in range(steps):
            found.append(float(peer.step(*(torch.tensor(one, device="cuda") for one in next(batches)))))
        theirs.append(found)
        yield {"name": f"losses of torch, seed {seed}", "losses": found}
    yield {"name": "losses over 200 steps", **judge_losses(ours, theirs[0], theirs[1:])}


@dataclass(frozen=True)
class Part:
    """Rows of one kind, and the seconds that they may take."""

    rows: Callable[[Any], Iterator[Row]]
    seconds: int


PARTS = {
    "step": Part(step_rows, 180),
    "first": Part(first_rows, 120),
    "attention": Part(attention_rows, 180),
    "ops": Part(op_rows, 120),
    "loss": Part(loss_rows, 180),
    "llama": Part(llama_rows, 240),
}
"""In the order in which they are wanted."""


def run_child(name: str) -> None:
    """The rows of one part, each a line of JSON behind a mark, on the standard output as they come."""
    if name == "first-step":
        print(json.dumps(first_step()))
        return
    torch = need_torch()
    for row in PARTS[name].rows(torch):
        print(MARK + json.dumps(row), flush=True)


MARK = "row: "


def run_part(name: str, seconds: float, keep: Callable[[Row], None], command: Sequence[str] = ()) -> None:
    """Run a part as a process, and give each row to `keep` as it comes; one more says what ended it early."""
    given = list(command) or [sys.executable, "-m", "benchmarks.gpu", "train", "--child", name]
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        reader = threading.Thread(target=_read_rows, args=(process.stdout, name, keep), daemon=True)
        reader.start()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join(5.0)
        said.seek(0)
        words = said.read().strip()[-2000:]
    if process.returncode:
        taken = time.perf_counter() - begun
        why = f"it took longer than {seconds:.0f} s" if taken >= seconds else words
        keep({"part": name, "name": f"{name}: not finished", "wrong": why, "seconds": taken})


def _read_rows(lines: IO[str], name: str, keep: Callable[[Row], None]) -> None:
    """The rows among the lines that a part prints."""
    with lines:
        for line in lines:
            if line.startswith(MARK):
                keep({"part": name, **json.loads(line.removeprefix(MARK))})


def show(row: Row) -> None:
    """Print a row as it comes, without its samples."""
    kept = {name: value for name, value in row.items() if name not in ("losses", "part", "name")}
    text = json.dumps(kept, default=str)
    print(f"{row['name']:42} {text[:600]}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts, and write the record after each row."""
    parser = options("train", __doc__)
    parser.add_argument("--seconds", type=float, default=570.0, help="how long all parts may take together")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        run_child(asked.child)
        return
    names = chosen(asked.only, list(PARTS), parser)
    need_gpu()
    need_torch()
    rows, begun = list[Row](), time.perf_counter()

    def keep(row: Row) -> None:
        rows.append(row)
        show(row)
        write(asked.out, {"rows": rows})

    for name in names:
        left = asked.seconds - (time.perf_counter() - begun)
        if left < 20:
            keep({"part": name, "name": f"{name}: not begun", "wrong": f"{left:.0f} s were left"})
            continue
        run_part(name, min(left, PARTS[name].seconds), keep)


if __name__ == "__main__":
    main()
