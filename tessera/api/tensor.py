"""`tessera.Tensor` as users get it: with operators, and with someone to make its native support code."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from tessera.runtime import operators
from tessera.runtime.native.support import missing_source, set_object_compiler
from tessera.runtime.tensor import Tensor

_NAMES = (
    "add sub mul div floordiv mod pow matmul and or xor lshift rshift eq ne lt le gt ge neg pos abs invert getitem T mT"
    " reshape transpose squeeze expand astype cast broadcast_to flatten swapaxes expand_dims"
    " sum prod max min mean var any all argmax argmin cumsum cumprod sort argsort exp log sqrt tanh round clip"
)


def _late(name: str) -> Any:
    """An operation that loads all functions when it is first used, and then stands aside."""

    def operation(*arguments: Any, **options: Any) -> Any:
        importlib.import_module("tessera.api.eager")  # its functions take this one's place in the table
        return operators.apply(name, *arguments, **options)

    return operation


_TARGET = ("x86_64-unknown-linux-gnu", "x86-64-v2")


def _compile_support(text: str) -> bytes:
    machine_code = importlib.import_module("tessera.ir.target.machine_code")
    return machine_code.compile_text(text, machine_code.CodeTarget(*_TARGET))


def begin_support() -> None:
    """Have the support code made, where there is none, while the caller does something else."""
    text = missing_source()
    if text is not None:
        machine_code = importlib.import_module("tessera.ir.target.machine_code")
        machine_code.begin(text, machine_code.CodeTarget(*_TARGET))


@cache
def prepare() -> None:
    """Let tensors have operators, and native support code where the cache has none; once in a process."""
    operators.set_operators({name: _late(name) for name in _NAMES.split()})
    set_object_compiler(_compile_support)


prepare()

__all__ = ["Tensor", "begin_support", "prepare"]
