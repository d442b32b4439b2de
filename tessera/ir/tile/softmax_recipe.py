"""What `ttile.softmax` and `ttile.attend` mean, step by step, for those who run them and those who write them out."""

from __future__ import annotations

from typing import Any, Protocol

LEAST = float("-inf")


class Steps(Protocol):
    """How a recipe is carried out, whatever tiles are made of."""

    def fn(self, name: str, *tiles: Any) -> Any:
        """A scalar function at every element."""
        ...

    def rows(self, kind: str, tile: Any) -> Any:
        """Each row folded."""
        ...

    def spread(self, column: Any, like: Any) -> Any:
        """A number for each row, at every element of the row."""
        ...

    def full(self, value: float, like: Any) -> Any:
        """One number at every element of a tile like another."""
        ...

    def choose(self, flags: Any, yes: Any, no: Any) -> Any:
        """Elements of one tile or of another."""
        ...

    def narrowed(self, tile: Any, like: Any) -> Any:
        """The tile in another one's dtype."""
        ...

    def dot(self, left: Any, right: Any, acc: Any) -> Any:
        """A product added to sums."""
        ...


def softmax(s: Steps, x: Any, eps: float) -> Any:
    """Powers of rows less their maxima, divided by their sums."""
    powers = _powers(s, x, _shift(s, s.rows("max", x)))
    total = s.rows("sum", powers)
    if eps:
        total = s.fn("add", total, s.full(eps, total))
    whole = s.choose(s.fn("eq", total, s.full(0.0, total)), s.full(1.0, total), total)
    return s.fn("div", powers, s.spread(whole, x))


def attend(s: Steps, scores: Any, values: Any, acc: Any, top: Any, total: Any) -> tuple[Any, Any, Any]:
    """Both what was summed so far and the block are scaled to the larger maximum, and added."""
    new = s.fn("max", top, s.rows("max", scores))
    shift = _shift(s, new)
    kept = s.fn("exp", s.fn("sub", top, shift))
    powers = _powers(s, scores, shift)
    block = s.rows("sum", powers)
    sums = s.dot(s.narrowed(powers, values), values, s.fn("mul", acc, s.spread(kept, acc)))
    return sums, new, s.fn("add", s.fn("mul", total, kept), block)


def _shift(s: Steps, top: Any) -> Any:
    """What to take off: where nothing was seen any number will do, and -inf would not."""
    return s.choose(s.fn("eq", top, s.full(LEAST, top)), s.full(0.0, top), top)


def _powers(s: Steps, x: Any, shift: Any) -> Any:
    return s.fn("exp", s.fn("sub", x, s.spread(shift, x)))
