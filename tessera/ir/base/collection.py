"""Compiling without Python's garbage collector, which would walk every object made so far, over and over."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None]:
    """Within it nothing is collected: loading the compiler and building IR make many objects, and most of them live."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
