"""The samples of every op, run outside `jit`: each is compiled for all sizes of its rank, and equals its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.api.eager import run_op
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.tile.facets import Pointwise
from tests.graph.eager import type_of
from tests.numerics.bounds import assert_close
from tests.numerics.forms import results

SPECS = [spec for spec in REGISTRY if spec.samples and (spec.attributes or not isinstance(spec.lower, Pointwise))]
"""Pointwise ops without attributes have nothing in their samples that their forms do not have."""


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_samples_equal_the_reference(spec: OpSpec) -> None:
    for sample in spec.samples:
        arrays: list[Any] = [np.asarray(array) for array in sample.make(np.random.default_rng(7))]
        given = results(run_op(spec.name, arrays, sample.attributes))
        where = f"{spec.short_name} {sample.name!r}"
        decided = spec.complete(sample.attributes, [type_of(array) for array in arrays])
        assert_close(spec, arrays, decided, given, where)
