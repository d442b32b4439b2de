"""Streams that a host program uses: one unless launches leave most of the GPU idle, or someone asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options


def apart(x: Any, weights: Any) -> Any:
    return tuple(ts.ops.relu(x @ one) for one in weights)


def running(_: Any, arrays: Any) -> Any:
    return tuple(ts.ops.cumsum(one, axis=0) for one in arrays)


def chain(x: Any, weights: Any) -> Any:
    for one in weights:
        x = ts.ops.softmax(x @ one)
    return x


def lowered(function: Callable[..., Any], width: int, count: int, streams: int = 0, dynamic: bool = False) -> Lowering:
    given = [np.zeros((64, width), np.float32), [np.zeros((width, width), np.float32)] * count]
    overrides = {"launch.streams": streams} if streams else {}
    options = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    return lower(ts.jit(function, dynamic=dynamic).trace(*given).tape, options)


def streams_of(lowering: Lowering) -> int:
    return lowering.code.metadata(lowering.program)["streams"]


@pytest.mark.parametrize(
    ("function", "width", "count", "wanted"),
    [(apart, 64, 6, 4), (apart, 64, 3, 1), (apart, 8192, 4, 1), (chain, 64, 6, 1)],
    ids=["small", "few", "large", "chain"],
)
def test_small_independent_launches_have_streams_of_their_own(
    function: Callable[..., Any], width: int, count: int, wanted: int
) -> None:
    assert streams_of(lowered(function, width, count)) == wanted


def test_launches_of_symbolic_sizes_stay_on_one_stream() -> None:
    """Nobody knows how much of a GPU they take; of known sizes these launches have several, and who asks has two."""
    assert streams_of(lowered(running, 64, 6)) == 4
    assert streams_of(lowered(running, 64, 6, dynamic=True)) == 1
    assert streams_of(lowered(running, 64, 6, streams=2, dynamic=True)) == 2


def test_one_stream_has_no_events_and_several_record_and_wait() -> None:
    one, several = lowered(apart, 64, 6, streams=1), lowered(apart, 64, 6, streams=8)
    assert streams_of(several) == 6
    facts = several.code.metadata(several.program)
    # The start, and each other stream at its end.
    assert facts["events"] == 6
    calls = several.host.count("call i32 %") - one.host.count("call i32 %")
    assert calls == 1 + 5 + 5 + 5
