"""Devices keep the contract: the host, and one that runs everything as late as it may."""

from __future__ import annotations

import ctypes

import pytest

from tessera.runtime.devices import Device, find_device
from tests.runtime.devices.conformance import COUNT, ONE, DeviceContract
from tests.runtime.devices.fake import FakeDevice
from tests.runtime.programs import compile_text

FAKE = b"""
import ctypes
def add(memory, target, source, count, addend):
    to, of = ((ctypes.c_int64 * count).from_buffer(memory[one]) for one in (target, source))
    for at in range(count):
        to[at] = of[at] + addend
"""
NATIVE = """
define void @add(ptr %target, ptr %source, i64 %count, i64 %addend) {
entry:
  br label %loop
loop:
  %at = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr i64, ptr %source, i64 %at
  %value = load i64, ptr %from
  %sum = add i64 %value, %addend
  %to = getelementptr i64, ptr %target, i64 %at
  store i64 %sum, ptr %to
  %next = add i64 %at, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


class TestHost(DeviceContract):
    """The CPU of this process."""

    @pytest.fixture
    def device(self) -> Device:
        return find_device("host")

    @pytest.fixture
    def code(self) -> tuple[bytes, str]:
        return compile_text(NATIVE), "add"


class TestFake(DeviceContract):
    """A device that is late, has several of its kind, and no addresses."""

    @pytest.fixture
    def device(self) -> Device:
        return FakeDevice()

    @pytest.fixture
    def code(self) -> tuple[bytes, str]:
        return FAKE, "add"

    def test_work_is_late(self, code: tuple[bytes, str]) -> None:
        device = FakeDevice()
        kernel = device.load_kernel(*code)
        address = self.write(device, [1] * COUNT)
        device.launch(kernel, ONE, ONE, (address, address, COUNT, 1))
        assert device.pending == 2
        device.synchronize()
        assert device.pending == 0
        assert self.read(device, address) == [2] * COUNT

    def test_without_a_wait_a_stream_reads_what_is_there(self, code: tuple[bytes, str]) -> None:
        """So that a program which forgets one is found by its numbers."""
        device = FakeDevice()
        kernel, other = device.load_kernel(*code), device.create_stream()
        address, result = self.write(device, [1] * COUNT), device.allocate(8 * COUNT)
        device.synchronize()
        device.launch(kernel, ONE, ONE, (address, address, COUNT, 1))
        device.launch(kernel, ONE, ONE, (result, address, COUNT, 0), other)
        assert self.read(device, result, stream=other) == [1] * COUNT

    def test_devices_of_a_kind_are_apart(self) -> None:
        first = FakeDevice()
        second = first.at(1)
        address = self.write(first, [1])
        self.write(second, [2])
        assert (first.index, second.index) == (0, 1)
        assert second.at(1) is second
        assert self.read(first, address, 1) == [1]
        assert first.pending == 0
        assert second.pending == 1

    def test_memory_of_unfinished_work_outlives_the_call(self) -> None:
        device = FakeDevice()
        host = ctypes.create_string_buffer(b"12345678", 8)
        address = device.allocate(8)
        device.copy_in(address, ctypes.addressof(host), 8)
        host.raw = b"........"
        assert self.read(device, address, 1) == [int.from_bytes(b"12345678", "little")]
