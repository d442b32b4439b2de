"""The reference backend as a program: a trace run op by op on NumPy, compiled by nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.backends.reference.interpret import run_tape
from tessera.ir.base.callbacks import calling
from tessera.ir.base.tape import DONATED, Tape
from tessera.runtime.donation import Donation, consume
from tessera.runtime.tensor import Tensor


class ReferenceProgram:
    """A tape run op by op on NumPy: the oracle, used only when it is asked for by name."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.calls = 0

    def call(self, *tensors: Any) -> Any:
        """NotImplemented: the oracle has the checked path alone."""
        return NotImplemented

    def run(self, arguments: Sequence[Any]) -> Any:
        """The outputs as tensors."""
        arrays, given = [np.asarray(argument) for argument in arguments], self.tape.promises.get(DONATED, ())
        if given:
            spans = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays]
            Donation(given, ()).check(self.tape.names, spans)
        try:
            with calling(self.tape.functions):
                outputs = run_tape(self.tape, arrays)
        finally:
            consume(arguments, given)
        types = [self.tape.types[value] for value in self.tape.outputs]
        self.calls += 1
        made = tuple(Tensor.of(output, type.dtype) for output, type in zip(outputs, types, strict=True))
        return made[0] if len(made) == 1 else made


class _Reference:
    """The reference backend, as `compiler/backend.py` describes an interpreter."""

    def program(self, tape: Tape) -> ReferenceProgram:
        return ReferenceProgram(tape)


BACKEND = _Reference()
