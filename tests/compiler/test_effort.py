"""How much a compilation does, counted: kernels, texts, checks and calls, for programs of more and more layers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.cpu.compile import CpuBackend
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.base import passes
from tessera.ir.base.tape import Tape
from tessera.ir.target import machine_code, worker_pool
from tests.schedule.programs import tensor, trace

WIDTH, HEADS = 8, 2


def layer(x: Any, p: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ts.ops.split_qkv(ts.ops.rmsnorm_safe(x, p["norm"]) @ p["qkv"], heads=HEADS)
    mixed = ts.ops.attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(batch, length, width)
    x = x + mixed @ p["out"]
    return x + ts.ops.gelu(ts.ops.rmsnorm_safe(x, p["norm"]) @ p["up"]) @ p["down"]


def model(layers: int) -> Tape:
    shapes = {
        "norm": (WIDTH,),
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 16),
        "down": (16, WIDTH),
    }
    parameters = [{name: np.ones(shape, np.float32) for name, shape in shapes.items()} for _ in range(layers)]

    def forward(x: ts.Tensor["B", "S", WIDTH, ts.f32], parameters: Any) -> Any:
        for p in parameters:
            x = layer(x, p)
        return x

    return ts.jit(forward).trace(np.ones((2, 3, WIDTH), np.float32), parameters).tape


def calls_of(tape: Tape) -> int:
    """How many calls of Python functions a lowering takes."""
    count = 0

    def on_event(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(on_event)
    try:
        lower(tape, Options())
    finally:
        sys.setprofile(None)
    return count


def test_layers_share_their_kernels() -> None:
    few, many = (lower(model(layers), Options()) for layers in (3, 9))
    assert len(few.texts) == len(many.texts)
    assert len(few.kernels) == len(few.targets) < len(few.texts), "modules that kernels share are the last"


def test_effort_grows_with_layers_and_no_faster() -> None:
    few, some, many = (model(layers) for layers in (4, 8, 16))
    lower(many, Options())  # tables that are filled once are nobody's effort
    first, second = calls_of(some) - calls_of(few), calls_of(many) - calls_of(some)
    assert second < 2.4 * first


def test_each_stage_is_verified_once_and_each_pass_runs_once_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[Any] = []
    genuine = passes.verify
    monkeypatch.setattr(passes, "verify", lambda module: (verified.append(module), genuine(module)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.delenv("TESSERA_VERIFY", raising=False)
    lowering = lower(model(1), Options())
    stages = [step.stage for step in lowering.stages.steps if step.name == "exit" and step.stage != "target"]
    assert stages == ["graph", "schedule", "tile"]
    assert len(verified) == 1 + len(stages)


def test_a_text_is_given_to_a_worker_when_it_is_done_and_never_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    machine_code.forget()
    events: list[str] = []
    submit, parts = worker_pool.WorkerPool.submit, CpuBackend.parts

    def submitting(self: Any, header: Any, text: str, timeout: float) -> Any:
        events.append(text)
        return submit(self, header, text, timeout)

    def emitting(self: Any, kernels: Any, begin: Any) -> Any:
        found = parts(self, kernels, begin)
        events.append("emitted")
        return found

    monkeypatch.setattr(worker_pool.WorkerPool, "submit", submitting)
    monkeypatch.setattr(CpuBackend, "parts", emitting)
    compile_tape(trace(lambda x, w: ts.ops.gelu(x @ w), tensor("M K"), tensor("K N")), Options())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]
    assert len(set(events)) == len(events)
    before, after = events[: events.index("emitted")], events[events.index("emitted") + 1 :]
    assert len(before) > 1
    assert len(after) == 1, "the host program alone is written after the kernels"
    machine_code.forget()
