"""Train a GPT of any size on a CPU or a GPU: from a token file, in f32 or bf16, with checkpoints to continue from.

    python examples/gpt2.py                                   # a tiny one, in seconds on a CPU
    python examples/gpt2.py --size gpt2-small --backend cuda --precision bf16 --tokens text.tokens --steps 20000
    python examples/gpt2.py --resume --steps 200              # continue the first for longer

`--size` chooses all sizes, and the flags after it change single ones. `--tokens` is a file that `ts.data.write_tokens`
made; it is mapped into memory, and its last part is held out. Without one, the bytes of Python's standard library are
the tokens.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import tessera as ts
from tessera import nn

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"vocabulary": 256, "sequence": 64, "d_model": 64, "layers": 2, "heads": 4, "batch": 8},
    "gpt2-small": {"vocabulary": 50257, "sequence": 1024, "d_model": 768, "layers": 12, "heads": 12, "batch": 8},
    "gpt2-medium": {"vocabulary": 50257, "sequence": 1024, "d_model": 1024, "layers": 24, "heads": 16, "batch": 8},
}
HELD_OUT = 20
"""One of so many tokens, at the end of the file, is not trained on."""


def loss_of(model: nn.GPT, batch: Any) -> Any:
    """The mean cross-entropy of the next token, in nats."""
    return model.loss(*batch)


def make_optimizer(rate: float, steps: int) -> Any:
    """AdamW as GPTs are trained with it: warmup, a cosine down to a tenth, clipping, decay of matrices alone."""
    schedule = ts.optim.warmup_cosine(rate, warmup=steps // 20, steps=steps, end=rate / 10)
    adamw = ts.optim.adamw(schedule, b2=0.95, weight_decay=0.1, mask=ts.optim.matrices)
    return ts.optim.chain(ts.optim.clip_by_global_norm(1.0), adamw)


def make_step(optimizer: Any, precision: str) -> ts.Jit:
    """Forward, backward and update as one program; with bf16 ops compute in it, and parameters and moments are f32."""
    options: dict[str, Any] = {"policy": ts.Training()} if precision == "bf16" else {}
    return ts.train.make_step(loss_of, optimizer, grad_norm=True, **options)


def open_tokens(path: str, folder: Path, vocabulary: int) -> ts.data.TokenFile:
    """The token file of a path, or one of the bytes of the standard library; raises where the model lacks tokens."""
    if not path:
        path = str(folder / "stdlib.tokens")
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        if not files:
            raise SystemExit("this Python has no standard library as source: give a file with `--tokens`")
        ts.data.write_tokens(path, (file.read_bytes() for file in files), vocabulary=256)
    tokens = ts.data.TokenFile(path)
    if tokens.vocabulary > vocabulary:
        raise SystemExit(f"{path} has {tokens.vocabulary} different tokens: give `--vocabulary {tokens.vocabulary}`")
    return tokens


def make_loaders(tokens: ts.data.TokenFile, sequence: int, batch: int, seed: int) -> tuple[Any, Any]:
    """Random windows of most of the tokens, and windows of those that are held out, one after the other."""
    cut = len(tokens) - len(tokens) // HELD_OUT
    if len(tokens) - cut <= batch * sequence:
        least = HELD_OUT * (batch * sequence + 1)
        raise SystemExit(f"{tokens.path} has {len(tokens)} tokens: {batch} sequences of {sequence} need {least}")
    windows = ts.data.RandomWindows(tokens[:cut], sequence, key=seed)
    checked = ts.data.Windows(tokens[cut:], sequence)
    return ts.data.Loader(windows, batch, key=seed, shuffle=False), ts.data.Loader(checked, batch, shuffle=False)


def open_checkpoints(folder: Path, resume: bool) -> ts.train.Checkpointer:
    """The checkpoints of a run, which there are none of before it unless it is to continue."""
    checkpoints = ts.train.Checkpointer(folder / "checkpoints")
    latest = checkpoints.latest()
    if latest is not None and not resume:
        raise SystemExit(f"{folder} has a checkpoint of step {latest}: give `--resume`, or another `--folder`")
    if latest is None and resume:
        raise SystemExit(f"{folder} has no checkpoint to resume from: leave `--resume` out")
    if latest is not None:
        print(f"continue after step {latest}")
    return checkpoints


def place(backend: str) -> AbstractContextManager[Any]:
    """Where everything runs."""
    return ts.device(ts.gpu[0] if backend == "cuda" else ts.cpu)


class Found(NamedTuple):
    """What a run gave: the state, the losses of its steps, and the loss on tokens that were held out."""

    state: Any
    losses: list[float]
    held_out: float


def main(
    *, size: str = "tiny", layers: int | None = None, d_model: int | None = None, heads: int | None = None,
    sequence: int | None = None, batch: int | None = None, vocabulary: int | None = None, steps: int = 100,
    learning_rate: float = 6e-4, backend: str = "cpu", precision: str = "f32", remat: bool = False, tokens: str = "",
    folder: str = "build/gpt2", save_every: int = 50, resume: bool = False, profile: bool = False, seed: int = 0,
) -> Found:  # fmt: skip
    """Train, and say how well and how fast."""
    own = {"layers": layers, "d_model": d_model, "heads": heads, "sequence": sequence, "batch": batch}
    chosen = SIZES[size] | {name: one for name, one in {**own, "vocabulary": vocabulary}.items() if one is not None}
    config = nn.GPTConfig(
        vocabulary=chosen["vocabulary"],
        length=chosen["sequence"],
        width=chosen["d_model"],
        depth=chosen["layers"],
        heads=chosen["heads"],
        remat=remat,
    )
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    file = open_tokens(tokens, where, config.vocabulary)
    batches, checked = make_loaders(file, config.length, chosen["batch"], seed)
    optimizer = make_optimizer(learning_rate, steps)
    step = make_step(optimizer, precision)
    with place(backend), open_checkpoints(where, resume) as checkpoints:
        model = nn.GPT.init(ts.random.key(seed), config)
        count = sum(leaf.size for leaf in nn.state_dict(model).values())
        print(f"{count:,} parameters, {len(file):,} tokens in {file.path}, {precision} on {backend}")
        state = ts.train.State.init(model, optimizer, key=seed, copy=False)
        start = time.perf_counter()
        state, history = ts.train.fit(step, state, batches, steps=steps, checkpoints=checkpoints, save_every=save_every)
        seconds = time.perf_counter() - start
        held_out = ts.train.evaluate(loss_of, state.params, checked, steps=8)["loss"]
        taken, loss = history.steps[-1], history["loss"][-1]
        print(f"{taken} steps, this run took {seconds:.1f} s with compilation; loss {loss:.3f}")
        print(f"loss on tokens that were held out: {held_out:.3f} nats per token")
        if profile:
            write_profile(step, state, next(iter(batches)), where, history)
    return Found(state, history["loss"], held_out)


def write_profile(step: ts.Jit, state: Any, batch: Any, folder: Path, history: ts.train.History) -> None:
    """Run a step once more, and write where its time and its memory go, with the curves of the run."""
    found = step.profile(state, batch)
    found.save(folder / "profile")
    curves = {"loss": {"training": history.of("loss")}, "norm of gradients": {"training": history.of("grad_norm")}}
    page = ts.profile.write_report(folder / "report.html", "Training of a GPT", found, curves, found.lowering())
    print(f"the report, to open in a browser: {page}; a trace and tables: {folder / 'profile'}")


# What the flags may be.


def count(text: str) -> int:
    """The value of a flag that counts something."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 1")
    return int(text)


