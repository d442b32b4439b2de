"""Modules made of sizes, as PyTorch has it: each is refused with the `init` that takes them."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false
from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import ArgumentError

KEY = "ts.random.key(0)"
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "Linear": (lambda: nn.Linear(8, 16), f"Linear.init({KEY}, 8, 16)"),
    "Linear of one size": (lambda: nn.Linear(8), f"Linear.init({KEY}, inputs, outputs)"),
    "Linear by name": (
        lambda: nn.Linear(in_features=8, out_features=16, bias=False),
        f"Linear.init({KEY}, inputs=8, outputs=16, bias=False)",
    ),
    "Embedding": (lambda: nn.Embedding(10, 4), f"Embedding.init({KEY}, 10, 4)"),
    "LayerNorm": (lambda: nn.LayerNorm(64), "LayerNorm.init(64)"),
    "LayerNorm of a shape": (lambda: nn.LayerNorm([64], eps=1e-6), "LayerNorm.init(64, eps=1e-06)"),
    "RMSNorm": (lambda: nn.RMSNorm(8), "RMSNorm.init(8)"),
    "BatchNorm": (lambda: nn.BatchNorm(8), "BatchNorm.init(8)"),
    "BatchNorm by name": (lambda: nn.BatchNorm(num_features=8), "BatchNorm.init(channels=8)"),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), "GroupNorm.init(2, 8)"),
    "Conv1d": (lambda: nn.Conv1d(3, 8, 3), f"Conv1d.init({KEY}, 3, 8, 3)"),
    "Conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), f"Conv2d.init({KEY}, 3, 8, 3, padding=1)"),
    "Conv2d of a window": (lambda: nn.Conv2d(3, 8, (3, 5)), f"Conv2d.init({KEY}, 3, 8, (3, 5))"),
    "Conv3d": (lambda: nn.Conv3d(3, 8, kernel_size=3), f"Conv3d.init({KEY}, 3, 8, taps=3)"),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 8, 3), f"ConvTranspose1d.init({KEY}, 3, 8, 3)"),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 8, 3), f"ConvTranspose2d.init({KEY}, 3, 8, 3)"),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(3, 8, 3), f"ConvTranspose3d.init({KEY}, 3, 8, 3)"),
    "GRUCell": (lambda: nn.GRUCell(8, 16), f"GRUCell.init({KEY}, 8, 16)"),
    "LSTMCell": (lambda: nn.LSTMCell(8, 16), f"LSTMCell.init({KEY}, 8, 16)"),
    "RNNCell": (lambda: nn.RNNCell(8, hidden_size=16), f"RNNCell.init({KEY}, 8, hidden=16)"),
    "Cell": (lambda: nn.Cell(8, 16), f"Cell.init({KEY}, 8, 16)"),
    "Attention": (lambda: nn.Attention(64, 4), f"Attention.init({KEY}, width, heads=...)"),
    "Attention by name": (lambda: nn.Attention(64, num_heads=4), f"Attention.init({KEY}, 64, heads=4)"),
    "MLP": (lambda: nn.MLP(8, 32), f"MLP.init({KEY}, 8, 32)"),
    "SwiGLU": (lambda: nn.SwiGLU(8, 32), f"SwiGLU.init({KEY}, 8, 32)"),
    "MoE": (lambda: nn.MoE(8, 32), f"MoE.init({KEY}, width, hidden, experts=...)"),
    "GPT": (lambda: nn.GPT(1), f"GPT.init({KEY}, 1)"),
    "Block": (lambda: nn.Block(1), f"Block.init({KEY}, 1)"),
    "Recurrent": (lambda: nn.Recurrent(8), "pass what `Recurrent` holds"),
    "Sequential": (lambda: nn.Sequential(ts.ops.relu, ts.ops.relu), "Sequential.of(first, second)"),
    "Sequential of one": (lambda: nn.Sequential(ts.ops.relu), "Sequential.of(first, second)"),
    "Dropout": (lambda: nn.Dropout(p=0.1), "write `rate=0.1`"),
}  # fmt: skip
WITHOUT_TENSORS = {"Module", "Function"}


@pytest.mark.parametrize("name", WRONG)
def test_sizes_in_place_of_tensors_are_refused_with_what_to_write(name: str) -> None:
    call, fix = WRONG[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.code == "T0202"
    assert caught.value.span is not None
    assert caught.value.span.file == __file__
    assert caught.value.fix is not None
    assert fix in caught.value.fix.message


def test_every_module_is_tried() -> None:
    modules = {
        name for name in nn.__all__ if inspect.isclass(item := getattr(nn, name)) and issubclass(item, nn.Module)
    }
    assert modules == {name.split()[0] for name in WRONG} | WITHOUT_TENSORS


@pytest.mark.parametrize(
    "name", [name for name in WRONG if name.split()[0] not in ("Attention", "MoE", "GPT", "Block")]
)
def test_what_is_to_be_written_runs(name: str) -> None:
    fix = WRONG[name][1]
    if ".init(" not in fix or "inputs, outputs" in fix:
        pytest.skip("it has no sizes to take over")
    assert isinstance(eval(f"nn.{fix}", {"nn": nn, "ts": ts}), nn.Module)


class Scaled(nn.Module):
    """A module of a user, with tensors, modules, a number that is trained, and a static one."""

    weight: ts.Tensor
    inner: nn.Linear | None = None
    factor: float = nn.leaf(default=1.0)
    rank: int = 1


class Written(nn.Module):
    """A module whose constructor is its own."""

    weight: Any

    def __init__(self, size: int) -> None:
        object.__setattr__(self, "weight", ts.ones((size,)))


def test_a_module_of_a_user_takes_numbers_where_it_says_so() -> None:
    layer = nn.Linear.init(ts.random.key(0), 2, 3)
    assert Scaled(ts.ones((2,)), layer, 3.0, 4).rank == 4
    assert Scaled(np.ones(2), factor=2).factor == 2
    assert Written(3).weight.shape == (3,)
    assert layer.replace(bias=None).bias is None
    assert dataclasses.replace(layer, bias=ts.zeros((3,))).bias is not None
    for wrong in (lambda: Scaled(2.0), lambda: Scaled(ts.ones((2,)), 7), lambda: layer.replace(weight=3)):
        with pytest.raises(ArgumentError, match="as a tensor or a module, got"):
            wrong()
    with pytest.raises(ArgumentError, match="unexpected argument `weigth` of `Scaled`") as caught:
        Scaled(weigth=3)
    assert "write `weight=3`" in str(caught.value)


def test_signatures_stay_those_of_dataclasses() -> None:
    assert list(inspect.signature(nn.Linear).parameters) == ["weight", "bias"]
    assert list(inspect.signature(Scaled).parameters) == ["weight", "inner", "factor", "rank"]


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: nn.Linear.init(8, 16), "pass a key, made from a seed by `ts.random.key(0)`"),
        (lambda: nn.Linear.init(ts.random.key(0), in_features=8, out_features=16), "write `inputs=8`"),
        (lambda: nn.BatchNorm.init(8, affine=True), "write `weight=False` and `bias=False`"),
        (lambda: nn.Embedding.init(ts.random.key(0), 8, 4, padding_idx=0), "for a row that stays zero"),
    ],
)
def test_init_answers_parameters_of_torch(call: Callable[[], Any], fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert fix in str(caught.value)
