"""Indices out of bounds on the device: clipped, dropped or an error, and updates by index, as on a CPU."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import PositionError
from tessera.runtime.devices.cuda.driver import is_available
from tests.api.test_at import INDICES as FORMS
from tests.api.test_at import X as BOX
from tests.api.test_index_modes import INDICES, NEW, READS, WRITES, X

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("mode", ["clip", "drop", None, "error"])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_modes(name: str, mode: str | None) -> None:
    function = READS.get(name) or WRITES[name]
    more = (NEW,) if name in WRITES else ()
    run, plain = (ts.jit(lambda x, i, *u: function(x, i, *u, mode), backend=backend) for backend in ("cuda", "cpu"))
    if mode == "error":
        with pytest.raises(PositionError, match="outside of an axis of 5 elements"):
            run(X, INDICES, *more)
        return
    np.testing.assert_array_equal(np.asarray(run(X, INDICES, *more)), np.asarray(plain(X, INDICES, *more)))


@pytest.mark.parametrize("form", FORMS)
def test_updates_by_every_form_of_index(form: str) -> None:
    index = FORMS[form]
    values = np.random.default_rng(1).normal(size=BOX[index].shape).astype(np.float32)
    for name in ("set", "add", "mul", "max", "min"):
        found, wanted = (
            ts.jit(lambda x, v, n=name: getattr(x.at[index], n)(v), backend=backend)(BOX, values)
            for backend in ("cuda", "cpu")
        )
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted), err_msg=name)


def test_slices_that_begin_where_tensors_say() -> None:
    for start in (-1, 0, 2, 9):
        found, wanted = (
            ts.jit(
                lambda x, i: ops.dynamic_update_slice(x * 2.0, ops.dynamic_slice(x, (i, 0, 1), (2, 5, 3)), (i, 0, 2)),
                backend=backend,
            )(BOX, np.array(start))
            for backend in ("cuda", "cpu")
        )
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_infinities_by_numbers() -> None:
    x, y = np.array([np.inf, -np.inf, 5, np.inf], np.float32), np.array([2, 3, np.inf, 0], np.float32)
    found, wanted = (ts.jit(lambda x, y: (x // y, x % y), backend=backend)(x, y) for backend in ("cuda", "cpu"))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
