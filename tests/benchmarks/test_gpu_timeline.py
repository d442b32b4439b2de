"""What CUPTI lists, from records made by hand: ranges with their ends, kernels with the calls that launched them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_ranges, gpu_timeline
from benchmarks.gpu_cases import Case
from benchmarks.gpu_timeline import CallRecord, KernelRecord, MarkerRecord, Seen, Span, Timeline


def marker(flags: int, at: int, number: int, name: bytes | None = None) -> MarkerRecord:
    return MarkerRecord(kind=12, flags=flags, timestamp=at, id=number, name=name)


def launch(name: bytes, start: int, correlation: int) -> list[Any]:
    """A call that takes two, and its kernel, which begins later."""
    call = CallRecord(kind=4, function=307, start=start, end=start + 2, correlation=correlation)
    return [call, KernelRecord(kind=10, start=start + 50, end=start + 60, correlation=correlation, name=name)]


def seen(*records: Any) -> Seen:
    found = Seen()
    for record in records:
        found.take(ctypes.addressof(record))
    return found


def test_records_have_their_parts_where_the_header_says() -> None:
    assert (MarkerRecord.timestamp.offset, MarkerRecord.id.offset, MarkerRecord.name.offset) == (8, 16, 40)
    assert (CallRecord.correlation.offset, ctypes.sizeof(CallRecord)) == (32, 40)
    assert (KernelRecord.start.offset, KernelRecord.stream.offset) == (16, 48)
    assert (KernelRecord.correlation.offset, KernelRecord.name.offset) == (92, 104)


def test_a_launch_in_the_range_of_its_name_is_seen() -> None:
    begin, end = marker(2, 100, 1, b"softmax"), marker(4, 110, 1)
    found = seen(begin, *launch(b"softmax", 103, 7), end)
    assert found.ranges == [Span("softmax", 100, 110)]
    assert found.kernels == [Span("softmax", 153, 163, 0, 7)]
    assert found.in_ranges() == {"softmax": True}


@pytest.mark.parametrize(("name", "start"), [(b"other", 103), (b"softmax", 109), (b"softmax", 99)])
def test_a_launch_in_another_range_or_outside_is_not(name: bytes, start: int) -> None:
    begin, end = marker(2, 100, 1, name), marker(4, 110, 1)
    assert seen(begin, end, *launch(b"softmax", start, 7)).in_ranges() == {"softmax": False}


def test_every_launch_counts() -> None:
    begin, end = marker(2, 100, 1, b"softmax"), marker(4, 110, 1)
    found = seen(begin, end, *launch(b"softmax", 103, 7), *launch(b"softmax", 203, 8))
    assert found.in_ranges() == {"softmax": False}
    assert found.kernels[0].overlap(Span("next", 160, 400)) == 3
    assert found.kernels[0].overlap(found.kernels[1]) == 0


class Cupti:
    """A library that lists what it is told when it is flushed."""

    def __init__(self, records: list[Any]) -> None:
        self.records, self.asked, self.listed = records, list[str](), 0

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:  # noqa: N802 - its own name
        self.requested, self.completed = requested, completed
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:  # noqa: N802
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        assert buffer.value
        assert (buffer.value % 8, most.value) == (0, 0)
        self.completed(None, 0, buffer.value, size.value, 99)
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:  # noqa: N802
        if self.listed == len(self.records):
            return 12
        record._obj.value = ctypes.addressof(self.records[self.listed])
        self.listed += 1
        return 0

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)

        def answer(kind: int) -> int:
            return 0 if kind in (4, 10, 12) else 1

        return answer


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Cupti:
    records = [marker(2, 100, 1, b"softmax"), *launch(b"softmax", 103, 7), marker(4, 110, 1)]
    made = Cupti(records)

    def opened(path: str) -> Cupti:
        return made

    monkeypatch.setattr(gpu_timeline.ctypes, "CDLL", opened)
    monkeypatch.setattr(gpu_timeline, "library", lambda: Path("/somewhere/libcupti.so"))
    monkeypatch.setattr(gpu_timeline, "synchronize", lambda: None)
    return made


def test_a_cut_is_what_ran_since_the_last(cupti: Cupti) -> None:
    with Timeline() as timeline:
        assert gpu_timeline.os.environ["NVTX_INJECTION64_PATH"] == "/somewhere/libcupti.so"
        assert timeline.cut().in_ranges() == {"softmax": True}
        assert timeline.cut() == Seen()
    assert "NVTX_INJECTION64_PATH" not in gpu_timeline.os.environ
    assert cupti.asked == ["cuptiActivityEnable"] * 3 + ["cuptiActivityDisable"] * 3


@pytest.mark.usefixtures("cupti")
def test_cases_are_run_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Case] = []

    def run(case: Case, seed: int = 0) -> float:
        ran.append(case)
        return 0.0

    monkeypatch.setattr(Case, "run", run)
    found = gpu_ranges.by_cupti(["stable_softmax", "sort"])
    assert found == {"stable_softmax": {"softmax": True}, "sort": {}}
    assert ran == [gpu_ranges.CASES[name] for name in found]
    assert gpu_ranges.record_of("cupti", found)["missing"] == ["sort"]


def test_a_library_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_timeline, "library", lambda: None)
    with pytest.raises(OSError, match="no libcupti"):
        Timeline()
