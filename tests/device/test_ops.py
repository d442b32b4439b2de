"""Every graph op on a GPU against its reference, through `jit`, in outputs that were full of NaN before."""

from __future__ import annotations

import os

import pytest

from tessera.ir.base.spec import OpSpec
from tessera.runtime.devices.cuda.driver import is_available
from tessera.types.dtype import DType
from tests.device.cases import chosen, op_case
from tests.device.poison import poisoned

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

CASES = [pytest.param(spec, dtype, id=f"{spec.short_name}-{dtype}") for spec, dtype in chosen()]
PART, PARTS = (int(os.environ.get(f"TESSERA_TEST_{name}", default)) for name, default in (("PART", 0), ("PARTS", 1)))
"""Which share of the cases to run, so that several processes may have one each."""


@pytest.mark.parametrize(("spec", "dtype"), CASES[PART::PARTS])
def test_op_on_a_gpu_equals_its_reference(spec: OpSpec, dtype: DType) -> None:
    case = op_case(spec, dtype)
    if case is None:
        pytest.skip("its sizes are fixed")
    function = case.on_device()
    with poisoned():
        for number, inputs in enumerate(case.inputs):
            case.check(number, function(*inputs))
    assert function.cache_info().misses == 1