def seed_of(text: str) -> int:
    """The value of `--seed`."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0")
    return int(text)


def rate_of(text: str) -> float:
    """The value of `--learning-rate`."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return rate


def make_parser() -> argparse.ArgumentParser:
    """The flags, which are the arguments of `main`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--size", choices=SIZES, default="tiny", help="all sizes below (default: tiny)")
    add("--layers", type=count, help="blocks")
    add("--d-model", type=count, help="the width, a multiple of the heads")
    add("--heads", type=count, help="heads of attention")
    add("--sequence", type=count, help="tokens of a sequence")
    add("--batch", type=count, help="sequences of a step")
    add("--vocabulary", type=count, help="different tokens")
    add("--steps", type=count, default=100, help="steps in all, also of a run that resumes (default: 100)")
    add("--learning-rate", type=rate_of, default=6e-4, help="its peak, after the warmup (default: 6e-4)")
    add("--backend", choices=("cpu", "cuda"), default="cpu", help="where to run (default: cpu)")
    add("--precision", choices=("f32", "bf16"), default="f32", help="what ops compute in (default: f32)")
    add("--remat", action="store_true", help="keep the inputs of blocks alone for the backward pass: less memory")
    add("--tokens", default="", help="a token file (default: the bytes of Python's standard library)")
    add("--folder", default="build/gpt2", help="where everything is written (default: build/gpt2)")
    add("--save-every", type=count, default=50, help="steps from checkpoint to checkpoint (default: 50)")
    add("--resume", action="store_true", help="continue from the last checkpoint of the folder")
    add("--profile", action="store_true", help="write a report on a step: kernels, memory, rooflines")
    add("--seed", type=seed_of, default=0, help="of weights and batches (default: 0)")
    return parser


if __name__ == "__main__":
    parser = make_parser()
    given = vars(parser.parse_args())
    if given["backend"] == "cuda" and not ts.cuda.is_available():
        parser.exit(2, f"{parser.prog}: there is no NVIDIA GPU here; leave `--backend cuda` out to run on the CPU\n")
    try:
        main(**given)
    except (ts.TesseraError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted; `--resume` continues from the last checkpoint\n")
