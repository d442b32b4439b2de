"""Chains of approximated functions: those of two vectors are written one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.backends.cpu.emit import emit_kernel
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.target.architectures import target_text
from tessera.ir.target.llvm import math
from tessera.types.dim import Dim
from tests.backends.cpu.bodies import Writer, check, kernel_of
from tests.backends.cpu.native import machines

N = Dim.symbol("N")


def test_a_function_of_two_vectors_comes_before_the_next_of_either(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    emit = math.emit

    def record(f: Any, name: str, *rest: Any) -> Any:
        called.append(name)
        return emit(f, name, *rest)

    monkeypatch.setattr(math, "emit", record)
    for machine in machines():
        w = Writer()
        kernel = lower_kernel(kernel_of(w.body(w.sin(w.neg(w.exp(w.input([N]))))), machine), machine)
        called.clear()
        emit_kernel(kernel, target_text(machine))
        assert called[:6] == ["exp", "exp", "neg", "neg", "sin", "sin"]


def test_an_odd_number_of_vectors_has_a_last_one_alone() -> None:
    for size in (0, 1, 15, 16, 17, 48, 100):
        w = Writer()
        check(w.body(w.sqrt(w.exp(w.input([N])))), {"N": size}, reference_ulps=8, ulps=8)
