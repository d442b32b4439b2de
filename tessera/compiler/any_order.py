"""Compiled kernels of a processor one at a time, as an executor that chooses its own order calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.arrays import Array
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.any_order import AnyOrder
from tessera.runtime.loader import link
from tessera.runtime.tensor import native

_TASKS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
_SCRATCH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CompiledKernels:
    """Kernels by name; called with buffers and sizes, one shares its work out among threads as always."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        support = native()
        self._code = link(objects, support.code.symbols)
        self._run = _RUN(support.code.address("tessera_pool_run"))
        self._functions: dict[str, tuple[int, Any, Any]] = {}

    def __call__(self, name: str, buffers: Sequence[Array], sizes: Sequence[int]) -> None:
        kernel, tasks, scratch = self._found(name)
        words = [*(buffer.ctypes.data for buffer in buffers), *sizes, 0]
        context = (ctypes.c_int64 * len(words))(*words)
        count = tasks(context, 1)
        if count > 0:
            missing = self._run(kernel, context, count, scratch(context))
            assert not missing, f"no memory for {missing} bytes of scratch"

    def _found(self, name: str) -> tuple[int, Any, Any]:
        found = self._functions.get(name)
        if found is None:
            code = self._code
            functions = _TASKS(code.address(f"{name}_tasks")), _SCRATCH(code.address(f"{name}_scratch"))
            found = self._functions[name] = (code.address(name), *functions)
        return found


def compiled_in_any_order(tape: Tape, options: Options | None = None) -> AnyOrder:
    """A traced program whose kernels are compiled for this processor, to be run in any order."""
    lowering = lower(tape, options or Options())
    # The first object is the host program, which has an order of its own.
    return AnyOrder(lowering.module, CompiledKernels(lowering.code.objects()[1:]))
