"""A random program as data: typed inputs, steps in order, outputs; its Python text, and running it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tessera as ts
from tessera.api.jit import Jit
from tessera.compiler.options import Options
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tessera.types.promotion import integer_range
from tessera.types.shape import TensorType


@dataclass(frozen=True)
class Value:
    """A value of a program; `is_exact` where the interpreter and compiled code must agree to the last bit."""

    name: str
    type: TensorType
    depth: int = 0
    is_exact: bool = True

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape


@dataclass(frozen=True)
class Step:
    """`value = text`, where the text speaks of the values in `uses`."""

    value: Value
    text: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Inputs, steps and outputs; `sizes` are the values its dynamic dims take, one after the other."""

    seed: int
    inputs: tuple[Value, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]

    @cached_property
    def values(self) -> dict[str, Value]:
        return {value.name: value for value in (*self.inputs, *(step.value for step in self.steps))}

    @property
    def depth(self) -> int:
        return max(self.values[name].depth for name in self.outputs)

    def with_outputs(self, *outputs: str) -> Program:
        return replace(self, outputs=outputs).pruned()

    def with_input(self, name: str) -> Program:
        """The program with a step's value given instead of computed."""
        value = replace(self.values[name], depth=0, is_exact=True)
        steps = tuple(step for step in self.steps if step.value.name != name)
        return replace(self, inputs=(*self.inputs, value), steps=steps).pruned()

    def pruned(self) -> Program:
        """The program without what no output needs; inputs that name a dim stay."""
        needed = set(self.outputs)
        for step in reversed(self.steps):
            if step.value.name in needed:
                needed |= set(step.uses)
        steps = tuple(step for step in self.steps if step.value.name in needed)
        kept: list[Value] = []
        named: set[str] = set()
        for value in self.inputs:
            names = {dim.symbol_name for dim in value.shape if dim.symbol_name is not None}
            if value.name in needed or not names <= named:
                kept.append(value)
                named |= names
        return replace(self, inputs=tuple(kept), steps=steps)

    @property
    def text(self) -> str:
        """The function as Python."""
        parameters = ", ".join(f"{value.name}: {_annotation(value.type)}" for value in self.inputs)
        lines = ["@ts.jit", f"def program({parameters}):"]
        lines += [f"    {name} = {place}" for name, place in self._places().items() if self._mentions(name)]
        lines += [f"    {step.value.name} = {step.text}  # {step.value.type}" for step in self.steps]
        return "\n".join([*lines, f"    return {', '.join(self.outputs)},"])

    def _mentions(self, name: str) -> bool:
        return any(re.search(rf"\b{name}\b", step.text) for step in self.steps)

    def _places(self) -> dict[str, str]:
        places: dict[str, str] = {}
        for value in self.inputs:
            for axis, dim in enumerate(value.shape):
                if dim.symbol_name is not None:
                    places.setdefault(dim.symbol_name, f"{value.name}.shape[{axis}]")
        return places

    @property
    def script(self) -> str:
        """A whole script that shows what the program gives, compiled and interpreted."""
        return f"""\
import numpy as np
import tessera as ts
from tessera import ops
from tests.fuzz.program import random_array
from tessera.types.shape import TensorType
from tessera.types.dtype import BY_NAME

{self.text}

arrays = {{{", ".join(f"{v.name!r}: ({[str(dim) for dim in v.shape]}, {v.dtype.name!r})" for v in self.inputs)}}}
for sizes in {[dict(sizes) for sizes in self.sizes]}:
    given = [
        random_array({self.seed}, name, tuple(TensorType.of(dims, BY_NAME[d]).substitute(sizes).shape), BY_NAME[d])
        for name, (dims, d) in arrays.items()
    ]
    oracle = ts.jit(program.function, backend="reference")(*given)
    for ours, theirs in zip(program(*given), oracle):
        print(np.asarray(ours), np.asarray(theirs), sep="\\n")
"""

    def jitted(self, **options: Any) -> Jit:
        scope: dict[str, Any] = {"ts": ts, "ops": ts.ops}
        exec(compile(self.text.removeprefix("@ts.jit\n"), f"<program {self.seed}>", "exec"), scope)
        return Jit(scope["program"], options=Options.of(**options))

    def arrays(self, sizes: Mapping[str, int]) -> list[Array]:
        return [random_array(self.seed, v.name, v.type.substitute(sizes).shape, v.dtype) for v in self.inputs]


def _annotation(type: TensorType) -> str:
    dims = "".join(f"{dim}, " if dim.is_static else f'"{dim}", ' for dim in type.shape)
    return f"ts.Tensor[{dims}ts.{type.dtype.name if type.dtype.name != 'bool' else 'bool_'}]"


def random_array(seed: int, name: str, shape: tuple[Dim, ...], dtype: DType) -> Array:
    """The values of an input: floats and integers of a few, the same in every run."""
    rng = np.random.default_rng([seed, *name.encode()])
    sizes = [dim.value or 0 for dim in shape]
    if dtype.is_bool:
        return rng.random(sizes) < 0.5
    if dtype.is_float:
        return np.asarray(rng.uniform(-2, 2, sizes)).astype(numpy_dtype(dtype))
    low, high = integer_range(dtype)
    return np.asarray(rng.integers(max(low, -9), min(high, 9), sizes, endpoint=True)).astype(numpy_dtype(dtype))


DTYPES = tuple(BY_NAME[name] for name in ("f32", "f64", "bf16", "f16", "i64", "i32", "i8", "u8", "bool"))
