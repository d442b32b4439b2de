"""Functions that read images at any position, or mix neighbours, against PyTorch's in f64, with their gradients."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.functions.cases import Case, check_case

torch: Any = pytest.importorskip("torch")
functional = torch.nn.functional
ops = ts.ops
THEIR_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def images(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 4, 5, 6))]


def with_grid(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 2, 4, 5)), rng.uniform(-1.4, 1.4, (size, 3, 2, 2))]


def theirs(function: Any) -> Any:
    return lambda *arrays: function(*map(torch.tensor, arrays)).numpy()


CASES = [
    Case("grid_sample", ops.grid_sample, with_grid,
         theirs(partial(functional.grid_sample, align_corners=False)), (0, 1)),
    Case("affine_grid", lambda t: ops.affine_grid(t, (3, 4)), lambda rng, n: [rng.normal(size=(n, 2, 3))],
         theirs(lambda t: functional.affine_grid(t, (len(t), 1, 3, 4), align_corners=False))),
    Case("local_response_norm", lambda x: ops.local_response_norm(x, 3, 0.5, 0.7, 2.0), images,
         theirs(lambda x: functional.local_response_norm(x, 3, 0.5, 0.7, 2.0))),
    Case("channel_shuffle", lambda x: ops.channel_shuffle(x, 2), images,
         theirs(lambda x: functional.channel_shuffle(x, 2))),
    Case("lp_pool", lambda x: ops.lp_pool(x, 2, (2, 3), stride=(1, 2)), images,
         theirs(lambda x: functional.lp_pool2d(x, 2, (2, 3), (1, 2))), narrow=False),
    Case("normalize", lambda x: ops.normalize(x, 1), images, theirs(functional.normalize)),
    Case("bilinear", ops.bilinear,
         lambda rng, n: [rng.normal(size=(n, 3)), rng.normal(size=(n, 4)), rng.normal(size=(5, 3, 4)),
                         rng.normal(size=5)],
         theirs(functional.bilinear), (0, 1, 2, 3), batched=False),
    Case("area", lambda x: ops.interpolate(x, (7, 4), "area"), images,
         theirs(lambda x: functional.interpolate(x, (7, 4), mode="area"))),
    Case("nearest-exact", lambda x: ops.interpolate(x, (7, 4), "nearest-exact"), images,
         theirs(lambda x: functional.interpolate(x, (7, 4), mode="nearest-exact"))),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_function_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


def sampled(x: Any, grid: Any, mode: str, padding: str, aligned: bool) -> tuple[Any, ...]:
    """The result and both gradients of its product with fixed numbers, ours."""

    def loss(x: Any, grid: Any) -> Any:
        made = ops.grid_sample(x, grid, mode, padding, align_corners=aligned)
        return (made * ops.cos(ops.iota(made.shape, 2).cast(ts.f64))).sum(), made

    (_, made), gradients = ts.jit(ts.value_and_grad(loss, (0, 1), has_aux=True), backend="reference")(x, grid)
    return tuple(map(np.asarray, (made, *gradients)))


def sampled_by_torch(x: Any, grid: Any, mode: str, padding: str, aligned: bool) -> tuple[Any, ...]:
    images, places = (torch.tensor(one, requires_grad=True) for one in (x, grid))
    mode = THEIR_MODES[mode]
    made = functional.grid_sample(images, places, mode=mode, padding_mode=padding, align_corners=aligned)
    weights = torch.arange(made.shape[2]).double().cos().reshape(-1, *[1] * (made.ndim - 3))
    (made * weights).sum().backward()
    return tuple(one.detach().numpy() for one in (made, images.grad, places.grad))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", THEIR_MODES)
def test_grids_are_read_as_pytorch_does(mode: str, padding: str) -> None:
    rng = np.random.default_rng(2)
    x, grid = rng.normal(size=(2, 3, 4, 5)), rng.uniform(-2.5, 2.5, (2, 6, 7, 2))
    for aligned in (False, True):
        for found, expected in zip(
            sampled(x, grid, mode, padding, aligned), sampled_by_torch(x, grid, mode, padding, aligned), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes_and_rows_are_read_too(padding: str) -> None:
    rng = np.random.default_rng(3)
    x, grid = rng.normal(size=(2, 3, 3, 4, 5)), rng.uniform(-1.5, 1.5, (2, 2, 3, 2, 3))
    for mode in ("linear", "nearest"):
        for found, expected in zip(
            sampled(x, grid, mode, padding, False), sampled_by_torch(x, grid, mode, padding, False), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    row = ops.grid_sample(ts.asarray(x[:, :, 0, 0]), ts.asarray(grid[:, :, 0, 0, :1]), padding=padding)
    wide = ops.grid_sample(
        ts.asarray(x[:, :, :1, 0]), ts.asarray(np.stack([grid[:, :, 0, 0, :1], 0 * grid[:, :, 0, 0, :1]], -1)),
        padding=padding,
    )  # fmt: skip
    np.testing.assert_allclose(np.asarray(row), np.asarray(wide)[..., 0], rtol=1e-12)


def test_pixels_that_do_not_count_may_be_infinite() -> None:
    x = np.ones((1, 1, 1, 3))
    x[..., 2] = np.inf
    grid = np.array([[[[-1.0, 0.0], [5.0, 0.0]]]])
    assert ops.grid_sample(ts.array(x), ts.array(grid), align_corners=True).reshape(2).tolist() == [1.0, 0.0]


def test_no_positions_and_one_pixel() -> None:
    assert ops.grid_sample(ts.ones((1, 2, 3, 3)), ts.zeros((1, 0, 4, 2))).shape == (1, 2, 0, 4)
    for aligned in (False, True):
        found = ops.grid_sample(
            ts.ones((1, 1, 1, 1)), ts.zeros((1, 1, 1, 2)), padding="reflection", align_corners=aligned
        )
        assert found.reshape(1).tolist() == [1.0]


def test_pools_take_any_number_of_spatial_axes() -> None:
    rng = np.random.default_rng(4)
    for axes in (1, 2, 3):
        x = rng.normal(size=(2, 3, *(6, 5, 4)[:axes]))
        for name in ("max", "avg"):
            expected = getattr(functional, f"{name}_pool{axes}d")(torch.tensor(x), 2).numpy()
            np.testing.assert_allclose(np.asarray(getattr(ops, f"{name}_pool")(ts.asarray(x), 2)), expected)
            expected = getattr(functional, f"adaptive_{name}_pool{axes}d")(torch.tensor(x), 2).numpy()
            np.testing.assert_allclose(np.asarray(getattr(ops, f"adaptive_{name}_pool")(ts.asarray(x), 2)), expected)
        sizes = (3, 7, 5)[:axes]
        for own, other in (("linear", ("linear", "bilinear", "trilinear")[axes - 1]), ("nearest", "nearest")):
            expected = functional.interpolate(torch.tensor(x), sizes, mode=other).numpy()
            np.testing.assert_allclose(np.asarray(ops.interpolate(ts.asarray(x), sizes, own)), expected, atol=1e-12)


def test_wrong_calls_are_refused_with_our_words() -> None:
    x, grid = ts.ones((1, 1, 3, 3)), ts.zeros((1, 2, 2, 2))
    with pytest.raises(ArgumentError, match="no mode 'bilinear'") as caught:
        ops.grid_sample(x, grid, "bilinear")
    assert "write 'linear'" in str(caught.value)
    with pytest.raises(ArgumentError, match="no padding 'edge'"):
        ops.grid_sample(x, grid, padding="edge")
    with pytest.raises(ShapeError, match="positions"):
        ops.grid_sample(x, grid[..., :1])
    with pytest.raises(ArgumentError, match="no mode 'bicubic'") as caught:
        ops.interpolate(x, 4, "bicubic")
    assert "write 'cubic'" in str(caught.value)
    with pytest.raises(ArgumentError, match="'replicate'") as caught:
        ops.pad_with(x, 1, "replicate")
    assert 'write "edge"' in str(caught.value)
    with pytest.raises(ShapeError, match="cannot cut 3 channels into 2 groups"):
        ops.channel_shuffle(ts.ones((1, 3, 2)), 2)
    with pytest.raises(ShapeError, match="for 1 spatial sizes"):
        ops.affine_grid(ts.ones((1, 2, 3)), (4,))
