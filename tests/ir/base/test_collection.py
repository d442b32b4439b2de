"""Objects of a compilation: nothing is collected while there are more and more of them, nor right behind it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tessera.ir.base import compilation
from tessera.ir.base.compilation import without_collection


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.own = self


def leave(count: int) -> weakref.ref[Cycle]:
    made = [Cycle() for _ in range(count)]
    return weakref.ref(made[0])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few objects are many here, and nothing is frozen, as all that the tests share is."""
    monkeypatch.setattr(compilation, "LARGE", 5_000)
    monkeypatch.setattr(compilation, "MOST", 30_000)
    monkeypatch.setattr(compilation, "_postponed", 0)
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    yield
    if was_frozen:
        gc.freeze()


def test_few_objects_are_collected_as_ever() -> None:
    with without_collection(postpones=True):
        left = leave(1_000)
    assert gc.isenabled()
    gc.collect(0)
    assert left() is None


def test_many_wait_for_a_full_collection() -> None:
    with without_collection(postpones=True):
        left = leave(20_000)
    leave(2_000)
    gc.collect(1)
    assert left() is not None
    gc.collect()
    assert left() is None


def test_of_too_many_none_waits() -> None:
    with without_collection(postpones=True):
        first = leave(20_000)
    with without_collection(postpones=True):
        second = leave(20_000)
    assert first() is None
    assert second() is None


def test_what_was_there_before_is_collected_first() -> None:
    left = leave(100)
    with without_collection(postpones=True):
        assert left() is None
        leave(20_000)


def test_what_somebody_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with without_collection(postpones=True):
            leave(20_000)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_who_switched_collections_off_has_none() -> None:
    gc.disable()
    try:
        left = leave(10)
        with without_collection(postpones=True):
            leave(20_000)
        assert not gc.isenabled()
        assert left() is not None
    finally:
        gc.enable()
