"""Each layer gives the results and gradients of PyTorch's layer of that name, with its weights, in f64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.nn.torch_layers import assert_close, compare, numbers, widen

torch: Any = pytest.importorskip("torch")

KEY = ts.random.key(0)


def test_linear() -> None:
    compare(nn.Linear.init(KEY, 5, 3), torch.nn.Linear(5, 3), numbers(2, 4, 5))


def test_embedding_and_its_transpose() -> None:
    theirs = torch.nn.Embedding(7, 4).double()
    layer = nn.load_state_dict(widen(nn.Embedding.init(KEY, 7, 4)), dict(theirs.state_dict()))
    ids = np.array([[1, 2, 2], [6, 0, 2]])

    def loss(layer: Any) -> Any:
        return (layer.attend(layer(ids)) ** 2.0).sum()

    value, gradient = ts.value_and_grad(loss)(layer)
    expected = ((theirs(torch.tensor(ids)) @ theirs.weight.T) ** 2).sum()
    expected.backward()
    assert theirs.weight.grad is not None
    assert_close("loss", np.asarray(value), expected, 1000)
    assert_close("weight", np.asarray(gradient.weight), theirs.weight.grad, 1000)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2)], ids=["plain", "stride 2, 2 groups"]
)
def test_conv2d(stride: int, padding: int, dilation: int, groups: int) -> None:
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    compare(nn.Conv2d.init(KEY, 4, 6, 3, **options), torch.nn.Conv2d(4, 6, 3, **options), numbers(2, 4, 7, 6))


def test_conv1d() -> None:
    layer = nn.Conv1d.init(KEY, 4, 6, 3, padding=2, dilation=2)
    compare(layer, torch.nn.Conv1d(4, 6, 3, padding=2, dilation=2), numbers(2, 4, 9))


def test_conv3d() -> None:
    options: dict[str, Any] = {"stride": (1, 2, 1), "padding": 1, "groups": 2}
    compare(nn.Conv3d.init(KEY, 4, 6, 3, **options), torch.nn.Conv3d(4, 6, 3, **options), numbers(2, 4, 3, 5, 4))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolutions(dims: int) -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    own, their = (getattr(place, f"ConvTranspose{dims}d") for place in (nn, torch.nn))
    compare(own.init(KEY, 4, 6, 3, **options), their(4, 6, 3, **options), numbers(2, 4, *(4, 3, 5)[:dims]))
    plain = own.init(KEY, 4, 6, 2, dilation=2, bias=False)
    compare(plain, their(4, 6, 2, dilation=2, bias=False), numbers(1, 4, *(3, 4, 2)[:dims]))


@pytest.mark.parametrize(
    "kind", ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]
)
def test_channels_last_is_the_same_layer_on_images_in_another_order(kind: str) -> None:
    dims = int(kind[-2])
    made = getattr(nn, kind).init(KEY, 4, 6, 3, stride=2, padding=1)
    last = dataclasses.replace(made, channels_last=True)
    x = numbers(2, 4, *(5, 6, 4)[:dims]).astype(np.float32)
    found, expected = last(np.moveaxis(x, 1, -1)), made(x)
    np.testing.assert_array_equal(np.asarray(found), np.moveaxis(np.asarray(expected), 1, -1))
    asked = getattr(nn, kind).init(KEY, 4, 6, 3, stride=2, padding=1, channels_last=True)
    np.testing.assert_array_equal(np.asarray(asked(np.moveaxis(x, 1, -1))), np.asarray(found))


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm", "GroupNorm"])
def test_norms(kind: str) -> None:
    x = numbers(3, 8, 5) if kind == "GroupNorm" else numbers(3, 2, 8)
    made = {
        "LayerNorm": (nn.LayerNorm.init(8), torch.nn.LayerNorm(8)),
        "RMSNorm": (nn.RMSNorm.init(8), torch.nn.RMSNorm(8, eps=1e-5)),
        "GroupNorm": (nn.GroupNorm.init(2, 8), torch.nn.GroupNorm(2, 8)),
    }
    layer, theirs = made[kind]
    with torch.no_grad():
        for number, parameter in enumerate(theirs.parameters()):
            parameter.copy_(torch.tensor(numbers(8, seed=number + 1)))
    compare(layer, theirs, x)


def train(layer: Any, x: Any) -> Any:
    return layer.train(x)[0]


def test_batch_norm_trains_by_the_batch_and_runs_by_its_statistics() -> None:
    theirs, layer = torch.nn.BatchNorm2d(3), nn.BatchNorm.init(3)
    x = numbers(4, 3, 2, 5) * 2.0 + 1.0
    names = {"mean": "running_mean", "var": "running_var"}
    layer = compare(layer, theirs, x, names=names, own_call=train)
    # PyTorch's layer has taken one step of its statistics in `compare`.
    _, layer = ts.jit(nn.BatchNorm.train)(layer, ts.asarray(x))
    for name, found, wanted in (("mean", layer.mean, theirs.running_mean), ("var", layer.var, theirs.running_var)):
        assert_close(name, np.asarray(found), wanted, x.size)
    theirs.eval()
    found = np.asarray(ts.jit(nn.BatchNorm.__call__)(layer, ts.asarray(x)))
    assert_close("y", found, theirs(torch.tensor(x)), x.size)


def test_dropout_keeps_the_mean_and_needs_a_key() -> None:
    layer, x = nn.Dropout(0.25), ts.ones((100, 100))
    dropped = np.asarray(layer(x, key=KEY))
    np.testing.assert_array_equal(dropped, np.asarray(layer(x, key=KEY)))
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    # Four standard deviations of the share of 10,000 draws.
    assert abs((dropped == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 10_000)
    assert layer(x) is x


class Noise(nn.Module):
    """A module of somebody's own that takes a key."""

    scale: float

    def __call__(self, x: Any, key: Any = None) -> Any:
        return x if key is None else x + key.sum().astype(ts.f32) * 0.0 + self.scale


