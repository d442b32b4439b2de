"""The demo: train a character-level GPT on Python's own source, save it, load it, write text with it, and show it all.

    python examples/demo.py [--steps 360] [--folder build/demo]

The text is the standard library of the Python that runs this; every tenth file is held out. Training is one jitted step
on the CPU, which gives the same weights every time. What was trained is saved, loaded again, and continues a line of
source with a cache of keys and values. At the end there is one HTML page: the loss, the kernels of a step with their
times and rooflines, its memory, and one kernel at every level of the compiler.
"""

from __future__ import annotations

import argparse
import string
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

import tessera as ts

CHARACTERS = "\n" + " " + string.ascii_letters + string.digits + string.punctuation
"""The vocabulary; any other character is the last of it."""
PROMPTS = ("def __init__(self", "    if not isinst", "class Test", "import ")
HELD_OUT = 10
"""One of so many files is not trained on."""


def encode(text: str) -> Any:
    """Characters as token numbers."""
    table = np.full(0x110000, len(CHARACTERS) - 1, np.int64)
    table[[ord(one) for one in CHARACTERS]] = np.arange(len(CHARACTERS))
    return table[np.frombuffer(text.encode("utf-32-le"), np.uint32)]


def decode(tokens: Any) -> str:
    """Token numbers as text."""
    return "".join(CHARACTERS[int(token)] for token in tokens)


def write_corpus(folder: Path, most: int) -> tuple[Path, Path]:
    """Token files of what is trained on and of what is held out, up to `most` files of the standard library."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:most]
    if len(files) < HELD_OUT:
        raise SystemExit("this Python has no standard library as source, which the demo reads")
    folder.mkdir(parents=True, exist_ok=True)
    texts = [file.read_text(encoding="utf-8", errors="replace").replace("\t", "    ") for file in files]
    paths = folder / "train.tokens", folder / "held_out.tokens"
    parts = [one for at, one in enumerate(texts) if at % HELD_OUT], texts[::HELD_OUT]
    for path, part in zip(paths, parts, strict=True):
        ts.data.write_tokens(path, encode("".join(part)), vocabulary=len(CHARACTERS))
    return paths


def loss_of(model: Any, batch: Any) -> Any:
    """The mean cross-entropy of the next character, in nats."""
    tokens, targets = batch
    return model.loss(tokens, targets)


def train(console: Console, config: ts.nn.GPTConfig, paths: tuple[Path, Path], batch: int, steps: int) -> Any:
    """Train from nothing; the state, the curves of the loss, and the step."""
    training, held_out = (ts.data.TokenFile(path) for path in paths)
    model = ts.nn.GPT.init(ts.random.key(0), config)
    console.print(ts.nn.summary(model, depth=1))
    rate = ts.optim.warmup_cosine(4e-3, warmup=steps // 20, steps=steps, end=4e-4)
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(rate, weight_decay=0.1))
    step = ts.train.make_step(loss_of, optimizer)
    state = ts.train.State.init(model, optimizer, key=1)
    batches = ts.data.Loader(ts.data.RandomWindows(training, config.length, key=2), batch, key=3)
    checked = ts.data.Loader(ts.data.RandomWindows(held_out, config.length, key=4), batch, shuffle=False)
    few = max(1, min(16, steps // 4))

    def check(event: Any) -> dict[str, float]:
        return {"held out": ts.train.evaluate(loss_of, event.state.params, checked, steps=few)["loss"]}

    start = time.perf_counter()
    state, history = ts.train.fit(
        step, state, batches, steps=steps, callbacks=[ts.train.every(max(1, steps // 5), check)]
    )
    seconds = time.perf_counter() - start
    tokens = steps * batch * config.length
    console.print(f"trained on {tokens:,} characters in {seconds:.0f} s, {tokens / seconds:,.0f} a second")
    curves = {"loss (nats per character)": {"training": history.of("loss"), "held out": history.of("held out")}}
    return state, curves, (step, next(iter(batches)))


def check_saved(console: Console, model: Any, config: ts.nn.GPTConfig, path: Path) -> Any:
    """Save a model, load it into a fresh one, and compare every bit."""
    ts.train.save(path, model)
    loaded = ts.train.restore(path, ts.nn.GPT.init(ts.random.key(9), config))
    kept, found = ts.nn.state_dict(model), ts.nn.state_dict(loaded)
    same = all(np.asarray(kept[name]).tobytes() == np.asarray(found[name]).tobytes() for name in kept)
    if not same:
        raise SystemExit("what was loaded is not what was saved")
    console.print(f"saved and loaded again, every bit the same: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return loaded


class Found(NamedTuple):
    """What the report shows: the curves of the loss, and the profile of a step; and where it is."""

    curves: dict[str, Any]
    profile: ts.profile.Profile
    page: Path


def main(
    *, steps: int = 360, width: int = 128, depth: int = 3, length: int = 96, batch: int = 24, files: int = 120,
    folder: str = "build/demo",
) -> Found:  # fmt: skip
    """From source text to a model that writes some."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    where = Path(folder)
    paths = write_corpus(where, files)
    config = ts.nn.GPTConfig(vocabulary=len(CHARACTERS), length=length, width=width, depth=depth, heads=4)
    state, curves, (step, one) = train(console, config, paths, batch, steps)
    model = check_saved(console, state.params, config, where / "model.safetensors")
    for number, prompt in enumerate(PROMPTS):
        count = length - len(prompt)
        written = ts.nn.generate(model, encode(prompt)[None], count, key=ts.random.key(number), temperature=0.6)
        text = (prompt + decode(np.asarray(written)[0])).rstrip()
        console.print(Panel(Text(text), title=f"what follows {prompt!r}", title_align="left", width=100))
    profile = step.profile(state, one)
    page = ts.profile.write_report(
        where / "report.html", "A GPT trained on Python's source", profile, curves, profile.lowering()
    )
    _, last = curves["loss (nats per character)"]["held out"][-1]
    console.print(f"loss on files that it never saw: {last:.2f} nats per character")
    console.print(f"the report, to open in a browser: {page}", soft_wrap=True)
    return Found(curves, profile, page)


def count(text: str) -> int:
    """The value of a flag that counts something."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 1")
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=count, default=360, help="steps of training, from 1")
    parser.add_argument("--folder", default="build/demo", help="where everything is written")
    given = parser.parse_args()
    main(steps=given.steps, folder=given.folder)
