"""CUDA keeps the contract of devices."""

from __future__ import annotations

import pytest

from tessera.runtime.devices import Device, find_device
from tests.runtime.devices.conformance import DeviceContract

pytestmark = pytest.mark.device("sm_80")
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 target, .param .u64 source, .param .u64 count, .param .u64 addend)
{
    .reg .pred %p;
    .reg .u32 %t;
    .reg .u64 %to, %from, %n, %a, %at, %v;
    ld.param.u64 %to, [target];
    ld.param.u64 %from, [source];
    ld.param.u64 %n, [count];
    ld.param.u64 %a, [addend];
    mov.u32 %t, %tid.x;
    cvt.u64.u32 %at, %t;
    setp.ge.u64 %p, %at, %n;
    @%p bra done;
    shl.b64 %at, %at, 3;
    add.u64 %from, %from, %at;
    add.u64 %to, %to, %at;
    ld.global.u64 %v, [%from];
    add.u64 %v, %v, %a;
    st.global.u64 [%to], %v;
done:
    ret;
}
"""


class TestCuda(DeviceContract):
    """The GPU of this process."""

    block = (1024, 1, 1)

    @pytest.fixture
    def device(self) -> Device:
        return find_device("cuda")

    @pytest.fixture
    def code(self) -> tuple[bytes, str]:
        return PTX, "add"
