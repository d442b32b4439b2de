"""Ranks of a mesh adopt one plan, and say so where they are not about the same program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import tessera as ts
from tessera.diagnostics.codes import OverrideError, TuningRanksError
from tessera.runtime.ranks import world
from tessera.tuner.acceptance import judge
from tessera.tuner.agree import Broadcast, agree, broadcast_among
from tessera.tuner.records import Plan, Signature
from tests.runtime.ranks.threads import on_ranks
from tests.tuner.samples import BLOCK, MATMUL, SAFE_BITS, signature, timed


def tuned_by_jitter() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a rank adopts, and what it would have chosen by its own timer."""
    communicator = world.current()
    assert communicator is not None
    draw = random.Random(communicator.rank)
    plans = [Plan.of({"map.tile": size}) for size in (32, 64, 128, 256)]

    def measured() -> Plan:
        trials = [timed([1.2 + draw.uniform(-0.1, 0.1)] * 10, plan) for plan in plans]
        return max((judge(trial, SAFE_BITS) for trial in trials), key=lambda decision: decision.gain).plan

    own = [measured() for _ in range(4)]
    names = [signature(op_kind=f"group{number}", mesh_sig="dp4") for number in range(4)]
    adopted = agree(names, lambda: own, communicator.rank, broadcast_among(communicator))
    return [(one.overrides, other.overrides) for one, other in zip(adopted, own, strict=True)]


def test_4_processes_with_jittered_timers_adopt_one_plan() -> None:
    ranks = ts.dist.run(tuned_by_jitter, ranks=4)
    adopted = [[plan for plan, _ in rank] for rank in ranks]
    assert adopted == [[own for _, own in ranks[0]]] * 4
    assert len({repr([own for _, own in rank]) for rank in ranks}) > 1, "alone they would not have agreed"


def on_two(function: Callable[[int, Broadcast], list[Plan]]) -> list[Any]:
    def one(rank: int) -> Any:
        communicator = world.current()
        assert communicator is not None
        return function(rank, broadcast_among(communicator))

    return on_ranks(one, dp=2)


def test_rank_0_alone_decides() -> None:
    decided: list[int] = []

    def run(rank: int, broadcast: Broadcast) -> list[Plan]:
        def decide() -> list[Plan]:
            decided.append(rank)
            return [BLOCK, Plan()]

        return agree([MATMUL, signature(dtype="bf16")], decide, rank, broadcast)

    assert on_two(run) == [[BLOCK, Plan()]] * 2
    assert decided == [0]


def test_no_signature_is_no_plan() -> None:
    assert on_two(lambda rank, broadcast: agree([], list[Plan], rank, broadcast)) == [[], []]


def disagreement(mine: list[Signature], theirs: list[Signature]) -> TuningRanksError:
    """What rank 1 with signatures of its own raises."""
    found = on_two(
        lambda rank, broadcast: agree(mine if rank else theirs, lambda: [BLOCK] * len(theirs), rank, broadcast)
    )
    assert found[0] == [BLOCK] * len(theirs)
    assert isinstance(found[1], TuningRanksError)
    return found[1]


def test_ranks_with_other_signatures_are_told_both() -> None:
    other = signature(shape_sig="64x64x128", arch="sm_90")
    error = disagreement([MATMUL, MATMUL], [MATMUL, other])
    assert error.message == (
        "rank 1 tunes `matmul 64x64x64 f32 avx512 stable r1`, and rank 0 `matmul 64x64x128 f32 sm_90 stable r1`: "
        "they differ in shape_sig, arch"
    )
    assert error.notes == (
        "shape_sig is `64x64x64` on rank 1, `64x64x128` on rank 0",
        "arch is `avx512` on rank 1, `sm_90` on rank 0",
    )


def test_ranks_with_more_signatures_are_told_which() -> None:
    error = disagreement([MATMUL, signature(dtype="bf16")], [MATMUL])
    assert error.message == (
        "rank 1 tunes 2 signatures, and rank 0 1: `matmul 64x64x64 bf16 avx512 stable r1` is of rank 1 alone"
    )
    assert "is of rank 0 alone" in disagreement([], [MATMUL]).message


def test_a_failure_of_rank_0_reaches_all() -> None:
    def fail() -> list[Plan]:
        raise OverrideError("`map.tile` cannot be 3", span=None)

    first, second = on_two(lambda rank, broadcast: agree([MATMUL], fail, rank, broadcast))
    assert isinstance(first, OverrideError)
    assert isinstance(second, TuningRanksError)
    assert second.message == "rank 0 could not choose a plan: OverrideError: `map.tile` cannot be 3"
    first, second = on_two(lambda rank, broadcast: agree([MATMUL], list[Plan], rank, broadcast))
    assert isinstance(first, ValueError)
    assert "`decide` gave 0 plans for 1 signatures" in second.message


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"format": "tessera-tuning-plans", "version": 1, "signatures": [], "plans": [{}], "failure": ""}'],
)
def test_what_is_no_message_of_rank_0_is_refused(data: bytes) -> None:
    with pytest.raises(TuningRanksError, match="rank 3 got something else than plans from rank 0"):
        agree([MATMUL], list[Plan], 3, lambda _: data)
