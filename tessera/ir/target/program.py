"""A program as it leaves the target stage: its kernels, the emitters that make text of them, its interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tessera.ir.base.op import SpecOp
from tessera.ir.target.architectures import host_architecture
from tessera.ir.target.llvm.text import EXCHANGES, buffer_type
from tessera.ir.target.machine_code import CodeTarget, compile_texts
from tessera.runtime.callback import Callback
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType


class Begin(Protocol):
    """Takes a text as soon as it is written, to make its machine code meanwhile, and to give it to `then`."""

    def __call__(self, text: str, target: CodeTarget, then: Callable[[bytes], None] | None = None, /) -> None: ...


LLVM = "llvm"
"""The language of code that LLVM makes machine code of."""
BASELINE_TEXT = host_architecture().baseline.text
BASELINE_CODE = CodeTarget(
    triple=host_architecture().triple, cpu=BASELINE_TEXT.cpu, features=BASELINE_TEXT.features, opt=0
)
"""What host programs of devices are compiled for: they compute little, and travel with their kernels to any CPU.

Nothing is optimized: registers of one long function take LLVM more than linear time, ten seconds for a training step
of 567 launches that is otherwise made in 0.7, and a launch costs the driver far more than the instructions before it.
"""


class CompileOptions(Protocol):
    """What a backend reads of the options of a compilation (`compiler/options.py`)."""

    @property
    def debug(self) -> bool: ...

    @property
    def fast_math(self) -> bool: ...

    @property
    def features(self) -> tuple[str, ...] | None: ...


class Emitter(Protocol):
    """How kernels of Target IR leave a backend: as texts of a language, and those as what the runtime loads."""

    @property
    def language(self) -> str:
        """What texts are written in: `LLVM`, or what a device's own compiler takes (WGSL, C)."""
        ...

    def text(self, kernel: SpecOp) -> str:
        """A kernel of Target IR as text."""
        ...

    def objects(self, texts: Sequence[str]) -> list[bytes]:
        """Texts as bytes that the runtime loads."""
        ...


@frozen
class LlvmEmitter:
    """Kernels leave as LLVM text, of which worker processes make machine code or assembly for `target`."""

    write: Callable[[SpecOp], str]
    target: CodeTarget
    language: str = LLVM

    def text(self, kernel: SpecOp) -> str:
        return self.write(kernel)

    def objects(self, texts: Sequence[str]) -> list[bytes]:
        return compile_texts(texts, self.target)


@frozen
class TextEmitter:
    """Kernels leave as text of another language, as it is: the driver of the device compiles it."""

    language: str
    write: Callable[[SpecOp], str]

    def text(self, kernel: SpecOp) -> str:
        return self.write(kernel)

    def objects(self, texts: Sequence[str]) -> list[bytes]:
        return [text.encode() for text in texts]


class Code(Protocol):
    """A program at its end: kernels of Target IR, all text, and the machine code on demand."""

    @property
    def language(self) -> str:
        """What the texts of kernels are written in: LLVM IR, or what a device's own compiler takes."""
        ...

    @property
    def targets(self) -> tuple[SpecOp, ...]:
        """Kernels as Target IR."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """Kernels as text, and what they share."""
        ...

    @property
    def host(self) -> str:
        """The host program as LLVM text."""
        ...

    def objects(self) -> Sequence[bytes]:
        """The machine code, or text that the device's driver compiles: the host program first."""
        ...

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """What the runtime must know beside the code; plain values only."""
        ...

    def facts(self) -> dict[str, Any]:
        """What `explain` says of the machine."""
        ...

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """What kernels compute by functions of the machine's own, by kernel."""
        ...

    def lint(self) -> Sequence[Any]:
        """What each kernel takes of the machine, and what makes it wait (`tessera lint`).

        Raises OverrideError (T0402) where there is nothing that a compiler could know.
        """
        ...


@frozen
class Interface:
    """What a program takes and gives, as the runtime sees it: see `runtime/executable.py`."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    symbols: tuple[str, ...]
    binding: tuple[int, ...]


def interface_of(program: SpecOp) -> Interface:
    """The interface of a `tsched.module`: each symbol is bound from the first input dim that is just it."""
    block = program.regions[0].block
    inputs = tuple(buffer_type(argument) for argument in block.args)
    last = block.last_op
    assert last is not None
    outputs = tuple(buffer_type(value) for value in last.operands)
    bound: dict[str, int] = {}
    dims = [dim for type in inputs for dim in type.shape]
    for index, dim in enumerate(dims):
        if dim.symbol_name is not None:
            bound.setdefault(dim.symbol_name, index)
    return Interface(inputs, outputs, tuple(bound), tuple(bound.values()))


def callback_of(op: SpecOp) -> Callback:
    """What the runtime must know to make one of these calls."""
    if op.name in EXCHANGES:
        return _exchange_of(op)
    ports = [(type.dtype.name, type.rank) for type in map(buffer_type, op.operands)]
    count = len(ports) - op.value("outputs")
    return Callback(op.value("call"), op.value("slot"), op.value("text"), tuple(ports[:count]), tuple(ports[count:]))


def _exchange_of(op: SpecOp) -> Callback:
    source, target = ((type.dtype.name, type.rank) for type in map(buffer_type, op.operands))
    facts = ("call", "axis", "ranks", "purpose") if op.name == EXCHANGES[0] else ()
    text = json.dumps([op.value(name) for name in facts]) if facts else ""
    return Callback(op.name.partition(".")[2], op.value("number"), text, (source,), (target,))
