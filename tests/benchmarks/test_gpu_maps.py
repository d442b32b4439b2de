"""Stages and stalls from two looks at the metrics, without a device."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_maps import difference, row_of

FILL, READ, TURN = (
    "the producer in `ttarget.acquire` of ring 0 (4 stages) at model.py:3:5",
    "a consumer in `ttarget.await` of ring 0 (4 stages)",
    "a consumer in `ttarget.pingpong`",
)


def look(created: int, *waits: tuple[str, int, int, int]) -> dict[str, Any]:
    listed = [dict(zip(("kernel", "wait", "times", "stalls", "cycles"), ("k", *one), strict=True)) for one in waits]
    return {"maps": {"created": created, "reused": 2 * created}, "waits": listed}


def test_what_happened_in_between_is_what_is_told() -> None:
    before = look(3, (FILL, 10, 1, 50), (TURN, 5, 0, 0))
    after = look(4, (FILL, 110, 3, 90), (TURN, 5, 0, 0), (READ, 400, 40, 700))
    seen = difference(before, after)
    assert seen["maps"] == {"created": 1, "reused": 2}
    assert [(one["wait"], one["times"], one["stalls"], one["cycles"]) for one in seen["waits"]] == [
        (FILL, 100, 2, 40),
        (READ, 400, 40, 700),
    ]
    row = row_of("nt", seen, 0.5)
    assert row["stages_per_second"] == 200.0
    assert row["producers"] == {"times": 100, "stalls": 2, "cycles": 40}
    assert row["consumers"] == {"times": 400, "stalls": 40, "cycles": 700}
