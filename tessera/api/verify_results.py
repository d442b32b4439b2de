"""Promises about numbers checked on what is given: for kernels and other callables that no trace looks into."""

from __future__ import annotations

import functools
from typing import Any

from tessera.diagnostics.codes import NumericsError
from tessera.frontend.pytree import flatten
from tessera.ir.base import dispatch


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
