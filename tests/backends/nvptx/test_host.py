"""Streams that a host program uses: one unless launches leave most of the GPU idle, or someone asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
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


def lowered(
    function: Callable[..., Any],
    width: int,
    count: int,
    streams: int = 0,
    dynamic: bool = False,
    dtype: Any = np.float32,
) -> Lowering:
    given = [np.zeros((64, width), dtype), [np.zeros((width, width), dtype)] * count]
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


def lines_of(text: str, function: str) -> int:
    """Lines of one function of a module."""
    return text.partition(f"@{function}(")[2].partition("\n}")[0].count("\n")


def test_a_call_is_as_long_for_many_tensors_as_for_few() -> None:
    few, many = (lowered(apart, 64, count, streams=1).host for count in (2, 12))
    assert lines_of(few, "tessera_call") == lines_of(many, "tessera_call") > 0


def test_launches_and_descriptors_are_calls_of_functions_written_once() -> None:
    """A launch of a matmul stores what its kernel is given, and has one call for each descriptor and one to launch."""
    few, many = (lowered(chain, 256, count, dtype=ml_dtypes.bfloat16).host for count in (2, 12))
    assert few.count("define internal i32 @get_map") == many.count("define internal i32 @get_map") > 0
    assert (lines_of(many, "tessera_entry") - lines_of(few, "tessera_entry")) / 10 < 100
