"""Compile module text for this machine, or a lesser one, and call it: what the cpu tests run on."""

# llvmlite ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tessera.ir.target.architectures import architectures
from tessera.ir.target.llvm.instructions import TargetText
from tessera.ir.target.llvm.text import ModuleText

# 256-bit machines have these; naming a CPU without AVX-512 keeps LLVM from using the host's.
_AVX2 = TargetText(8, "haswell", "+avx2,+fma,+f16c,+bmi2,-avx512f")
_AVX512 = next(level for level in architectures()["x86_64"].levels if level.name == "x86-64-v4").text


_never_stopped = ctypes.CFUNCTYPE(ctypes.c_bool)(lambda: False)
"""What kernels ask the runtime."""


@cache
def _host() -> tuple[str, str, bool]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    llvm.add_symbol("tessera_is_stopped", ctypes.cast(_never_stopped, ctypes.c_void_p).value)
    features = llvm.get_host_cpu_features()
    return llvm.get_host_cpu_name(), features.flatten(), bool(features.get("avx512f"))


@cache
def targets() -> tuple[TargetText, ...]:
    """The vector widths this machine can run: always AVX2, and AVX-512 where present."""
    name, features, wide = _host()
    return (_AVX2, replace(_AVX512, cpu=name, features=features)) if wide else (_AVX2,)


@dataclass
class Compiled:
    """A loaded module: call `compiled("name", ...)` with arrays and ints."""

    engine: Any
    assembly: str
    size: int

    def __call__(self, name: str, *args: np.ndarray[Any, Any] | int) -> int:
        converted = [ctypes.c_int64(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in args]
        function = ctypes.CFUNCTYPE(ctypes.c_int64, *[type(a) for a in converted])(
            self.engine.get_function_address(name)
        )
        return int(function(*converted))

    def pointer(self, name: str, arguments: str) -> Any:
        """A callable for timing; `arguments` has `p` for a pointer, `i` for an i64."""
        types = [ctypes.c_void_p if letter == "p" else ctypes.c_int64 for letter in arguments]
        return ctypes.CFUNCTYPE(None, *types)(self.engine.get_function_address(name))


def build(module: ModuleText, opt: int = 1, assembly: bool = False) -> Compiled:
    """Machine code of a module, without any middle-end pass."""
    _host()
    target = module.target
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="static", codemodel="jitdefault", jit=True
    )
    parsed = llvm.parse_assembly(module.text())
    parsed.verify()
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    text = machine.emit_assembly(parsed) if assembly else ""
    code = machine.emit_object(parsed)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Compiled(engine, text, len(code))
