"""Programs for a GPU with their arguments and a check of their results: every graph op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.api.jit import Jit
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.spec import OpSpec
from tessera.runtime.executable import Executable
from tessera.types.dtype import DType
from tests.numerics.bounds import assert_close
from tests.numerics.families import CONTROL, forms_of, tried
from tests.numerics.forms import case_of, free_program, results

OPTIONS = Options.of(backend="cuda", features=("sm_90a",))
LEFT_OUT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "replicated", "fused"})
"""Ops that several devices do together, and what is an error without a dot before it."""


@dataclass(frozen=True)
class DeviceCase:
    """One program and calls of it: `inputs[i]` are the arrays of call `i`, `check` takes its results."""

    name: str
    jitted: Jit
    inputs: tuple[tuple[Any, ...], ...]
    check: Callable[[int, Sequence[Any]], None]

    def executable(self) -> Executable:
        """The program compiled for a GPU that need not be here."""
        traced = self.jitted.trace(*self.inputs[0])
        return compile_tape(traced.tape, OPTIONS)

    def on_device(self) -> Jit:
        """The same function, jitted for the GPU that is here."""
        return Jit(self.jitted.function, options=Options.of(backend="cuda"))

    def arguments(self, number: int) -> list[Any]:
        """What the executable takes: the tensors of a call, then what the function has from outside."""
        traced = self.jitted.trace(*self.inputs[number])
        return [*self.jitted.bind(*self.inputs[number]).tensors, *traced.lifted]

    def outcome(self, number: int, outputs: Sequence[Any]) -> Any:
        """The function's result from the program's outputs."""
        return self.jitted.trace(*self.inputs[number]).result(tuple(outputs))


def chosen() -> Iterator[tuple[OpSpec, DType]]:
    """Every op in its first dtype, and in bf16 and i32 where it has those."""
    seen: set[str] = set()
    for spec, dtype in tried():
        if spec.short_name in CONTROL | LEFT_OUT:
            continue
        if spec.short_name not in seen or dtype.name in ("bf16", "i32"):
            seen.add(spec.short_name)
            yield spec, dtype


def op_case(spec: OpSpec, dtype: DType, calls: int = 4) -> DeviceCase | None:
    """An op in its main form, at a few sizes of all kinds; None where its sizes are fixed."""
    form = next((form for form in forms_of(spec, dtype) if not form.is_fixed), None)
    if form is None:
        return None
    count = len(form.sizes)
    numbers = sorted({0, count // 2, *np.linspace(1, count - 1, calls - 1).astype(int).tolist()})
    made = [case_of(spec, dtype, form, number) for number in numbers]

    def check(number: int, outputs: Sequence[Any]) -> None:
        case = made[number]
        where = f"{spec.short_name} {dtype} {dict(form.sizes[numbers[number]])} on a GPU"
        # Groups of rows are gathered into shared memory, and windows are written as rows of matrices, so that any sizes
        # go to tensor cores, odd ones too.
        on_tensor_cores = spec.short_name.startswith(("ragged", "conv")) and dtype.bytes < 4
        found = results(as_tuple(outputs))
        assert_close(spec, case.arrays, case.attributes, found, where, on_tensor_cores=on_tensor_cores)

    given = tuple(tuple(case.given) for case in made)
    return DeviceCase(f"{spec.short_name}-{dtype}", free_program(spec, dtype, form), given, check)


def op_cases() -> Iterator[DeviceCase]:
    """All ops that are chosen."""
    for spec, dtype in chosen():
        case = op_case(spec, dtype)
        if case is not None:
            yield case
