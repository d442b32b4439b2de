"""`Contender`: one implementation that runs a workload, and how it is found out whether the library for it is here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from benchmarks.workloads import Arrays, Workload

Run: TypeAlias = "Callable[[], Any]"


class NotOfferedError(Exception):
    """A contender does not run a workload; the text says why, and the table shows it."""


@dataclass(frozen=True)
class Contender:
    """`prepare` makes a workload's inputs the library's own and gives a function that runs it once, to the end.

    What that function returns is new at every call: the time of allocating it is part of the time.
    """

    name: str
    prepare: Callable[[Workload, Arrays], Run]
    to_numpy: Callable[[Any], np.ndarray[Any, Any]] = np.asarray
    is_ours: bool = False


@dataclass(frozen=True)
class Library:
    """A module that may not be installed, and the contenders that need it."""

    name: str
    load: Callable[[Any, int], Iterable[Contender]]

    def contenders(self, threads: int) -> tuple[tuple[Contender, ...], str]:
        """The contenders set up for a number of threads, or none and the reason."""
        try:
            module = importlib.import_module(self.name)
        except ImportError as error:
            return (), f"{self.name} is not installed ({error})"
        return tuple(self.load(module, threads)), ""
