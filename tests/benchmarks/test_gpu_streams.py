"""The measurement of streams without a GPU: what its programs mean, and what is kept of times."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from benchmarks import gpu_streams
from benchmarks.gpu_record import RESULTS
from benchmarks.gpu_streams import KINDS, STREAMS, block, experts, line_of, row_of, timed
from tessera.backends.nvptx.host import SEVERAL


def test_programs_mean_what_they_say() -> None:
    rng = np.random.default_rng(0)
    x, *weights = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(7))
    made = [np.asarray(one) for one in experts(x, weights[:2])]
    np.testing.assert_allclose(made, [np.maximum(x @ one, 0) for one in weights[:2]], rtol=1e-5)
    q, k, v = (x @ one for one in weights[:3])
    exps = np.exp(q @ k.T)
    h = x + exps / exps.sum(-1, keepdims=True) @ v @ weights[3]
    expected = h + np.maximum(h @ weights[4], 0) @ weights[5]
    np.testing.assert_allclose(np.asarray(block(x, weights)), expected, rtol=1e-3, atol=1e-4)


def test_a_row_says_what_the_best_number_of_streams_gains() -> None:
    times = {f"{kind} {n}": 12.0 / n + (0 if kind == "replay" else 20.0 * n) for kind in KINDS for n in STREAMS}
    row = row_of("small", times, same_bits=True)
    assert row["gain"] == {"replay": 8.0, "call": 1.0, "kept": 1.0}
    assert line_of(row).startswith("small: replay 1: 12.0, 2: 6.0, 4: 3.0, 8: 1.5; call 1: 32.0")


def test_small_launches_gained_and_no_bit_changed() -> None:
    kept = json.loads((RESULTS / "gpu-streams.json").read_text(encoding="utf-8"))
    rows = {row["case"]: row for row in kept["rows"]}
    assert set(rows) == set(gpu_streams.CASES)
    assert all(row["same_bits"] for row in rows.values())
    times = rows["small"]["microseconds"]
    assert times["replay"][str(SEVERAL)] < 0.7 * times["replay"]["1"]
    # Launched one by one they are in one CUDA stream, and take what they took.
    assert all(times[kind][str(SEVERAL)] < 1.05 * times[kind]["1"] for kind in ("call", "kept"))
    assert kept["hardware"]["gpu"]


def test_bursts_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def record(self) -> None:
            pass

        def milliseconds_since(self, _: Event) -> float:
            return 0.04

    for name, value in (("Event", Event), ("synchronize", lambda: None)):
        monkeypatch.setattr(gpu_streams.ts.cuda, name, value)
    done: list[str] = []
    found = timed({name: partial(done.append, name) for name in ("one", "two")}, 2)
    burst = gpu_streams.RUNS + 1
    assert done == (["one"] * burst + ["two"] * burst) * 2
    assert found == {"one": 2.0, "two": 2.0}
