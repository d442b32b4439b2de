"""Check that values keep the bounds that functions promise, as far as intervals can tell, and change nothing."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.passes import Pass
from tessera.ir.graph.dialect import to_tape
from tessera.ir.graph.tape_analysis import find_unproved

BOUNDED, INPUTS = "numerics.bounded", "numerics.inputs"


class CheckRanges(Pass):
    """Check that no value of a function with `numerics.bounded = [-100, 100]` can leave that range (T0305).

    Inputs lie where `numerics.inputs = {x = [-1, 1]}` says, else in the bound. Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for function in module.ops:
            found = function.attributes.get(BOUNDED)
            if isinstance(function, SpecOp) and found is not None:
                given = function.attributes.get(INPUTS)
                ranges: dict[str, Any] = {} if given is None else plain(given)
                find_unproved(
                    to_tape(function), _pair(plain(found)), {name: _pair(one) for name, one in ranges.items()}
                )


def _pair(ends: Any) -> tuple[float, float]:
    low, high = ends
    return float(low), float(high)
