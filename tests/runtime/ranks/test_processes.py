"""Ranks as processes: what they compute together, that communication and computing overlap, and how they end."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import processes
from tessera.runtime.timeline import Span
from tests.runtime.ranks import programs

ROOT = Path(__file__).parents[3]


def test_four_ranks_get_what_the_reference_says() -> None:
    found: list[Any] = ts.dist.run(programs.four_ranks, ranks=4)
    for agreed, _, refused in found:
        assert len(agreed) == 3
        assert all(same for _, same in agreed), agreed
        assert refused == "mesh(dp=3) has 3 ranks, and the world has 4"
    parts = [
        np.asarray(programs.values(rank, 3, 5)) @ np.asarray(programs.values(10 + rank, 5, 2)) for rank in range(4)
    ]
    for _, result, _ in found:
        np.testing.assert_allclose(np.asarray(result), sum(parts), rtol=1e-5, atol=1e-5)
        assert result.tobytes() == found[0][1].tobytes()


def spans_of(spans: tuple[Span, ...], kind: str) -> list[Span]:
    return [one for one in spans if one.kind == kind]


def test_collectives_overlap_kernels_unless_the_policy_is_off(tmp_path: Path) -> None:
    found: list[Any] = ts.dist.run(programs.run_timed, ranks=2, args=(str(tmp_path),))
    for rank, ((apart, without), (together, overlapped)) in enumerate(found):
        assert without == overlapped, "a schedule changed a bit"
        for spans in (apart, together):
            (collective,) = spans_of(spans, "collective")
            kernels = spans_of(spans, "kernel")
            assert len(kernels) == programs.LENGTH + 2
            assert collective.name == "`all_gather` of 16384 bytes of f32 [1, 64, 64] for `all_reduce` (sum) along `dp`"
            assert {one.rank for one in spans} == {rank}
            # Inside of all computing: what is sent was computed, and what came is reduced.
            assert kernels[0].end <= collective.start
            assert collective.end <= max(kernel.start for kernel in kernels)
        (alone,) = spans_of(apart, "collective")
        assert sum(alone.overlap(kernel) for kernel in spans_of(apart, "kernel")) == 0
    first = found[0][1][0]
    (collective,) = spans_of(first, "collective")
    assert sum(collective.overlap(kernel) for kernel in spans_of(first, "kernel")) > 0
    trace = tmp_path / "trace.json"
    ts.dist.save_trace(str(trace), [one for result in found for one in result[1][0]])
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {"kernel", "collective"}


def test_a_rank_that_dies_ends_the_others_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(os.listdir("/dev/shm"))
    with pytest.raises(RankError) as died:
        ts.dist.run(programs.dying, ranks=3)
    assert died.value.message == "rank 1 of 3 failed: it ended with exit code 7"
    assert any("rank 1 left while rank 0 was at `all_gather` of 16 bytes" in note for note in died.value.notes)
    with pytest.raises(RankError, match="rank 1 of 2 failed: ValueError: no good") as failed:
        ts.dist.run(programs.failing, ranks=2)
    assert isinstance(failed.value.__cause__, ValueError)
    assert any("programs.py" in note and "`failing`" in note for note in failed.value.notes)
    assert "[rank 0] from 0\n" in (said := capfd.readouterr().out)
    assert "[rank 1] from 1\n" in said
    with pytest.raises(RankError, match=r"mesh\(dp=4\) has 4 ranks") as few:
        ts.dist.run(programs.seed_snippet, ranks=2)
    assert few.value.fix is not None
    assert few.value.fix.message == "let the sizes of its axes make 2"
    assert set(os.listdir("/dev/shm")) <= before
    assert ts.dist.run(ts.dist.rank, ranks=1) == [0]


def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    code = "import sys; from tests.runtime.ranks.programs import sleeping, ts; ts.dist.run(sleeping, 2, sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE)
    end = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in said
    ranks = [int(one.name) for one in tmp_path.iterdir()]
    assert len(ranks) == 2
    assert not any(os.path.exists(f"/proc/{rank}") for rank in ranks)


def test_what_cannot_be_sent_is_told() -> None:
    with pytest.raises(RankError, match="what ranks run is sent to other processes, which cannot find it") as found:
        ts.dist.run(lambda: None, ranks=2)
    assert found.value.fix is not None


def test_ranks_read_the_program_that_what_they_run_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    named = types.ModuleType("__main__")
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, named)
    assert processes.main_of(pickle.dumps(programs.four_ranks)) is None
    with pytest.raises(RankError, match="stands in no file"):
        processes.main_of(b"c__main__\nf\n")
    with monkeypatch.context() as reading:
        reading.setitem(sys.modules, "__mp_main__", types.ModuleType("__mp_main__"))
        with pytest.raises(RankError, match="reading it starts ranks again"):
            processes.main_of(b"c__mp_main__\nf\n")
    named.__file__ = "/somewhere/model.py"
    # A rank has what it read under the second name, and may start others with it.
    for told in (b"__main__", b"__mp_main__"):
        assert processes.main_of(b"c" + told + b"\nf\n") == ("file", "/somewhere/model.py")
    named.__spec__ = ModuleSpec("package.model", None)
    assert processes.main_of(b"c__main__\nf\n") == ("module", "package.model")


def test_an_error_names_lines_of_the_user() -> None:
    told: list[str] = []
    for fail in (lambda: np.zeros(2).reshape(7), lambda: ts.ones((3,)) + "text"):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - any error has call sites
            fail()
        told += processes.call_sites(raised.value)
    assert len(told) == 4
    assert all(f"at {__file__}:" in one for one in told)