def test_every_module_of_a_sequence_whose_call_has_a_key_gets_one() -> None:
    inner = nn.with_policy(Noise(2.0), ts.Policy())
    model = nn.Sequential.of(Noise(1.0), ts.ops.abs, inner, nn.Sequential.of(Noise(4.0)))
    assert model(ts.zeros((2,))).tolist() == [0.0, 0.0]
    assert model(ts.zeros((2,)), key=KEY).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_cells_over_a_sequence(kind: str) -> None:
    theirs = getattr(torch.nn, kind)(3, 4, batch_first=True)
    cell = {"RNN": nn.RNNCell, "LSTM": nn.LSTMCell, "GRU": nn.GRUCell}[kind]
    names = {
        "cell.input_weight": "weight_ih_l0",
        "cell.state_weight": "weight_hh_l0",
        "cell.input_bias": "bias_ih_l0",
        "cell.state_bias": "bias_hh_l0",
    }

    def run(layer: Any, x: Any) -> Any:
        return layer(x)[0]

    compare(nn.Recurrent(cell.init(KEY, 3, 4)), theirs, numbers(2, 6, 3), names=names, own_call=run, their_call=run)


def test_a_wrong_call_is_refused_with_the_sizes_that_disagree() -> None:
    layer = nn.Linear.init(KEY, 5, 3)
    with pytest.raises(ShapeError, match=r"`Linear` has 5 inputs, and `x.shape\[-1\] = 4`"):
        layer(ts.ones((2, 4)))
    with pytest.raises(ArgumentError, match=r"7 in 2 groups"):
        nn.GroupNorm.init(2, 7)
    with pytest.raises(ArgumentError, match="integer from 1, got 0"):
        nn.Linear.init(KEY, 0, 3)
    with pytest.raises(ArgumentError, match=r"`rate` from 0 up to but not 1"):
        nn.Dropout(1.0)
    wrong: list[tuple[Any, str]] = [([], r"along 2 axes, got \[\]"), ((3, 0), "got 0"), (3.0, r"got 3\.0")]
    for taps, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            nn.Conv2d.init(KEY, 1, 2, taps)
