"""Training on a GPU without one: models of both sides agree on a CPU, and parts that hang lose only themselves."""

# Modules of torch have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks import gpu_train
from benchmarks.gpu_train_ops import backward, exact_gradients, forward
from benchmarks.training_models import (
    GPT2,
    LLAMA,
    Model,
    TorchTrainer,
    build_model,
    draw_parameters,
    make_state,
    make_step,
    parameter_shapes,
    torch_model,
)
from tessera.frontend.pytree import flatten
from tessera.types.policy import Policy

SMALL: dict[str, Model] = {
    "gpt2": Model(ts.nn.GPTConfig(vocabulary=61, length=16, width=32, depth=2, heads=4), 2),
    "llama": Model(
        ts.nn.GPTConfig.llama(
            vocabulary=61, length=16, width=32, depth=2, heads=4, kv_heads=2, hidden=48, remat=True
        ),
        2,
    ),
}  # fmt: skip
EPS = 2.0**-24


@pytest.mark.parametrize("model", [GPT2, LLAMA, *SMALL.values()], ids=["GPT2", "LLAMA", "gpt2", "llama"])
def test_flops_are_those_of_parameters_and_attention(model: Model) -> None:
    one = model.config
    matrices = [shape for name, shape in parameter_shapes(one).items() if len(shape) == 2 and "positions" not in name]
    count = sum(rows * columns for rows, columns in matrices) - (0 if one.tied else one.vocabulary * one.width)
    attention = one.depth * one.length * one.width
    assert model.flops == 6.0 * model.tokens * (count + attention)


@pytest.mark.parametrize("name", SMALL)
def test_parameters_have_the_names_and_shapes_of_the_model(name: str) -> None:
    config = SMALL[name].config
    model = ts.nn.GPT.init(ts.random.key(0), config)
    wanted = {name: tuple(value.shape) for name, value in ts.nn.state_dict(model).items()}
    assert parameter_shapes(config) == wanted
    made = build_model(config, draw_parameters(config))
    assert flatten(made)[1] == flatten(model)[1]


@pytest.mark.parametrize("name", SMALL)
def test_steps_of_both_sides_have_the_same_losses(name: str) -> None:
    """In f32, for three steps: each loss is a mean of sums of a few hundred terms, of updated parameters."""
    torch: Any = importlib.import_module("torch")
    model = SMALL[name]
    values, (tokens, targets) = draw_parameters(model.config), gpu_train.random_batch(model)
    peer = TorchTrainer(torch, torch_model(torch, model.config, values, "cpu"), compiled=False, device="cpu")
    state, step = make_state(model.config, values, "cpu"), make_step("cpu", Policy())
    for _ in range(3):
        state, metrics = step(state, (tokens, targets))
        theirs = float(peer.step(torch.tensor(tokens), torch.tensor(targets)))
        # An update is of the size of the rate whatever the gradient is: where that is near 0 its sign is rounding.
        assert abs(float(metrics["loss"]) - theirs) <= 1000 * EPS * theirs


@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_that_is_timed_is_that_of_attention(causal: bool) -> None:
    torch: Any = importlib.import_module("torch")
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((1, 2, 9, 8)).astype(np.float32) for _ in range(4)]
    out, lse = ts.jit(forward(causal))(*arrays[:3])
    found = ts.jit(backward(causal))(*arrays[:3], out, lse, arrays[3])
    wanted = exact_gradients(torch, [torch.tensor(one) for one in arrays], causal)
    for own, one in zip(found, wanted, strict=True):
        assert np.linalg.norm(np.asarray(own) - one.numpy()) <= 64 * EPS * np.linalg.norm(one.numpy())


def test_losses_are_judged_by_their_means() -> None:
    others = [[1.0] * 20 + [0.5] * 20, [2.0] * 20 + [0.7] * 20]
    twin = [1.5] * 20 + [0.9] * 20
    within = gpu_train.judge_losses([1.5] * 20 + [0.6] * 20, twin, others)
    assert within["is_within"]
    beyond = gpu_train.judge_losses([1.5] * 20 + [0.8] * 20, twin, others)
    assert not beyond["is_within"]
    assert beyond["outside"] == pytest.approx([0.0, 0.1])
    assert beyond["twin_outside"] == pytest.approx([0.0, 0.2])
    assert beyond["apart"] == pytest.approx(0.1)


def run(program: str, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    gpu_train.run_part("step", seconds, rows.append, [sys.executable, "-u", "-c", program])
    return rows


ROW = f'print({gpu_train.MARK!r} + \'{{"name": "one"}}\'); '


def test_rows_come_from_a_part_that_ends() -> None:
    assert run(f"print('words'); {ROW}", 60) == [{"part": "step", "name": "one"}]


def test_a_part_that_hangs_keeps_its_rows() -> None:
    first, last = run(f"import time; {ROW} time.sleep(60)", 2)
    assert first == {"part": "step", "name": "one"}
    assert last["wrong"] == "it took longer than 2 s"


def test_a_part_that_fails_says_why() -> None:
    first, last = run(f"{ROW} raise ValueError('no such kernel')", 60)
    assert first["name"] == "one"
    assert "no such kernel" in last["wrong"]


def test_the_record_is_whole_after_each_row_and_parts_without_time_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def part(name: str, seconds: float, keep: Any) -> None:
        for number in range(2):
            keep({"part": name, "name": f"{name} {number}"})
            seen.append(len(json.loads(out.read_text(encoding="utf-8"))["rows"]))

    out = tmp_path / "train.json"
    for name in ("need_gpu", "need_torch"):
        monkeypatch.setattr(gpu_train, name, lambda: None)
    monkeypatch.setattr(gpu_train, "run_part", part)
    gpu_train.main(["--only", "step,ops", "--out", str(out)])
    assert seen == [1, 2, 3, 4]
    gpu_train.main(["--only", "step", "--seconds", "5", "--out", str(out)])
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert row["name"] == "step: not begun"
