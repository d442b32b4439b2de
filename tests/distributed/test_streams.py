"""Random streams of ranks: one sample whatever is sharded, and keys of functions, steps and positions on the mesh."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, ops
from tessera.diagnostics.codes import ArgumentError
from tests.runtime.ranks.threads import on_ranks

SHAPE = (8, 12)


def every(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def draw(key: Any, x: Any) -> Any:
    """Draws of several kinds at one step of a function, and a mask of what is given."""
    own = ts.random.stream(key, draw, step=3)
    uniform, normal = ts.random.uniform(own, SHAPE), ts.random.normal(ts.random.fold(own, 1), SHAPE)
    return uniform, normal, ts.random.dropout(x, ts.random.fold(own, 2), 0.5)


SHARDINGS: list[tuple[Any, ...]] = [("dp", "tp"), (None, ("dp", "tp"))]


def test_d4_a_sample_is_the_same_for_any_sharding() -> None:
    x = np.arange(96, dtype=np.float32).reshape(SHAPE) + 1.0
    key = ts.random.key(11)
    whole = [np.asarray(one) for one in ts.jit(draw)(key, x)]

    def run(_: int) -> list[Any]:
        found: list[Any] = []
        for spec in SHARDINGS:
            function = dist.partition(draw, (None, spec), (spec, spec, spec))
            parts = function(key, dist.shard_of(x, spec))
            wanted = [np.asarray(dist.shard_of(one, spec)) for one in whole]
            found.append(([np.asarray(one) for one in parts], wanted))
        return found

    for found in every(on_ranks(run, dp=2, tp=2)):
        for parts, wanted in found:
            for part, want in zip(parts, wanted, strict=True):
                np.testing.assert_array_equal(part, want)


def numbers(key: Any) -> tuple[int, ...]:
    return tuple(np.asarray(ts.random.bits(key, (8,))).tolist())


def test_d4_each_part_of_the_key_of_a_stream_changes_it() -> None:
    def run(_: int) -> Any:
        with dist.mesh(dp=2, tp=2):
            seeds = [numbers(ts.random.stream(ts.random.key(seed), "f")) for seed in (1, 2)]
            base = ts.random.key(1)
            names = [numbers(ts.random.stream(base, name)) for name in ("f", "g", draw, numbers)]
            steps = [numbers(ts.random.stream(base, "f", step)) for step in range(3)]
            axes = [numbers(ts.random.stream(base, "f", per=one)) for one in ((), "dp", "tp", ("dp", "tp"))]
            # The same in a traced program, whose step is a value.
            traced = ts.jit(lambda key, step: ts.random.stream(key, "f", step, per=("dp", "tp")))
            inside = numbers(traced(base, np.int64(0)))
        return seeds, names, steps, axes, inside

    found = every(on_ranks(run, dp=2, tp=2))
    for seeds, names, steps, axes, inside in found:
        shared = (*seeds, *names[1:], *steps[1:])
        assert len(set(shared)) == len(shared), "a part of the key changes nothing"
        assert seeds[0] == names[0] == steps[0] == axes[0]
        assert found[0][:3] == (seeds, names, steps), "ranks share a stream that is not for each of them"
        assert inside == axes[3]
    streams = [axes for _, _, _, axes, _ in found]
    # Ranks are (dp, tp): 0 is (0, 0), 1 is (0, 1), 2 is (1, 0), 3 is (1, 1).
    assert streams[0][1] == streams[1][1] != streams[2][1] == streams[3][1]
    assert streams[0][2] == streams[2][2] != streams[1][2] == streams[3][2]
    assert len({one[3] for one in streams}) == 4
    assert len({number for one in streams for stream in one for number in stream}) == 8 * (1 + 2 + 2 + 4)


def test_what_is_no_stream_is_named() -> None:
    key = ts.random.key(0)
    with (
        pytest.raises(ArgumentError, match=r"for each rank along `ep`, and what is in force is mesh\(dp=1\)"),
        dist.mesh(dp=1),
    ):
        ts.random.stream(key, "f", per="ep")
    with pytest.raises(ArgumentError, match="takes a function, or a name for one, got 3"):
        ts.random.stream(key, 3)
    with pytest.raises(ArgumentError, match="`stream` takes a key"):
        ts.random.stream("f", key)
    with pytest.raises(ArgumentError, match=r"`stream` takes `step` as an int, got 1\.5"):
        ts.random.stream(key, "f", 1.5)
    with pytest.raises(ArgumentError, match="`stream` takes `per` as a tuple or list, got 1"):
        ts.random.stream(key, "f", per=1)
    with pytest.raises(ArgumentError, match="a lambda has none"):
        ts.random.stream(key, lambda x: x)


def test_d4_a_function_of_the_main_module_has_one_stream_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that a program starts read its file under another name than its own."""

    def noise() -> None: ...

    found: list[tuple[int, ...]] = []
    for module in ("__main__", "__mp_main__", "other"):
        monkeypatch.setattr(noise, "__module__", module)
        found.append(numbers(ts.random.stream(ts.random.key(1), noise)))
    assert found[0] == found[1] != found[2]


def test_d4_noise_of_ranks_is_their_own_in_a_training_step() -> None:
    """Per-rank streams on request: noise that each rank adds to its own gradient."""
    weights = np.ones((4,), np.float32)

    @ts.jit
    def step(w: Any, key: Any, number: Any) -> Any:
        noise = ts.random.normal(ts.random.stream(key, "noise", number, per="dp"), (4,))
        return w + noise, dist.all_reduce(noise, "dp"), ops.abs(noise).sum()

    def run(_: int) -> Any:
        key = ts.random.key(5)
        return [[np.asarray(one) for one in step(weights, key, np.int64(number))] for number in range(2)]

    found = every(on_ranks(run, dp=2))
    for number in range(2):
        (first, total, _), (second, other, _) = found[0][number], found[1][number]
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(total, other)
        np.testing.assert_allclose(first + second - 2 * weights, total, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[0][0][0], found[0][1][0])
