"""One rank makes what all need while the others wait; where no file can be locked, each makes its own."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tessera.runtime.ranks import world


@pytest.fixture(autouse=True)
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "size", lambda: 2)


def test_one_at_a_time_works_on_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "cache_location", lambda: (str(tmp_path), ""))
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with world.exclusive("0123"):
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    for name in ("0124", "01ff"):
        with world.exclusive(name):
            pass
    assert os.listdir(tmp_path / "locks") == ["01"]


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(world, "cache_location", lambda: (str(tmp_path / "file"), ""))
    with world.exclusive("0123"), world.exclusive("0123"):
        pass
    with pytest.raises(ValueError, match="its own"), world.exclusive("0123"):
        raise ValueError("its own")
