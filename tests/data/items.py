"""Datasets that worker processes import: what they give, and how they fail."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np


class Squares:
    """Item `i` is `i` and its square, and who made it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "square": np.full((3,), index * index, np.float32), "process": os.getpid()}


class Failing(Squares):
    """One item cannot be had."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise OSError("item 5 is on another disk")
        return super().__getitem__(index)


class Ending(Squares):
    """One item is the end of the process that makes it."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Uneven(Squares):
    """Items of two lengths."""

    def __getitem__(self, index: int) -> Any:
        return np.zeros(2 + index % 2)


def joined(items: list[Any]) -> Any:
    """A `collate` of the user's own."""
    return sum(item["index"] for item in items)
