"""A LoRA fine-tune: a trained model stays as it is, and small low-rank matrices beside its weights learn other text.

    python examples/lora.py [--rank 4] [--steps 200] [--base model.safetensors] [--folder build/lora]

A small GPT is trained on source of Python's standard library, or loaded with `--base`. Then its weights are frozen, and
adapters, two thin matrices at each projection, learn the prose of Python's reference, which every Python has. Only they
have gradients, moments and a file of their own. At the end they are merged into the weights, which gives a model of the
first form that computes what the model with adapters does.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tessera as ts
from tessera import nn

VOCABULARY = 128
"""ASCII; other characters of the text are written as `?`."""


class LowRank(nn.Module):
    """A linear layer with an adapter: `base(x) + scale * (x @ a) @ b`, with `a` [in, rank] and `b` [rank, out]."""

    base: nn.Linear
    a: ts.Tensor
    b: ts.Tensor
    scale: float

    @classmethod
    def init(cls, key: Any, base: nn.Linear, rank: int, alpha: float = 8.0) -> LowRank:
        """An adapter that changes nothing yet: `a` is normal and `b` is zero."""
        inputs, outputs = base.weight.shape
        a = nn.initializers.normal(key, (inputs, rank), 1.0 / math.sqrt(inputs))
        return cls(base, a, ts.zeros((rank, outputs)), alpha / rank)

    @property
    def weight(self) -> Any:
        """The frozen weight, of which attention asks the shape."""
        return self.base.weight

    def __call__(self, x: Any) -> Any:
        return self.base(x) + (x @ self.a) @ self.b * self.scale

    def merge(self) -> nn.Linear:
        """One linear layer that does the same."""
        return self.base.replace(weight=self.base.weight + self.a @ self.b * self.scale)


PROJECTIONS = (("attention", "qkv"), ("attention", "out"), ("mlp", "up"), ("mlp", "down"))
"""The linear layers of a block that have adapters."""


def replace_projections(model: nn.GPT, change: Callable[[Any], Any]) -> nn.GPT:
    """The model with other layers in place of its projections."""
    blocks: list[nn.Block] = []
    for block in model.blocks:
        for part, name in PROJECTIONS:
            layer: Any = getattr(block, part)
            block = block.replace(**{part: layer.replace(**{name: change(getattr(layer, name))})})
        blocks.append(block)
    return model.replace(blocks=tuple(blocks))


def with_adapters(model: nn.GPT, rank: int, key: Any) -> nn.GPT:
    """The model with an adapter at each projection."""
    keys = iter(ts.random.split(key, len(PROJECTIONS) * len(model.blocks)))
    return replace_projections(model, lambda layer: LowRank.init(next(keys), layer, rank))


def merge_adapters(model: nn.GPT) -> nn.GPT:
    """The model with each adapter merged into the weight beside it: a plain GPT again."""
    return replace_projections(model, lambda layer: layer.merge())


@ts.jit
def scores_of(model: nn.GPT, tokens: Any) -> Any:
    """The scores of the character after each of `tokens`."""
    return model(tokens)


def is_adapter(name: str, leaf: Any) -> bool:
    """Whether a tensor of a model is of an adapter, by its name, as `blocks.0.mlp.up.a`."""
    return name.rpartition(".")[2] in ("a", "b")


def base_loss(model: nn.GPT, batch: Any) -> Any:
    """The mean cross-entropy of the next character, in nats."""
    return model.loss(*batch)


def adapter_loss(adapters: Any, batch: Any, *, extra: Any) -> tuple[Any, Any]:
    """The loss by the adapters alone; the frozen weights are in `extra`, which a step passes on as it is."""
    return base_loss(nn.combine(adapters, extra), batch), extra


class Texts(NamedTuple):
    """Batches of one kind of text: to train with, and held out."""

    train: ts.data.Loader
    held_out: ts.data.Loader


def texts_of(text: str, length: int, batch: int) -> Texts:
    """Windows of a text, of which the last tenth is held out."""
    tokens = np.frombuffer(text.encode("ascii", "replace"), np.uint8)
    cut = len(tokens) * 9 // 10
    return Texts(
        ts.data.Loader(ts.data.RandomWindows(tokens[:cut], length, key=0), batch),
        ts.data.Loader(ts.data.Windows(tokens[cut:], length), batch, shuffle=False),
    )


def read_texts(length: int, batch: int) -> tuple[Texts, Texts]:
    """Source of the standard library, and the prose of the reference."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files, reference = sorted(library.glob("*.py"))[:60], library / "pydoc_data" / "topics.py"
    if not files or not reference.is_file():
        raise SystemExit(f"{library} has no source of the standard library with its reference, which are read here")
    code = "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    namespace: dict[str, Any] = {}
    exec(reference.read_text(encoding="utf-8"), namespace)  # a dict of texts, in Python's own library
    return texts_of(code, length, batch), texts_of("\n".join(namespace["topics"].values()), length, batch)


