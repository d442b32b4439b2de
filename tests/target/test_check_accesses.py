"""Bounds of Target IR: proven for all sizes, refuted with sizes that show it, and how the lowering is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tessera.backends.cpu.passes.check_accesses import PROVEN, REFUTED, UNKNOWN, examine
from tessera.backends.cpu.passes.compare_accesses import compare_accesses
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.base.op import OpError, SpecOp
from tests.backends.cpu.bodies import kernels_of
from tests.backends.cpu.random_bodies import Sample, boxes, contractions, maps, rows
from tests.target.samples import MACHINES, NAMES, lower_samples

UNSETTLED = {"gathered": 2, "windows": 1, "causal": 2, "softmax": 5, "columns": 10}
"""Accesses that no argument here settles: an index that is data, a padded image, keys cut at the last that is seen,
and where a leaf of symbolic rows is, by a quotient or a remainder."""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_accesses_of_samples_are_proven(name: str, machine: str) -> None:
    for _, target in lower_samples(name, MACHINES[machine]):
        verdicts = [finding.verdict for finding in examine(target)]
        assert verdicts.count(UNKNOWN) <= UNSETTLED.get(name, 0)
        assert REFUTED not in verdicts
        assert PROVEN in verdicts


@settings(max_examples=25)
@given(maps() | rows() | contractions() | boxes())
def test_lowering_keeps_the_accesses_of_random_bodies(sample: Sample) -> None:
    for machine in MACHINES.values():
        for kernel in kernels_of(sample.body, machine):
            target = lower_kernel(kernel, machine)
            compare_accesses(kernel, target)
            assert REFUTED not in [finding.verdict for finding in examine(target)]


def first(kernel: SpecOp, name: str) -> SpecOp:
    return next(op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == name)


def test_a_guard_that_is_missing_is_refuted_with_sizes() -> None:
    ((_, target),) = lower_samples("bias", MACHINES["avx2"])
    tail = first(target, "ttarget.tail")
    load = first(tail, "ttarget.load")
    load.set_value("guarded", ())
    load.set_value("bounds", ())
    (found,) = [finding for finding in examine(target) if finding.verdict == REFUTED]
    assert found.site.op is load
    assert dict(found.sizes) == {"M": 1, "N": 1}


def test_what_differs_is_named() -> None:
    ((tile, target),) = lower_samples("bias", MACHINES["avx2"])
    store = first(target, "ttarget.store")
    store.set_value("offset", store.value("offset") + 1)
    with pytest.raises(OpError, match=r"a store at `.* [+] 1` is no access of the tile kernel"):
        compare_accesses(tile, target)


def test_a_tail_that_is_missing_is_named() -> None:
    ((tile, target),) = lower_samples("bias", MACHINES["avx2"])
    first(target, "ttarget.tail").detach()
    with pytest.raises(OpError, match="leave a part over that is not run"):
        compare_accesses(tile, target)
