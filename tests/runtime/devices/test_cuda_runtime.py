"""The runtime of a GPU where there is none: errors that say so, sizes of calls, memory that comes back, capsules."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import (
    CaptureError,
    DeviceError,
    GuardError,
    LoadError,
    OutOfMemoryError,
    RuntimeArgumentError,
)
from tessera.runtime import dlpack
from tessera.runtime.cache import Store
from tessera.runtime.devices.cuda.assembler import machine_codes, starter
from tessera.runtime.devices.cuda.driver import error_of, is_available
from tessera.runtime.devices.cuda.memory import FreeList, Pool, round_size
from tessera.runtime.devices.cuda.program import CudaProgram, NativeCall, Plan, Sizes, code_for
from tessera.runtime.devices.cuda.tensor import NOWHERE, CudaTensor, form_of
from tessera.runtime.executable import Executable, Guard, Port
from tessera.types.dtype import bf16, f32


@pytest.mark.skipif(is_available(), reason="there is an NVIDIA GPU here")
def test_a_machine_without_a_gpu_says_so_before_anything_is_compiled() -> None:
    def add_one(x: Any) -> Any:
        return x + 1.0

    function = ts.jit(add_one, backend="cuda")
    with pytest.raises(DeviceError, match="there is no") as caught:
        function(np.zeros(3, np.float32))
    assert caught.value.code == "T0720"
    assert function.cache_info().compiles == 0


def test_errors_of_the_driver_say_what_helps() -> None:
    assert isinstance(error_of(2, "cuMemAlloc"), OutOfMemoryError)
    assert "debug=True" in str(error_of(700, "kernel"))
    assert "ts.cuda.array" in str(error_of(900, "cuStreamSynchronize"))
    assert isinstance(error_of(900, "cuStreamSynchronize"), CaptureError)
    assert not isinstance(error_of(700, "cuStreamSynchronize"), CaptureError)


def test_blocks_come_in_few_sizes() -> None:
    assert [round_size(size) for size in (0, 1, 512, 513, 5000, 3 << 20)] == [0, 512, 512, 1024, 8192, 4 << 20]


def test_memory_of_a_tensor_goes_home_when_it_dies() -> None:
    free_list = FreeList(Pool(), 4096)
    free_list.free.append(1 << 20)
    tensor = CudaTensor(free_list.take(), form_of(f32, (3, 4)), 0, free_list)
    assert tensor.shape == (3, 4)
    assert tensor.nbytes == 48
    assert free_list.free == []
    del tensor
    gc.collect()
    assert free_list.free == [1 << 20]


def test_what_begins_anywhere_fits_no_call() -> None:
    assert CudaTensor(4100, form_of(f32, (2,)), 0, None).lane == NOWHERE
    assert CudaTensor(4096, form_of(f32, (2,)), 7, None).lane == 7


def test_forms_are_one_object_each() -> None:
    assert form_of(bf16, (2, 3)) is form_of(bf16, (2, 3))
    assert form_of(bf16, (2, 3)) is not form_of(f32, (2, 3))


def _executable() -> Executable:
    return Executable(
        objects=(),
        inputs=(Port("f32", ("B", "N"), "x"), Port("f32", ("N",), "w")),
        outputs=(Port("bf16", ("B", "2*N")),),
        symbols=("B", "N"),
        binding=(0, 1),
        guards=(Guard("rows come in pairs", "B mod 2", "0"),),
        metadata={"workspace": "4*N", "scratches": [["B", 4, 8, "100*N"]]},
    )


def test_sizes_of_a_call_are_worked_out_from_its_shapes() -> None:
    values, (form,), workspace = Sizes(_executable()).plan([(6, 10), (10,)])
    assert list(values) == [6, 10]
    assert (form.dtype, form.shape) == (bf16, (6, 20))
    # The plan's own in whole lines, and memory for the eight programs that two blocks run.
    assert workspace == 256 + 8 * 1000


def test_shapes_and_guards_are_checked_before_anything_runs() -> None:
    sizes = Sizes(_executable())
    with pytest.raises(RuntimeArgumentError, match="has size 9 in dim 0; expected N"):
        sizes.plan([(6, 10), (9,)])
    with pytest.raises(GuardError, match="rows come in pairs"):
        sizes.plan([(5, 10), (10,)])


@pytest.mark.parametrize(
    ("device", "code", "shared"),
    [
        *((name, name, 99) for name in ("sm_86", "sm_89", "sm_120a")),
        *((name, name, 227) for name in ("sm_90a", "sm_100a")),
        *((name, "sm_80", 163) for name in ("sm_80", "sm_87")),
    ],
)
def test_code_asks_for_no_more_shared_memory_than_a_device_has(device: str, code: str, shared: int) -> None:
    assert code_for(device) == code
    assert GPUS[code].shared == shared << 10


@pytest.mark.parametrize("device", ["sm_75", "sm_103a", "sm_121a"])
def test_a_device_that_no_code_is_made_for_is_refused(device: str) -> None:
    with pytest.raises(LoadError, match=f"no code is made for {device}"):
        code_for(device)


def test_a_capsule_shows_the_tensor_and_keeps_it() -> None:
    class Owner:
        alive = True

        def __del__(self) -> None:
            Owner.alive = False

    capsule = dlpack.export(Owner(), 1 << 30, bf16, (3, 5), (dlpack.CUDA, 0))
    taken = dlpack.Import(capsule, (dlpack.CUDA,))
    assert (taken.data, taken.dtype, taken.shape, taken.strides) == (1 << 30, bf16, (3, 5), (10, 2))
    assert Owner.alive
    del taken, capsule
    gc.collect()
    assert not Owner.alive


def test_a_tensor_of_a_gpu_is_not_taken_for_one_of_the_host() -> None:
    capsule = dlpack.export(object(), 1 << 30, f32, (2,), (dlpack.CUDA, 0))
    with pytest.raises(RuntimeArgumentError, match=r"DLPack device 2 \(cuda\), not in host memory"):
        dlpack.Import(capsule)


class Library:
    """A driver of which only so many calls succeed; `asked` is what it was asked for."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> int:
            self.asked.append(name)
            return self.codes.pop(0) if name == "cuMemAlloc_v2" else 0

        return call


