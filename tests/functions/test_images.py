"""Functions of networks on images, against PyTorch's in f64 where it is here, and against NumPy."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.functions.cases import Case, check_case

torch = pytest.importorskip("torch")
functional = torch.nn.functional
ops = ts.ops


def images(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 4, 5, 6))]


def statistics(rng: np.random.Generator, size: int) -> list[Any]:
    return [*images(rng, size), rng.normal(size=4), rng.uniform(0.5, 2, 4), rng.normal(size=4), rng.normal(size=4)]


def theirs(function: Any) -> Any:
    return lambda *arrays: function(*map(torch.tensor, arrays)).numpy()


def resized(mode: str, aligned: bool | None = None) -> Any:
    return theirs(lambda x: functional.interpolate(x, (7, 4), mode=mode, align_corners=aligned))


MODES: tuple[Any, ...] = ("reflect", "symmetric", "edge", "wrap")
CASES = [
    Case("nearest", lambda x: ops.interpolate(x, (7, 4)), images, resized("nearest")),
    Case("linear", lambda x: ops.interpolate(x, (7, 4), "linear"), images, resized("bilinear")),
    Case("linear, aligned", lambda x: ops.interpolate(x, (7, 4), "linear", align_corners=True), images,
         resized("bilinear", True)),
    Case("cubic", lambda x: ops.interpolate(x, (7, 4), "cubic"), images, resized("bicubic")),
    Case("pixel_shuffle", lambda x: ops.pixel_shuffle(x, 2), images, theirs(lambda x: functional.pixel_shuffle(x, 2))),
    Case("pixel_unshuffle", lambda x: ops.pixel_unshuffle(x[..., :4, :], 2), images,
         theirs(lambda x: functional.pixel_unshuffle(x[..., :4, :], 2)), dynamic=False),
    Case("unfold", lambda x: ops.unfold(x, (2, 3), stride=(1, 2), padding=1), images,
         theirs(lambda x: functional.unfold(x, (2, 3), stride=(1, 2), padding=1)), dynamic=False, narrow=False),
    Case("sum_windows", lambda x: ops.sum_windows(x, (4, 7), (2, 3), stride=(1, 2)),
         lambda rng, n: [rng.normal(size=(n, 18, 9))],
         theirs(lambda x: functional.fold(x, (4, 7), (2, 3), stride=(1, 2))), dynamic=False, narrow=False),
    Case("adaptive_avg_pool", lambda x: ops.adaptive_avg_pool(x, (3, 4)), images,
         theirs(lambda x: functional.adaptive_avg_pool2d(x, (3, 4)))),
    Case("adaptive_max_pool", lambda x: ops.adaptive_max_pool(x, (3, 4)), images,
         theirs(lambda x: functional.adaptive_max_pool2d(x, (3, 4)))),
    Case("batch_norm", ops.batch_norm, statistics, theirs(functional.batch_norm), (0, 1, 2, 3, 4), batched=False,
         narrow=False),
    Case("group_norm", lambda x: ops.group_norm(x, 2), images, theirs(lambda x: functional.group_norm(x, 2)),
         narrow=False),
    Case("instance_norm", ops.instance_norm, images, theirs(functional.instance_norm), dynamic=False, narrow=False),
    Case("embedding_bag", lambda t, i: ops.embedding_bag(t, i, "max"),
         lambda rng, n: [rng.normal(size=(n, 3)), rng.integers(0, 4, (2, 5))],
         lambda t, i: t[i].max(1), narrow=False, batched=False),
    *(
        Case(f"pad_with {mode}", lambda x, m=mode: ops.pad_with(x, [(2, 1), (0, 3)], m),
             lambda rng, n: [rng.normal(size=(n, 4))],
             lambda x, m=mode: np.pad(x, [(2, 1), (0, 3)], mode=m), narrow=False)
        for mode in MODES
    ),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_function_of_images_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


def test_wrong_arguments_are_refused() -> None:
    x = ts.ones((1, 4, 5, 6))
    with pytest.raises(ArgumentError, match="`interpolate` has no mode 'lanczos'"):
        ops.interpolate(x, 3, "lanczos")
    with pytest.raises(ShapeError, match=r"`interpolate` takes images \[batch, channels, ...\], got \[2, 2\]"):
        ops.interpolate(ts.ones((2, 2)), 3)
    with pytest.raises(ShapeError, match="`group_norm` cannot cut 4 channels into 3 groups"):
        ops.group_norm(x, 3)
    with pytest.raises(ArgumentError, match="`unfold` takes `window` as 1 or 2 numbers, got 3"):
        ops.unfold(x, (1, 2, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("widths", [(0, 0), (0, 2), (2, 3), (3, 3), (4, 1), (9, 11)])
def test_padding_of_a_known_size_is_that_of_any(mode: Any, widths: tuple[int, int]) -> None:
    """Slices where each part is no longer than the axis, else a gather; along the first axis and the last."""
    x = np.arange(12.0).reshape(3, 4)
    for given in ((widths, (0, 0)), ((0, 0), widths)):
        np.testing.assert_array_equal(np.asarray(ops.pad_with(ts.array(x), given, mode)), np.pad(x, given, mode=mode))
