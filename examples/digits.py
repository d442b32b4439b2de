"""An image classifier: a small convolutional network learns to read digits that a generator draws.

    python examples/digits.py [--steps 400] [--seed 0]

Every digit is drawn anew: its strokes are rotated, slanted, scaled and shifted, its pen is thick or thin, and there is
noise. Nothing is downloaded. The digits that accuracy is measured on come from another seed than those of training.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

import tessera as ts
from tessera import nn

ops = ts.ops

SIZE = 16
"""Pixels along each side of an image."""
POINTS = 40
"""Points along the strokes of a digit."""


def line(*corners: tuple[float, float]) -> Any:
    """A stroke from corner to corner; x goes right and y goes down, both from -1 to 1."""
    return np.array(corners)


def arc(x: float, y: float, width: float, height: float, start: float, end: float) -> Any:
    """A stroke along an ellipse around (x, y), from one angle to another, in degrees: 0 is right and 90 is down."""
    angles = np.radians(np.linspace(start, end, 24))
    return np.stack([x + width * np.cos(angles), y + height * np.sin(angles)], axis=1)


STROKES = {
    0: [arc(0, 0, 0.6, 1, 0, 360)],
    1: [line((-0.35, -0.6), (0.1, -1), (0.1, 1))],
    2: [arc(0, -0.45, 0.55, 0.55, 180, 395), line((0.45, -0.13), (-0.6, 1), (0.6, 1))],
    3: [arc(0, -0.5, 0.5, 0.5, -150, 90), arc(0, 0.5, 0.55, 0.5, -90, 150)],
    4: [line((0.25, 1), (0.25, -1), (-0.65, 0.35), (0.65, 0.35))],
    5: [line((0.5, -1), (-0.4, -1), (-0.45, -0.1)), arc(0, 0.4, 0.55, 0.6, -140, 140)],
    6: [arc(0.55, 0.4, 1.07, 1.4, 180, 255), arc(0, 0.45, 0.52, 0.55, 0, 360)],
    7: [line((-0.55, -1), (0.55, -1), (-0.1, 1))],
    8: [arc(0, -0.5, 0.45, 0.5, 0, 360), arc(0, 0.5, 0.55, 0.5, 0, 360)],
    9: [arc(0, -0.45, 0.52, 0.55, 0, 360), arc(-0.55, -0.4, 1.07, 1.4, 0, 75)],
}


def place_points(strokes: Sequence[Any]) -> Any:
    """`POINTS` points [points, 2] along strokes, at equal distances."""
    segments = np.concatenate([np.stack([one[:-1], one[1:]], axis=1) for one in strokes])
    lengths = np.hypot(*(segments[:, 1] - segments[:, 0]).T)
    ends = np.cumsum(lengths)
    at = np.linspace(0.0, float(ends[-1]), POINTS)
    own = np.minimum(np.searchsorted(ends, at), len(segments) - 1)
    part = ((at - ends[own] + lengths[own]) / lengths[own])[:, None]
    return segments[own, 0] * (1 - part) + segments[own, 1] * part


GLYPHS = np.stack([place_points(STROKES[digit]) for digit in range(10)])
CENTERS = (np.arange(SIZE, dtype=np.float32) + 0.5) * (2 / SIZE) - 1
PIXELS = np.stack(np.meshgrid(CENTERS, CENTERS), axis=-1).reshape(-1, 2)


class Drawings:
    """A dataset without an end: item `i` is (image, digit), both a function of the seed and `i` alone."""

    def __init__(self, seed: int, count: int = 1 << 40) -> None:
        self.seed, self.count = seed, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        images, digits = self.take([index])
        return images[0], digits[0]

    def take(self, indices: Sequence[int]) -> tuple[Any, Any]:
        """A batch: images [batch, 1, SIZE, SIZE] from 0 to about 1, and digits [batch]."""
        items = [self._draw(int(index)) for index in indices]
        digits = np.array([digit for digit, *_ in items], np.int32)
        points = np.stack([GLYPHS[digit] @ shape + shift for digit, shape, shift, _, _ in items]).astype(np.float32)
        pens = np.array([pen for *_, pen, _ in items])[:, None]
        # |p - q|^2 = |p|^2 + |q|^2 - 2 p q: from all pixels to all points of a digit by one matmul.
        squares = (PIXELS**2).sum(-1)[:, None] + (points**2).sum(-1)[:, None, :] - 2 * PIXELS @ points.swapaxes(1, 2)
        ink = np.clip(1.5 - np.sqrt(np.maximum(squares.min(-1), 0)) / pens, 0, 1)
        noise = np.stack([noise for *_, noise in items])
        return (ink + noise).astype(np.float32).reshape(-1, 1, SIZE, SIZE), digits

    def _draw(self, index: int) -> tuple[int, Any, Any, float, Any]:
        """The digit of an item, its linear map and shift, the width of the pen, and the noise of its pixels."""
        rng = np.random.default_rng((self.seed, index))
        angle, slant = rng.normal(0, [math.radians(9), 0.15])
        width, height = rng.uniform([0.5, 0.6], [0.8, 0.85])
        rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        shape = np.array([[width, 0], [slant * width, height]]) @ rotation
        digit, shift, pen = int(rng.integers(10)), rng.uniform(-0.2, 0.2, 2), float(rng.uniform(0.09, 0.16))
        return digit, shape, shift, pen, rng.normal(0, 0.12, SIZE * SIZE)


class Reader(nn.Module):
    """Two convolutions that halve the image, and two layers that see all of it."""

    first: nn.Conv2d
    second: nn.Conv2d
    hidden: nn.Linear
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, channels: int = 16, width: int = 64) -> Reader:
        """Weights for images of `SIZE` pixels a side."""
        keys = ts.random.split(key, 4)
        features = 2 * channels * (SIZE // 4) ** 2
        return cls(
            nn.Conv2d.init(keys[0], 1, channels, 3, stride=2, padding=1),
            nn.Conv2d.init(keys[1], channels, 2 * channels, 3, stride=2, padding=1),
            nn.Linear.init(keys[2], features, width),
            nn.Linear.init(keys[3], width, 10),
        )

    def __call__(self, images: Any) -> Any:
        """Scores [batch, 10] of images [batch, 1, SIZE, SIZE]."""
        seen = ops.relu(self.second(ops.relu(self.first(images))))
        return self.out(ops.relu(self.hidden(seen.reshape(seen.shape[0], -1))))


def loss_of(model: Reader, batch: Any) -> Any:
    """The mean cross-entropy of the digits."""
    images, digits = batch
    return nn.cross_entropy(model(images), digits)


def measure(model: Reader, batch: Any) -> dict[str, Any]:
    """The share of a batch that is read rightly, beside the loss."""
    images, digits = batch
    scores = model(images)
    is_right = scores.argmax(axis=-1) == digits
    return {"loss": nn.cross_entropy(scores, digits), "accuracy": is_right.astype(ts.f32).mean()}


@ts.jit
def guess(model: Reader, images: Any) -> Any:
    """The digit that a model reads in each image."""
    return model(images).argmax(axis=-1)


def show(images: Any, captions: Sequence[str]) -> str:
    """Images side by side, two rows of pixels in a row of text, with captions below."""
    has_ink = images[:, 0] > 0.5
    blocks = 2 * has_ink[:, 0::2] + has_ink[:, 1::2]  # [images, SIZE / 2, SIZE]
    rows = ["  ".join("".join(" ▄▀█"[block] for block in row) for row in blocks[:, y]) for y in range(SIZE // 2)]
    return "\n".join([*rows, "  ".join(f"{caption:^{SIZE}}" for caption in captions)])


def show_guesses(model: Reader, test: Drawings, shown: int) -> None:
    """Print the first few digits with what they are read as, and the first few that are read wrongly."""
    images, digits = test.take(range(len(test)))
    guesses = np.asarray(guess(model, images))
    wrong = np.flatnonzero(guesses != digits)
    for title, chosen in (("some of them", np.arange(len(test))), (f"of the {len(wrong)} mistakes", wrong)):
        some = chosen[:shown]
        if some.size:
            captions = [f"{digit} read as {found}" for digit, found in zip(digits[some], guesses[some], strict=True)]
            print(f"{title}:\n{show(images[some], captions)}\n")


def main(*, steps: int = 400, batch: int = 64, seed: int = 0, held_out: int = 2000, shown: int = 5) -> float:
    """Train, measure on digits that were never seen, and show some; gives the accuracy."""
    model = Reader.init(ts.random.key(seed))
    Console(highlight=False).print(nn.summary(model, depth=1))
    rate = ts.optim.warmup_cosine(3e-3, warmup=steps // 20, steps=steps)
    optimizer = ts.optim.adamw(rate, weight_decay=0.01)
    step = ts.train.make_step(loss_of, optimizer)
    batches = ts.data.Loader(Drawings(2 * seed), batch, shuffle=False)
    state, _ = ts.train.fit(step, ts.train.State.init(model, optimizer), batches, steps=steps)

    test = Drawings(2 * seed + 1, held_out)
    checked = ts.data.Loader(test, min(500, held_out), shuffle=False, drop_last=False)
    found = ts.train.evaluate(measure, state.params, checked)
    print(f"\naccuracy on {held_out} other digits: {found['accuracy']:.2%}, loss {found['loss']:.4f}\n")
    show_guesses(state.params, test, shown)
    return found["accuracy"]


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=count, default=400, help="steps of training, from 1 (default: 400)")
    parser.add_argument("--batch", type=count, default=64, help="digits of a step, from 1 (default: 64)")
    parser.add_argument("--seed", type=seed_of, default=0, help="another seed, other digits and weights (default: 0)")
    given = parser.parse_args()
    main(steps=given.steps, batch=given.batch, seed=given.seed)