class Driver:
    """What stands in for the driver's functions."""

    ordinal = 0

    def __init__(self, codes: list[int]) -> None:
        self.library = Library(codes)
        self.entered = 0

    def enter(self) -> bool:
        self.entered += 1
        return self.entered == 1

    def call(self, name: str, *arguments: Any) -> None:
        getattr(self.library, name)(*arguments)


def test_free_blocks_go_back_before_memory_is_reported_short(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, cuda = Pool(), Driver([2, 0])
    monkeypatch.setattr("tessera.runtime.devices.cuda.memory.driver", lambda: cuda)
    free_list = pool.free_list(1000)
    pool.reserved = free_list.size
    free_list.free.append(1 << 20)
    pool.new(4096)
    assert "cuMemFree_v2" in cuda.library.asked
    assert free_list.free == []


def test_no_memory_says_how_much_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Driver([2])
    monkeypatch.setattr("tessera.runtime.devices.cuda.memory.driver", lambda: cuda)
    with pytest.raises(OutOfMemoryError, match="no memory for 4096 bytes on cuda:0") as caught:
        Pool().new(4096)
    assert "free tensors that are no longer needed" in str(caught.value)


def _program(codes: list[int]) -> tuple[CudaProgram, list[int]]:
    """A program whose entry answers so, and how often it was asked."""
    program, asked = object.__new__(CudaProgram), list[int]()

    def entry(*_: Any) -> int:
        asked.append(1)
        return codes.pop(0)

    program.executable = Executable((), (), (), metadata={"called": ["softmax"]})
    program.__dict__.update(_entry=entry, _native=NativeCall(0, None))
    return program, asked


def test_a_thread_that_is_new_to_the_device_is_introduced(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Driver([])
    monkeypatch.setattr("tessera.runtime.devices.cuda.program.driver", lambda: cuda)
    program, asked = _program([201, 0])
    program.launch(Plan(0, (), None, (), None, None), [], 0)
    assert program.calls == 1
    assert len(asked) == 2
    assert cuda.entered == 1


def test_a_launch_that_fails_names_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.runtime.devices.cuda.program.driver", lambda: Driver([]))
    program, _ = _program([701 | 1 << 32])
    plan = Plan(0, (), None, (), None, None)
    with pytest.raises(DeviceError, match="softmax") as caught:
        program.launch(plan, [], 0)
    assert "choose smaller tiles" in str(caught.value)


ASSEMBLER = """#!/bin/sh
case "$1" in --version) echo one; exit;; esac
touch "$0.$$"
waited=0
while [ $(ls "$0".* | wc -l) -lt 2 ] && [ $waited -lt 200 ]; do sleep 0.05; waited=$((waited + 1)); done
[ $waited -lt 200 ] || { echo "alone"; exit 1; }
while [ "$1" != "-o" ]; do source=$1; shift; done
cp "$source" "$2"
"""
"""Takes a text as it is, once another one is at work too; gives up after ten seconds."""


def test_kernels_of_a_program_are_assembled_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "assembler"
    path.write_text(ASSEMBLER)
    path.chmod(0o755)
    monkeypatch.setenv("TESSERA_PTXAS", str(path))
    monkeypatch.setattr("tessera.runtime.devices.cuda.assembler.usable_cpus", lambda: 2)
    store, texts = Store(tmp_path / "store"), [b"first", b"\x7fELF is code", b"second", b"first"]
    assert machine_codes(texts, "sm_90a", store) == texts
    assert len(list(tmp_path.glob("assembler.*"))) == 2, "the same text is assembled once, and code not at all"
    assert machine_codes(texts[:1], "sm_90a", store) == texts[:1], "what was made before is found"


COUNTING = """#!/bin/sh
if [ "$1" = "--version" ]; then echo counting; exit 0; fi
while [ "$1" != "-o" ]; do source=$1; shift; done
echo one >> "$(dirname "$0")/times"
cp "$source" "$2"
"""
"""Takes a text as it is, and writes down that it did."""


def test_a_text_that_was_begun_is_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "assembler"
    path.write_text(COUNTING)
    path.chmod(0o755)
    monkeypatch.setenv("TESSERA_PTXAS", str(path))
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "store"))
    times = tmp_path / "times"
    monkeypatch.setattr("tessera.runtime.devices.cuda.assembler.is_available", lambda: False)
    assert starter("sm_90a") is None, "there is no GPU to assemble for"
    monkeypatch.setattr("tessera.runtime.devices.cuda.assembler.is_available", lambda: True)
    monkeypatch.setattr("tessera.runtime.devices.cuda.assembler.driver", lambda: SimpleNamespace(architecture="sm_90a"))
    assert starter("sm_80") is None, "there is another GPU"
    start = starter("sm_90a")
    assert start is not None
    start(b"begun")
    start(b"begun")
    assert machine_codes([b"begun", b"new"], "sm_90a") == [b"begun", b"new"]
    assert times.read_text().count("one") == 2
    start(b"new")
    assert machine_codes([b"new"], "sm_90a") == [b"new"], "it is in the store"
    assert times.read_text().count("one") == 2


def test_machine_code_needs_no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tessera.runtime.devices.cuda.assembler.assembler", lambda: pytest.fail("there is nothing to assemble")
    )
    assert machine_codes([b"\x7fELF is code"], "sm_90a") == [b"\x7fELF is code"]
    assert machine_codes([], "sm_90a") == []
