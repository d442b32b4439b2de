"""The timeline of one process: kernels by name while somebody records, nothing before and after; and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tessera as ts
from tessera import ops
from tessera.runtime import timeline


@ts.jit
def twice(x: Any, y: Any) -> Any:
    return ops.matmul(ops.matmul(x, y), y)


def test_kernels_are_noted_in_order_and_by_name_while_somebody_looks(tmp_path: Path) -> None:
    x = ts.ones((8, 8))
    expected = twice(x, x).tolist()
    with timeline.record_timeline() as outer:
        twice(x, x)
        with timeline.record_timeline() as inner:
            assert twice(x, x).tolist() == expected
        twice(x, x)
    twice(x, x)
    # The one that was asked last has them.
    assert len(outer.spans) == 4
    assert len(inner.spans) == 2
    first, second = inner.spans
    assert first.start <= first.end <= second.start <= second.end
    assert {one.kind for one in inner.spans} == {"kernel"}
    assert all(one.name.startswith("matmul") for one in inner.spans)
    assert not inner.running()
    assert not inner.missed
    inner.save(str(tmp_path / "trace.json"))
    ts.dist.save_trace(str(tmp_path / "again.json"), (one for one in inner.spans))
    assert (tmp_path / "again.json").read_text() == (tmp_path / "trace.json").read_text()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X"]
    assert [(event["name"], event["pid"]) for event in shown] == [(one.name, 0) for one in inner.spans]
    assert [event["dur"] * 1000 for event in shown] == pytest.approx([one.end - one.start for one in inner.spans])  # pyright: ignore[reportUnknownMemberType]


def test_kernels_name_the_line_that_they_come_from_also_from_the_cache(tmp_path: Path) -> None:
    """And those of a gradient say that they are the backward of it."""
    x = ts.ones((8, 8))
    lines: list[set[str]] = []
    for number in range(2):
        file = tmp_path / f"model_{number}.py"
        file.write_text("\n" * number + "def loss(x, w):\n    return (x @ w).sum()\n")
        scope: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), scope)  # the same program, a line further down
        gradient = ts.grad(scope["loss"], 1)
        gradient(x, x)
        with timeline.record_timeline() as found:
            gradient(x, x)
        found.save(str(tmp_path / "trace.json"))
        assert any(one.line and one.line in (tmp_path / "trace.json").read_text() for one in found.spans)
        lines.append({one.line for one in found.spans})
    assert any("model_0.py:2:" in line and line.endswith(", backward") for line in lines[0]), lines
    assert any("model_1.py:3:" in line and line.endswith(", backward") for line in lines[1]), lines


def test_kernels_that_do_not_fit_the_log_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "KERNELS", 3)
    x = ts.ones((8, 8))
    with timeline.record_timeline() as found:
        for _ in range(4):
            twice(x, x)
    assert (len(found.spans), found.missed) == (3, 5)


def test_blocks_are_noted_where_somebody_records() -> None:
    with timeline.span("wait", "nobody looks"):
        pass
    with timeline.record_timeline() as found, timeline.span("collective", "it"):
        assert found.running() == [("collective", "it")]
    (one,) = found.spans
    assert (one.kind, one.name, one.rank) == ("collective", "it", 0)
    assert one.overlap(one) == one.end - one.start


def test_memory_that_a_kernel_will_write_to_outlives_its_timeline() -> None:
    with timeline.record_timeline() as over:
        cells = over._kernels  # pyright: ignore[reportPrivateUsage]
        cells[1], cells[2], cells[3] = 1, 1, 1  # one has begun, in another thread
    kept = timeline._AWAITED  # pyright: ignore[reportPrivateUsage]
    assert kept == [over]
    cells[4] = 2
    with timeline.record_timeline():
        pass
    assert kept == []


def test_timelines_of_threads_may_end_in_any_order() -> None:
    """What ends last must not leave native code with memory of one that ended before."""
    x = ts.ones((8, 8))
    first, second = timeline.record_timeline(), timeline.record_timeline()
    earlier, later = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    twice(x, x)
    second.__exit__(None, None, None)
    twice(x, x)
    assert (len(earlier.spans), len(later.spans)) == (0, 2)
