"""A small run, as a program: trains on windows of tokens, saves as it goes, and prints what the weights are.

python -m tests.train.small_run FOLDER STEPS WORKERS SAVE_EVERY
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts

VOCABULARY, WIDTH, LENGTH, BATCH = 64, 64, 32, 8  # large enough for several threads


def make_params() -> dict[str, Any]:
    keys = ts.random.split(ts.random.key(1), 3)
    shapes = {"embedding": (VOCABULARY, WIDTH), "hidden": (WIDTH, WIDTH), "output": (WIDTH, VOCABULARY)}
    drawn = zip(keys, shapes.items(), strict=True)
    return {name: ts.random.normal(key, shape, std=0.3) for key, (name, shape) in drawn}


def loss(params: dict[str, Any], batch: Any, *, key: Any) -> Any:
    """The next token from the one before it, with dropout: each step draws other numbers."""
    inputs, targets = batch
    x = ts.ops.take(params["embedding"], inputs, axis=0)
    x = ts.random.dropout(ts.ops.gelu(x @ params["hidden"]), key, 0.2)
    logits = ts.ops.reshape(x @ params["output"], (BATCH * LENGTH, VOCABULARY))
    return ts.ops.cross_entropy(logits, ts.ops.reshape(targets, (BATCH * LENGTH,))).mean()


def make_loader(folder: Path, workers: int) -> ts.data.Loader:
    path = folder / "train.tokens"
    if not path.exists():
        ts.data.write_tokens(path, np.random.default_rng(0).integers(0, VOCABULARY, 4000), vocabulary=VOCABULARY)
    return ts.data.Loader(ts.data.Windows(ts.data.TokenFile(path), LENGTH), BATCH, key=5, workers=workers)


def digest(tree: Any) -> str:
    """A hash of all bits of a state and of its form."""
    from tessera.frontend.pytree import flatten, leaf_names

    leaves, form = flatten(tree)
    found = hashlib.sha256()
    for name, leaf in zip(leaf_names(form), leaves, strict=True):
        found.update(f"{name} {leaf.shape} {leaf.dtype} ".encode() + leaf.tobytes())
    return found.hexdigest()


def main() -> None:
    folder, steps, workers, save_every = Path(sys.argv[1]), *map(int, sys.argv[2:])
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(1e-2))
    step = ts.train.make_step(loss, optimizer)
    state = ts.train.State.init(make_params(), optimizer, key=3)
    print("ready", flush=True)
    with ts.train.Checkpointer(folder / "checkpoints", keep=2) as checkpoints:
        run = ts.train.fit(
            step,
            state,
            make_loader(folder, workers),
            steps=steps,
            checkpoints=checkpoints,
            save_every=save_every,
            progress=False,
        )
    print(digest((run.state, {"loss": ts.array(run.history["loss"], ts.f64)})), len(run.history), flush=True)


if __name__ == "__main__":
    main()
