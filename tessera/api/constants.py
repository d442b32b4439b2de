"""Constants of a program, captured arrays in memory that nobody writes: converted once to the order they are read in.

A program may take such an array with its dims in another order than the caller has it in, as a matmul of few rows reads
the transpose of a weight. What it is given is written by a program of its own at the first call, and kept for as long
as the same array is captured. Of one that is no constant it is written at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tessera.ir.base.tape import CONSTANT, Record, Tape
from tessera.runtime.arrays import is_array
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.runtime.devices import Program
    from tessera.runtime.executable import Executable


def is_constant(tensor: Any) -> bool:
    """Whether nobody writes the memory of a value: a read-only NumPy array, and what it is a view of is read-only too.

    A view may be read-only while its memory is not, and of a tensor that shares an array nobody knows.

    >>> import numpy as np
    >>> weight = np.ones((4, 8), np.float32)
    >>> view = np.broadcast_to(weight, (2, 4, 8))
    >>> is_constant(view)
    False
    >>> weight.flags.writeable = False
    >>> is_constant(view)
    True
    """
    while is_array(tensor):
        if tensor.flags.writeable:
            return False
        if tensor.base is None:
            return True
        tensor = tensor.base
    return isinstance(tensor, bytes)


def mark_constants(tape: Tape, captured: Sequence[Any]) -> None:
    """Say of a tape which of its arguments are constants; the last of them are what its function captures."""
    first = len(tape.inputs) - len(captured)
    numbers = tuple(first + at for at, tensor in enumerate(captured) if is_constant(tensor))
    if numbers:
        tape.promises[CONSTANT] = numbers


def copy_tape(type: TensorType, order: tuple[int, ...]) -> Tape:
    """The program that writes a tensor with its dims in an order.

    >>> from tessera.ir.base.tape import tape_text
    >>> from tessera.types.dtype import f32
    >>> print(tape_text(copy_tape(TensorType.of([4, 8], f32), (1, 0))))
    tape 1 (%0: [4, 8] f32)
    %1: [8, 4] f32 = tgraph.transpose(%0) {axes=(1, 0)}
    return %1
    """
    made = type.with_shape(type.shape[axis] for axis in order)
    record = Record("tgraph.transpose", (0,), {"axes": order}, (1,))
    return Tape(inputs=[0], names=["constant"], records=[record], outputs=[1], types=[type, made])


def given_shapes(executable: Any, tensors: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes in which an executable is given the tensors of a call."""
    shapes: list[tuple[int, ...]] = [tuple(tensor.shape) for tensor in tensors]
    given: Sequence[tuple[int, list[int]]] = executable.metadata.get("given", ())
    for number, order in given:
        shapes[number] = tuple(shapes[number][axis] for axis in order)
    return shapes


class OrderedConstants:
    """A program whose constants are given as the caller has them; all else is the program's own.

    One tensor is kept for each of them, beside the constant itself: a function that captures others in turn converts
    them in turn. Threads that call the program at once may each write it; what they write is the same.
    """

    def __init__(self, program: Program, copies: Mapping[int, Callable[[], Program]]) -> None:
        self._program, self._copies = program, copies
        self._loaded: dict[int, Program] = {}
        self._kept: dict[int, tuple[Any, Any]] = {}
        """Of each constant the tensor that was given last, and that in the order of the program."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    @property
    def calls(self) -> int:
        return self._program.calls

    def call(self, *tensors: Any) -> Any:
        given = self._convert(tensors, lambda copy, tensor: copy.call(tensor))
        return NotImplemented if given is None else self._program.call(*given)

    def run(self, arguments: Sequence[Any]) -> Any:
        given = self._convert(arguments, lambda copy, tensor: copy.run([tensor]))
        return self._program.run(arguments if given is None else given)

    def _convert(self, tensors: Sequence[Any], run: Callable[[Program, Any], Any]) -> list[Any] | None:
        """The arguments with constants in order; None where one is not what the program was made for.

        `run` asks for a copy by the path of the call: the fast one, or that which says what is wrong with a tensor.
        """
        given = list(tensors)
        for number in self._copies:
            if number >= len(given):
                return None
            tensor, (known, made) = given[number], self._kept.get(number, (None, None))
            if known is not tensor or not is_constant(tensor):
                if number not in self._loaded:
                    self._loaded[number] = self._copies[number]()
                made = run(self._loaded[number], tensor)
                if made is NotImplemented:
                    return None
                self._kept[number] = tensor, made
            given[number] = made
        return given


def take_constants(
    program: Program, executable: Executable, tape: Tape, load: Callable[[Tape], Program]
) -> OrderedConstants:
    """A program of an executable that takes constants in other orders, for tensors as the tape has them."""
    given: list[tuple[int, list[int]]] = executable.metadata["given"]
    types = {number: tape.types[tape.inputs[number]] for number, _ in given}
    return OrderedConstants(
        program, {number: partial(load, copy_tape(types[number], tuple(order))) for number, order in given}
    )
