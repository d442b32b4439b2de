"""Plans of ops that ask where an element is: another shape of the same elements is another value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ScheduleError


def test_a_triangle_of_another_shape_is_another_value() -> None:
    """What an op gives depends on where elements are: seen as a square, other ones are kept."""

    @ts.jit
    def triangle(x: ts.Tensor[8, 32, ts.f32]) -> Any:
        return ops.tril(x)

    text = triangle.schedule()
    line = next(one for one in text.splitlines() if "= tgraph.tril %" in one)
    name = line.split("tgraph.tril ")[1].split()[0].rstrip(",")
    wide, square = "!tgraph.tensor<[8, 32], f32>", "!tgraph.tensor<[16, 16], f32>"
    made = line.split(" = ")[0].strip()
    edited = "\n".join(
        (
            f"    %q = tgraph.reshape {name} {{shape = [16, 16]}} : ({wide}) -> {square}",
            line.replace(f"tril {name}", "tril %q").replace(wide, square).replace(made, "%t"),
            f"    {made} = tgraph.reshape %t {{shape = [8, 32]}} : ({square}) -> {wide}",
        )
    )
    with pytest.raises(ScheduleError, match="computes something"):
        triangle.with_plan(text.replace(line, edited))(np.ones((8, 32), np.float32))


# Branches by sizes that choose between kernels of one value.