def train(loss: Any, params: Any, texts: Texts, steps: int, rate: float, extra: Any = None) -> ts.train.State:
    """Train parameters; `extra` is what the loss needs besides, and no optimizer sees."""
    schedule = ts.optim.warmup_cosine(rate, warmup=steps // 20, steps=steps, end=rate / 10)
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(schedule))
    state = ts.train.State.init(params, optimizer, extra=extra)
    return ts.train.fit(ts.train.make_step(loss, optimizer), state, texts.train, steps=steps).state


def load_base(config: nn.GPTConfig, code: Texts, steps: int, path: str) -> nn.GPT:
    """A model that knows code: that of a file, or one that is trained now."""
    model = nn.GPT.init(ts.random.key(0), config)
    if path:
        return ts.train.restore(path, model)
    print(f"train a base model on Python's source, {steps} steps")
    return train(base_loss, model, code, steps, 4e-3).params


class Found(NamedTuple):
    """What a fine-tune gave: held-out losses on prose, numbers of parameters, and the largest difference by merging."""

    before: float
    after: float
    trained: int
    total: int
    difference: float


def main(
    *, rank: int = 4, steps: int = 200, base_steps: int = 300, base: str = "", folder: str = "build/lora",
    width: int = 64, depth: int = 2, length: int = 64, batch: int = 16,
) -> Found:  # fmt: skip
    """Train or load a model, fine-tune it by adapters, save these, and merge them."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    code, prose = read_texts(length, batch)
    config = nn.GPTConfig(vocabulary=VOCABULARY, length=length, width=width, depth=depth, heads=4)
    model = load_base(config, code, base_steps, base)
    ts.train.save(where / "base.safetensors", model)

    adapted = with_adapters(model, rank, ts.random.key(1))
    adapters, frozen = nn.partition(adapted, is_adapter)
    trained, total = (sum(leaf.size for leaf in nn.state_dict(tree).values()) for tree in (adapters, adapted))
    print(f"train {trained:,} of {total:,} parameters ({trained / total:.1%}) on the reference's prose, {steps} steps")
    before = measure(model, prose)
    kept = {name: np.array(one) for name, one in nn.state_dict(frozen).items()}  # of their own, to compare with
    state = train(adapter_loss, adapters, prose, steps, 1e-2, extra=frozen)
    check_frozen(kept, nn.state_dict(state.extra))

    path = where / "adapters.safetensors"
    ts.train.save(path, state.params)
    loaded = ts.train.restore(path, adapters)
    tuned = nn.combine(loaded, state.extra)
    merged = merge_adapters(tuned)
    difference = check_merged(tuned, merged, prose)
    after = measure(merged, prose)
    sizes = [(where / name).stat().st_size / 1e3 for name in ("adapters.safetensors", "base.safetensors")]
    print(f"saved the adapters alone: {path}, {sizes[0]:.0f} kB; the model has {sizes[1]:.0f} kB")
    print(f"merged into the weights, the scores differ by at most {difference:.1e}")
    print(f"loss on held-out prose, in nats per character: {before:.3f} before, {after:.3f} after")
    return Found(before, after, trained, total, difference)


def measure(model: nn.GPT, texts: Texts) -> float:
    """The loss on text that was held out."""
    return ts.train.evaluate(base_loss, model, texts.held_out, steps=16)["loss"]


def check_frozen(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Compare every bit of the frozen weights with those that training began with."""
    changed = [name for name in before if before[name].tobytes() != np.asarray(after[name]).tobytes()]
    if changed:
        raise SystemExit(f"weights that were frozen have changed: {', '.join(changed)}")
    print(f"{len(before)} frozen tensors, every bit as it was")


def check_merged(tuned: nn.GPT, merged: nn.GPT, texts: Texts) -> float:
    """The largest difference of scores by merging; more than roundings of f32 explain is an error."""
    tokens, _ = next(iter(texts.held_out))
    expected, found = np.asarray(scores_of(tuned, tokens)), np.asarray(scores_of(merged, tokens))
    difference = float(np.max(np.abs(found - expected)))
    # A sum of `width` terms in another order at each of four projections a block, on values of size about one.
    config = tuned.config
    allowed = 2.0**-23 * 4 * config.depth * math.sqrt(4 * config.width) * max(1.0, float(np.max(np.abs(expected))))
    if difference > allowed:
        raise SystemExit(f"the merged model differs by {difference:.1e}, and roundings explain {allowed:.1e}")
    return difference


def count(text: str) -> int:
    """The value of a flag that counts something."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 1")
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=count, default=4, help="columns of an adapter's first matrix (default: 4)")
    parser.add_argument("--steps", type=count, default=200, help="steps of the fine-tune (default: 200)")
    parser.add_argument("--base-steps", type=count, default=300, help="steps of the base model (default: 300)")
    parser.add_argument("--base", default="", help="a saved base model, `base.safetensors` of an earlier run")
    parser.add_argument("--folder", default="build/lora", help="where models are written (default: build/lora)")
    given = vars(parser.parse_args())
    try:
        main(**given)
    except (ts.TesseraError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
