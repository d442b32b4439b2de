"""Promises about numbers, checked on what a function gives: `@verify.numerics(stable=True, bounded=[-100, 100])`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import NumericsError
from tessera.frontend.tree import flatten
from tessera.ir.base import dispatch


def numerics(*, stable: bool = False, bounded: Sequence[float] | None = None) -> Callable[[Any], Any]:
    """Check every result of a function: `stable` that no element is NaN or infinite, `bounded` that all lie between.

    Inside `jit` nothing is checked, since there are no numbers yet: check the jitted function instead.

    Raises: NumericsError (T0708) with the number, its place and the bound, when a result breaks its promise.
    """
    low, high = (None, None) if bounded is None else (float(bounded[0]), float(bounded[1]))
    if low is not None and high is not None and not low <= high:
        raise NumericsError(f"`bounded` is a low and a high end, got {low} and {high}")

    def decorate(function: Any) -> Verified:
        return Verified(function, stable, low, high)

    return decorate


class Verified:
    """A function whose results are looked at; everything else it has is the function's own."""

    def __init__(self, function: Any, stable: bool, low: float | None, high: float | None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.stable, self.low, self.high = function, stable, low, high

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if dispatch.active() is None:
            leaves, _ = flatten(result)
            for number, leaf in enumerate(leaves):
                self._check(leaf, f"result {number}" if len(leaves) > 1 else "the result")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def _check(self, leaf: Any, what: str) -> None:
        import numpy as np  # noqa: PLC0415 - loaded by who verifies

        if not hasattr(leaf, "shape"):
            return
        values = np.asarray(leaf).astype(np.float64)
        name = getattr(self.function, "__name__", "the function")
        if self.stable:
            self._first(
                values, ~np.isfinite(values), f"{what} of `{name}` is not finite", "`stable` asks for finite numbers"
            )
        if self.low is not None and self.high is not None:
            outside = ~((values >= self.low) & (values <= self.high))
            rule = f"`bounded` asks for {self.low:g}..{self.high:g}"
            self._first(values, outside, f"{what} of `{name}` is out of bounds", rule)

    @staticmethod
    def _first(values: Any, wrong: Any, message: str, rule: str) -> None:
        if not wrong.any():
            return
        place = [int(part) for part in next(zip(*wrong.nonzero(), strict=True), ())]
        count = int(wrong.sum())
        raise NumericsError(
            f"{message}: element {place} is {values[tuple(place)]:g}",
            notes=(f"rule: {rule}", f"{count} of {values.size} elements break it"),
        )
