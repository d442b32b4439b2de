"""A failed compilation leaves a script: it runs by itself and shows the same failure."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.passes import lower_kernels
from tessera.compiler.compile import compile_tape, write_script
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CodegenError
from tessera.diagnostics.error import InternalError
from tessera.ir.base.op import SpecOp
from tessera.types.machine import Machine
from tests.schedule.programs import tensor, trace


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("TESSERA_REPRODUCERS", str(tmp_path))


def program(x: Any) -> Any:
    return x * 2.0 + 1.0


def test_a_mistake_of_the_compiler_names_a_script_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def translate(kernel: SpecOp, machine: Machine, *others: Any) -> tuple[SpecOp, SpecOp]:
        raise RuntimeError(f"cannot lower {kernel.value('kind')}")

    monkeypatch.setattr(lower_kernels, "translate", translate)
    with pytest.raises(InternalError, match="cannot lower map") as caught:
        compile_tape(trace(program, tensor("A B")), Options())
    assert caught.value.script in str(caught.value)
    # The pass alone, on the text before it; the script has the whole program.
    assert caught.value.command.startswith("tessera-opt ")
    assert "lower-kernels" in caught.value.command
    with pytest.raises(InternalError, match="cannot lower map"):
        runpy.run_path(caught.value.script)


def test_what_llvm_refuses_names_a_script_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(self: CpuBackend, kernels: Sequence[SpecOp], begin: object) -> tuple[list[str], dict[str, str]]:
        return ["this is no module"] * len(kernels), {}

    monkeypatch.setattr(CpuBackend, "parts", parts)
    with pytest.raises(CodegenError, match="compiles the whole program again") as caught:
        compile_tape(trace(program, tensor("A B")), Options())
    script = next(note for note in caught.value.notes if "whole program" in note).split()[0]
    with pytest.raises(CodegenError):
        runpy.run_path(script)


def test_the_script_of_a_program_that_compiles_by_now_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tape, options = trace(program, tensor("A B")), Options(fusion=False)
    script = write_script(tape, options, 'said "no"')
    assert Path(script).read_text().startswith('"""Compiles a program that failed with: said \'no\'"""')
    lowered: list[str] = []
    lower = lower_kernels.translate

    def note(kernel: SpecOp, machine: Machine, *others: Any) -> tuple[SpecOp, SpecOp]:
        lowered.append(str(kernel))
        return lower(kernel, machine, *others)

    monkeypatch.setattr(lower_kernels, "translate", note)
    runpy.run_path(script)
    again = list(lowered)
    lowered.clear()
    compile_tape(tape, options)
    # The very kernels of the program, made by the script too: it did compile, and the same thing.
    assert again == lowered != []
    assert capfd.readouterr() == ("", "")
