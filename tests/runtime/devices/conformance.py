"""The contract of `runtime/devices` as tests: subclass `DeviceContract`, and give it a device and a kernel.

The kernel takes (target, source, count, addend) and puts `source[i] + addend` into `target[i]`, both of 64-bit
integers. What the tests ask of it is order: a device that runs work early, late or twice gives other numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pytest

from tessera.diagnostics.codes import DeviceError, LoadError, OutOfMemoryError
from tessera.runtime.devices import Device

COUNT = 1000
ONE = (1, 1, 1)


class DeviceContract:
    """Every method of a device, alone and in order with others."""

    block = ONE
    """Threads of a block that the kernel runs in."""

    @pytest.fixture
    def device(self) -> Device:
        raise NotImplementedError

    @pytest.fixture
    def code(self) -> tuple[bytes, str]:
        """Machine code or text, and the name of the kernel in it."""
        raise NotImplementedError

    def write(self, device: Device, values: Sequence[int], stream: int = 0) -> int:
        host = (ctypes.c_int64 * len(values))(*values)
        address = device.allocate(ctypes.sizeof(host), stream)
        device.copy_in(address, ctypes.addressof(host), ctypes.sizeof(host), stream)
        ctypes.memset(host, 0xFF, ctypes.sizeof(host))  # the host may have its memory again
        return address

    def read(self, device: Device, address: int, count: int = COUNT, stream: int = 0) -> list[int]:
        host = (ctypes.c_int64 * count)()
        device.copy_out(ctypes.addressof(host), address, ctypes.sizeof(host), stream)
        return list(host)

    def add(self, device: Device, kernel: Any, target: int, source: int, addend: int, stream: int = 0) -> None:
        device.launch(kernel, ONE, self.block, (target, source, COUNT, addend), stream)

    def test_what_is_copied_in_comes_out(self, device: Device) -> None:
        address = self.write(device, range(COUNT))
        assert self.read(device, address) == list(range(COUNT))
        device.free(address)

    def test_memory_is_aligned_and_apart(self, device: Device) -> None:
        found = [device.allocate(size) for size in (0, 1, 8, 100, 1 << 20)]
        assert len(set(found)) == len(found)
        if device.has_addresses:
            assert all(address % 64 == 0 for address in found)
        for address in found:
            device.free(address)

    def test_no_bytes_are_copied(self, device: Device) -> None:
        address = self.write(device, [7])
        device.copy_in(address, 0, 0)
        device.copy_within(address, address, 0)
        assert self.read(device, address, 1) == [7]

    def test_a_copy_within_the_device_is_in_order(self, device: Device) -> None:
        first, second = self.write(device, range(COUNT)), self.write(device, [0] * COUNT)
        device.copy_within(second, first, 8 * COUNT)
        assert self.read(device, second) == list(range(COUNT))

    def test_a_kernel_runs_once_for_each_launch(self, device: Device, code: tuple[bytes, str]) -> None:
        kernel = device.load_kernel(*code)
        address = self.write(device, range(COUNT))
        for addend in (1, 10, 100):
            self.add(device, kernel, address, address, addend)
        assert self.read(device, address) == [value + 111 for value in range(COUNT)]

    def test_code_is_for_the_device_or_refused(self, device: Device, code: tuple[bytes, str]) -> None:
        with pytest.raises((DeviceError, LoadError)):
            device.load_kernel(code[0], "no_kernel_of_this_name")

    def test_streams_are_in_order_where_one_waits(self, device: Device, code: tuple[bytes, str]) -> None:
        kernel = device.load_kernel(*code)
        one, other = device.create_stream(), device.create_stream()
        first, second = self.write(device, [0] * COUNT, one), self.write(device, [0] * COUNT, other)
        for _ in range(5):
            self.add(device, kernel, first, first, 1, one)
            device.wait(other, one)
            self.add(device, kernel, second, first, 10, other)
            device.wait(one, other)
        assert self.read(device, second, stream=other) == [15] * COUNT
        device.synchronize(one)

    def test_synchronize_waits_for_all(self, device: Device, code: tuple[bytes, str]) -> None:
        kernel = device.load_kernel(*code)
        streams = [0, device.create_stream(), device.create_stream()]
        found = [self.write(device, [stream] * COUNT, stream) for stream in streams]
        for address, stream in zip(found, streams, strict=True):
            self.add(device, kernel, address, address, 1, stream)
        device.synchronize()
        for address, stream in zip(found, streams, strict=True):
            assert self.read(device, address, stream=stream) == [stream + 1] * COUNT

    def test_memory_that_is_freed_early_is_reused_late(self, device: Device, code: tuple[bytes, str]) -> None:
        kernel = device.load_kernel(*code)
        kept = self.write(device, [0] * COUNT)
        for value in range(4):
            passing = self.write(device, [value] * COUNT)
            self.add(device, kernel, kept, passing, 1)
            device.free(passing)
        assert self.read(device, kept) == [4] * COUNT

    def test_more_memory_than_there_is_is_refused(self, device: Device) -> None:
        with pytest.raises(OutOfMemoryError):
            device.allocate(1 << 60)

    def test_a_device_that_is_not_there_is_refused(self, device: Device) -> None:
        assert device.at(device.index).index == device.index
        with pytest.raises(DeviceError):
            device.at(1000)
