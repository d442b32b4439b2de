"""`stdlib.fused_adam` on a GPU: the formulas bit for bit in f32, one launch for tensors of a kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.optim.test_fused_adam import adam, arrays, launches, reference

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("is_donated", [True, False], ids=["donated", "kept"])
def test_steps_of_a_tree_equal_the_formulas_bit_for_bit(is_donated: bool) -> None:
    step = ts.jit(adam, backend="cuda", donate={"params", "mu", "nu"} if is_donated else ())

    def own(tree: dict[str, Any]) -> dict[str, Any]:
        return {name: ts.cuda.array(value) for name, value in tree.items()}

    wanted: list[Any] = [arrays(1), arrays(2), arrays(3, least=0.1)]
    state = [own(tree) for tree in wanted]
    for count in range(1, 4):
        gradients = arrays(count + 10)
        wanted = reference(wanted[0], gradients, wanted[1], wanted[2], count)
        state = list(step(state[0], own(gradients), state[1], state[2], ts.cuda.array(np.asarray(count))))
        for found, right in zip(state, wanted, strict=True):
            for name, value in right.items():
                assert np.asarray(found[name].cpu()).tobytes() == value.tobytes(), name
    assert len(launches(step)) <= 3, "rates of the step, and one launch for each rank of tensors"
