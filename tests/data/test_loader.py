"""Loaders: an order by key and epoch alone, for any number of workers, that continues in the middle of an epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.data.datasets import network_order, shuffle_indices
from tessera.diagnostics.codes import ArgumentError, DataLoaderError
from tests.data.items import Ending, Failing, Squares, Uneven, joined

ROOT = Path(__file__).parents[2]


@given(count=st.integers(2, 3000), seed=st.integers(0, (1 << 64) - 1))
def test_a_shuffled_order_has_every_number_once(count: int, seed: int) -> None:
    for order in (shuffle_indices, network_order):
        assert sorted(order(np.arange(count), count, (seed, 1)).tolist()) == list(range(count))


@pytest.mark.parametrize("order", [shuffle_indices, network_order])
def test_shuffled_orders_look_random(order: Any) -> None:
    """Ranges of numbers come to ranges of positions equally often: chi-squared within five deviations of its mean."""
    count, parts = 20_000, 20
    seen = np.zeros((parts, parts))
    for key in range(5):
        np.add.at(
            seen, (np.arange(count) * parts // count, order(np.arange(count), count, (key, 9)) * parts // count), 1
        )
    expected = 5 * count / parts**2
    freedom = (parts - 1) ** 2
    chi = ((seen - expected) ** 2 / expected).sum()
    assert abs(chi - freedom) < 5 * np.sqrt(2 * freedom)


def indices(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


def test_order_is_the_same_for_any_number_of_workers_and_from_any_point_on() -> None:
    def make(workers: int) -> ts.data.Loader:
        return ts.data.Loader(Squares(23), 3, key=ts.random.key(4), workers=workers)

    alone = make(0)
    first, second = indices(alone), indices(alone)
    assert [len(batch) for batch in first] == [3] * 7
    assert first != second
    assert len({index for batch in first for index in batch}) == 21
    loader = make(3)
    assert indices(loader) == first
    states = list[str]()
    for batch in loader:  # the second epoch, left in the middle
        states.append(json.dumps(loader.state()))
        if len(states) == 3:
            assert batch["process"][0] != os.getpid()
            break
    assert indices(loader) == second[3:]
    loader.restore(json.loads(states[1]))
    assert indices(loader) == second[2:]
    loader.close()
    other = make(1)
    other.restore(json.loads(states[0]))
    assert (other.epoch, other.batch, indices(other)) == (1, 1, second[1:])
    other.close()


def test_a_repeating_loader_goes_on_and_items_are_stacked() -> None:
    loader = ts.data.Loader(Squares(5), 2, shuffle=False, drop_last=False, repeat=True)
    batches = [batch for _, batch in zip(range(5), loader, strict=False)]
    assert indices(batches) == [[0, 1], [2, 3], [4], [0, 1], [2, 3]]
    assert batches[1]["square"].dtype == np.float32
    assert batches[1]["square"].tolist() == [[4.0] * 3, [9.0] * 3]
    assert loader.state()["epoch"] == 1
    assert list(ts.data.Loader(Squares(4), 2, shuffle=False, collate=joined)) == [1, 5]
    dtypes = [ts.data.stack([kind(1.5)] * 2).dtype for kind in (float, np.float64, np.float16)]
    assert dtypes == [np.float32, np.float64, np.float16]


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_say_which_batch_and_items(workers: int) -> None:
    with pytest.raises(DataLoaderError, match=r"batch 2 of epoch 0 cannot be made: OSError: item 5 is on") as caught:
        list(ts.data.Loader(Failing(9), 2, shuffle=False, workers=workers))
    assert "its items are 4, 5" in caught.value.notes
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(DataLoaderError, match=r"item 0 is \[2\] float64, item 1 is \[3\] float64"):
        list(ts.data.Loader(Uneven(4), 2, shuffle=False, workers=workers))


def test_a_worker_that_is_killed_is_reported_and_the_loader_can_be_used_again() -> None:
    loader = ts.data.Loader(Ending(8), 2, shuffle=False, workers=2)
    with pytest.raises(DataLoaderError, match="was ended by SIGKILL while it made batch 2 of epoch 0"):
        list(loader)
    loader.restore({**loader.state(), "batch": 3})
    assert indices(loader) == [[6, 7]]
    loader.close()


def test_a_state_of_another_loader_is_refused() -> None:
    state = ts.data.Loader(Squares(8), 2).state()
    for other, expected in (
        (ts.data.Loader(Squares(8), 4), "`batch_size` 2, and this one has 4"),
        (ts.data.Loader(Squares(9), 2), "`items` 8, and this one has 9"),
        (ts.data.Loader(Squares(8), 2, key=1), "`key`"),
    ):
        with pytest.raises(DataLoaderError, match=expected):
            other.restore(state)
    loader = ts.data.Loader(Squares(8), 2)
    with pytest.raises(DataLoaderError, match="there is no batch 4 of epoch 0"):
        loader.restore({**state, "batch": 4})
    iterator = iter(loader)
    next(iterator)
    list(loader)
    with pytest.raises(DataLoaderError, match="after another one has begun"):
        next(iterator)
    with pytest.raises(ArgumentError, match="has no batch of 9"):
        ts.data.Loader(Squares(8), 9)


PROGRAM = """
import tessera as ts
from tests.data.items import Squares

class Own(Squares):
    pass

print("started")
loader = ts.data.Loader(Squares(40), 4, workers=2)
print(sum(int(batch["index"].sum()) for batch in loader))
try:
    list(ts.data.Loader(Own(4), 2, workers=1))
except ts.TesseraError as error:
    print(error.code, error.message)
print([worker.process.pid for worker in loader._workers])
"""


def test_workers_do_not_run_the_program_again_and_end_with_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["started", str(sum(range(40)))]
    assert lines[2].startswith("T0716 the dataset, or `collate`, is defined in the program itself")
    for process in json.loads(lines[3]):
        assert not Path(f"/proc/{process}").exists()
    assert done.stderr == ""


def test_windows_are_what_slices_say() -> None:
    tokens = np.arange(100, 200)
    windows = ts.data.Windows(tokens, 10, stride=7)
    assert len(windows) == len(range(0, 100 - 10, 7))
    inputs, targets = windows.take(range(len(windows)))
    assert inputs.dtype == np.int32
    for number, start in enumerate(range(0, 90, 7)):
        assert inputs[number].tolist() == tokens[start : start + 10].tolist()
        assert targets[number].tolist() == tokens[start + 1 : start + 11].tolist()
    random = ts.data.RandomWindows(tokens, 99, key=3)
    assert {int(random[number][0][0]) for number in range(20)} == {100}
    many = ts.data.RandomWindows(tokens, 97, key=ts.random.key(3))
    assert {int(many[number][0][0]) for number in range(60)} == {100, 101, 102}
    with pytest.raises(ArgumentError, match="1 to 99 tokens"):
        ts.data.Windows(tokens, 100)
    beyond = ts.data.Windows(np.array([1, 2, 1 << 31, 3], np.uint32), 1)
    assert beyond[0][1].tolist() == [2]
    with pytest.raises(ArgumentError, match="token 2 is 2147483648, and windows are i32"):
        beyond.take([0, 1])
