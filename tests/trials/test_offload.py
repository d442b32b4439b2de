"""The first program of the trial of offloaded values."""

from __future__ import annotations

import pytest

from tests.trials import offload


@pytest.mark.slow
def test_gradients_have_the_same_bits_where_values_are_offloaded() -> None:
    record = offload.run(range(5000, 5001))
    assert record["failures"] == []
    assert record["results"]["offloaded"] > 0
