"""Losses of embeddings, likelihoods and alignments are those of PyTorch, with their gradients, in f64."""

# Functions and references are lambdas, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError, TracingError
from tests.nn.torch_layers import numbers, tolerance

torch: Any = pytest.importorskip("torch")
functional = torch.nn.functional
losses = ts.nn.losses

X, Y, Z = numbers(5, 7) * 3.0, numbers(5, 7, seed=1), numbers(5, 7, seed=2)
SIGNS = np.where(numbers(5, 7, seed=3) > 0, 1.0, -1.0)
SHARES = 1.0 / (1.0 + np.exp(-Y))
LABELS = np.array([0, 6, 4, 2, 3])
WEIGHTS = np.arange(1.0, 8.0) / 4.0
COUNTS = np.floor(np.abs(Z) * 4.0)
ROW = SIGNS[:, 0]

Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "weighted entropy": (
        lambda x, y, **more: losses.cross_entropy(x, y, weight=WEIGHTS, ignore_index=2, **more),
        lambda x, y, **more: functional.cross_entropy(x, y, torch.tensor(WEIGHTS), ignore_index=2, **more),
        (LABELS,),
    ),
    "weighted and smoothed entropy": (
        lambda x, y, **more: losses.cross_entropy(x, y, weight=WEIGHTS, label_smoothing=0.2, **more),
        lambda x, y, **more: functional.cross_entropy(x, y, torch.tensor(WEIGHTS), label_smoothing=0.2, **more),
        (LABELS,),
    ),
    "smoothed entropy without a class": (
        partial(losses.cross_entropy, label_smoothing=0.2, ignore_index=3),
        partial(functional.cross_entropy, label_smoothing=0.2, ignore_index=3),
        (LABELS,),
    ),
    "nll": (
        lambda x, y, **more: losses.nll_loss(x, y, weight=WEIGHTS, ignore_index=2, **more),
        lambda x, y, **more: functional.nll_loss(x, y, torch.tensor(WEIGHTS), ignore_index=2, **more),
        (LABELS,),
    ),
    "binary": (
        lambda x, y, **more: losses.binary_cross_entropy_with_logits(x, y, weight=SHARES, pos_weight=WEIGHTS, **more),
        lambda x, y, **more: functional.binary_cross_entropy_with_logits(
            x, y, torch.tensor(SHARES), pos_weight=torch.tensor(WEIGHTS), **more
        ),
        (SHARES,),
    ),
    "smooth l1": (
        partial(losses.smooth_l1_loss, beta=0.7), partial(functional.smooth_l1_loss, beta=0.7), (Y,)
    ),
    "smooth l1 of width 0": (
        partial(losses.smooth_l1_loss, beta=0), partial(functional.smooth_l1_loss, beta=0), (Y,)
    ),
    "cosine": (
        partial(losses.cosine_embedding_loss, margin=0.1),
        partial(functional.cosine_embedding_loss, margin=0.1),
        (Y, ROW),
    ),
    "ranking": (
        partial(losses.margin_ranking_loss, margin=0.5), partial(functional.margin_ranking_loss, margin=0.5), (Y, SIGNS)
    ),
    "hinge": (
        partial(losses.hinge_embedding_loss, margin=1.5),
        partial(functional.hinge_embedding_loss, margin=1.5),
        (SIGNS,),
    ),
    "triplet": (losses.triplet_margin_loss, functional.triplet_margin_loss, (Y, Z)),
    "swapped triplet": (
        partial(losses.triplet_margin_loss, p=1.0, swap=True, margin=2.0),
        partial(functional.triplet_margin_loss, p=1.0, swap=True, margin=2.0),
        (Y, Z),
    ),
    "soft margin": (losses.soft_margin_loss, functional.soft_margin_loss, (SIGNS,)),
    "multi margin": (
        lambda x, y, **more: losses.multi_margin_loss(x, y, p=2, margin=0.5, weight=WEIGHTS, **more),
        lambda x, y, **more: functional.multi_margin_loss(
            x, y, p=2, margin=0.5, weight=torch.tensor(WEIGHTS), **more
        ),
        (LABELS,),
    ),
    "poisson": (
        partial(losses.poisson_nll_loss, full=True), partial(functional.poisson_nll_loss, full=True), (COUNTS,)
    ),
    "poisson of means": (
        lambda x, y, **more: losses.poisson_nll_loss(ts.ops.square(x), y, log_input=False, **more),
        lambda x, y, **more: functional.poisson_nll_loss(x * x, y, log_input=False, **more),
        (COUNTS,),
    ),
    "gaussian": (
        partial(losses.gaussian_nll_loss, full=True),
        partial(functional.gaussian_nll_loss, full=True),
        (Y, SHARES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", CASES)
def test_a_loss_and_its_gradient_are_those_of_pytorch(name: str, reduction: str) -> None:
    own, theirs, others = CASES[name]

    def loss(x: Any, *others: Any) -> Any:
        made = own(x, *others, reduction=reduction)
        return made.sum(), made

    (_, value), gradient = ts.value_and_grad(loss, has_aux=True)(ts.asarray(X), *map(ts.asarray, others))
    x = torch.tensor(X, requires_grad=True)
    expected = theirs(x, *map(torch.tensor, others), reduction=reduction)
    expected.sum().backward()
    near = 40 * tolerance(X.size, 1.0)
    np.testing.assert_allclose(np.asarray(value), expected.detach().numpy(), rtol=near, atol=near)
    np.testing.assert_allclose(np.asarray(gradient), x.grad.numpy(), atol=near, rtol=near)


@pytest.mark.parametrize("name", ["weighted entropy", "cosine", "triplet", "poisson", "multi margin"])
def test_losses_are_jitted_with_dynamic_sizes_and_batched(name: str) -> None:
    own, _, others = CASES[name]
    function, plain = ts.jit(own, dynamic=True), ts.jit(own, backend="reference")
    for rows in (5, 3):
        arrays = [array[:rows] for array in (X, *others)]
        alone = plain(*arrays)
        np.testing.assert_allclose(np.asarray(function(*arrays)), np.asarray(alone), rtol=1e-12)
    assert function.cache_info().misses == 1
    stacked = [np.stack([array, array[::-1]]) for array in (X, *others)]
    rows = [np.asarray(plain(*(one[at] for one in stacked))) for at in range(2)]
    batched = ts.jit(ts.vmap(own), backend="reference")(*stacked)
    np.testing.assert_allclose(np.asarray(batched), np.stack(rows), rtol=1e-12)


def test_cosines_are_those_of_pytorch() -> None:
    x, y = np.concatenate([X, np.zeros((1, 7))]), np.concatenate([Y, Y[:1]])
    for axis in (0, -1):
        expected = functional.cosine_similarity(torch.tensor(x), torch.tensor(y), axis)
        found = losses.cosine_similarity(ts.asarray(x), ts.asarray(y), axis)
        np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-12, atol=1e-14)
    gradient = ts.grad(lambda x: losses.cosine_similarity(x, ts.asarray(y)).sum())(ts.asarray(x))
    assert np.isfinite(np.asarray(gradient)).all()


def test_focal_loss_is_its_formula() -> None:
    x, target = X[0], (SIGNS[0] > 0) * 1.0
    p = 1.0 / (1.0 + np.exp(-x))
    right = np.where(target == 1, p, 1 - p)
    expected = -np.where(target == 1, 0.25, 0.75) * (1 - right) ** 2 * np.log(right)
    found = losses.focal_loss(ts.asarray(x), ts.asarray(target), reduction="none")
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9)


# Alignments.


def draw_sequences(rng: np.random.Generator) -> tuple[Any, ...]:
    """Random frames and labels of few classes, so that labels repeat and some do not fit their frames."""
    frames, batch, classes, width = (int(rng.integers(low, high)) for low, high in ((1, 9), (1, 5), (2, 5), (1, 6)))
    blank = int(rng.integers(classes))
    others = [one for one in range(classes) if one != blank]
    logits = rng.normal(size=(frames, batch, classes))
    targets = rng.choice(others, (batch, width))
    return logits, targets, rng.integers(1, frames + 1, batch), rng.integers(0, width + 1, batch), blank


@pytest.mark.parametrize("seed", range(24))
def test_alignments_are_those_of_pytorch(seed: int) -> None:
    logits, targets, frames, counts, blank = draw_sequences(np.random.default_rng(seed))
    reduction = ("mean", "sum", "none")[seed % 3]

    @partial(ts.jit, backend="reference")
    def find(logits: Any, targets: Any, frames: Any, counts: Any) -> Any:
        def loss(x: Any, zero: bool) -> Any:
            made = losses.ctc_loss(
                ts.ops.log_softmax(x), targets, frames, counts, blank=blank, reduction=reduction, zero_infinity=zero
            )
            return made.sum(), made

        return loss(logits, False)[1], ts.value_and_grad(partial(loss, zero=True), has_aux=True)(logits)

    plain, ((_, value), gradient) = find(logits, targets, frames, counts)
    x = torch.tensor(logits, requires_grad=True)
    lengths = [torch.tensor(one) for one in (targets, frames, counts)]
    made = [
        functional.ctc_loss(x.log_softmax(-1), *lengths, blank=blank, reduction=reduction, zero_infinity=zero)
        for zero in (False, True)
    ]
    made[1].sum().backward()
    near = 40 * tolerance(logits.size, 10.0)
    for found, expected in zip((plain, value), made, strict=True):
        np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=near, atol=near)
    np.testing.assert_allclose(np.asarray(gradient), x.grad.numpy(), rtol=near, atol=near)


def test_random_sequences_have_repeated_labels_and_such_that_do_not_fit() -> None:
    has_repeats, fits = False, list[bool]()
    for seed in range(24):
        _, targets, frames, counts, _ = draw_sequences(np.random.default_rng(seed))
        for row, length, count in zip(targets, frames, counts, strict=True):
            repeats = int((row[1:count] == row[: max(count - 1, 0)]).sum())
            has_repeats |= repeats > 0
            fits.append(bool(count + repeats <= length))
    assert has_repeats
    assert 0 < sum(fits) < len(fits)


def test_no_frames_align_with_no_labels_alone() -> None:
    x = ts.zeros((3, 2, 4))
    align = ts.jit(partial(losses.ctc_loss, reduction="none"), backend="reference")
    found = align(x, ts.array([[1], [1]]), ts.array([0, 0]), ts.array([0, 1]))
    assert found.tolist() == [0.0, float("inf")]


def test_alignments_have_symbolic_sizes_on_the_cpu_and_are_batched() -> None:
    function = ts.jit(partial(losses.ctc_loss, reduction="none"), dynamic=True)
    for frames, batch in ((6, 3), (4, 2)):
        logits = ts.ops.log_softmax(ts.asarray(numbers(frames, batch, 4)))
        rest = [np.array([[1, 2], [3, 3], [2, 1]])[:batch], np.full(batch, frames), np.array([2, 2, 1])[:batch]]
        alone = ts.jit(partial(losses.ctc_loss, reduction="none"), backend="reference")(logits, *rest)
        np.testing.assert_allclose(np.asarray(function(np.asarray(logits), *rest)), np.asarray(alone), rtol=1e-12)
        both = [np.stack([one, one[::-1] if at else one]) for at, one in enumerate((np.asarray(logits), *rest))]
        found = ts.jit(ts.vmap(losses.ctc_loss), backend="reference")(*both)
        plain = ts.jit(losses.ctc_loss, backend="reference")
        wanted = [np.asarray(plain(*(one[at] for one in both))) for at in range(2)]
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12)
    assert function.cache_info().misses == 1


def test_narrow_floats_are_widened_and_wrong_calls_refused() -> None:
    narrow = ts.asarray(X.astype(np.float32)).cast(ts.bf16)
    assert losses.smooth_l1_loss(narrow, narrow).dtype is ts.f32
    with pytest.raises(ShapeError, match=r"of one shape, got \[5, 7\] and \[5\]"):
        losses.soft_margin_loss(ts.asarray(X), ts.asarray(ROW))
    with pytest.raises(TracingError, match=r"expected a tensor, got 1\.0"):
        losses.mse_loss(ts.asarray(X), 1.0)
    with pytest.raises(ArgumentError, match="no reduction 'max'"):
        losses.nll_loss(ts.asarray(X), ts.asarray(LABELS), reduction="max")
    with pytest.raises(ArgumentError, match="takes labels as integers, got f64"):
        losses.nll_loss(ts.asarray(X), ts.asarray(ROW))
    with pytest.raises(ArgumentError, match="`blank` as one of 4 classes, got 4"):
        losses.ctc_loss(ts.zeros((2, 1, 4)), ts.array([[1]]), ts.array([2]), ts.array([1]), blank=4)
    with pytest.raises(ShapeError, match=r"got tensors of \[3, 1, 1, 1\] dims"):
        losses.ctc_loss(ts.zeros((2, 1, 4)), ts.array([1]), ts.array([2]), ts.array([1]))
    with pytest.raises(ArgumentError, match="`margin` above 0"):
        losses.triplet_margin_loss(ts.asarray(X), ts.asarray(X), ts.asarray(X), margin=0)


def test_arguments_of_other_libraries_are_answered() -> None:
    x: Any = ts.ones((2, 3))
    ops: Any = ts.ops
    for call, words in (
        (lambda: losses.cosine_similarity(x, x, dim=1), "write `axis=1`"),
        (lambda: ops.normalize(x, p=2), "write `order=2`"),
        (lambda: ops.diag(x, diagonal=1), "write `offset=1`"),
        (lambda: ts.random.poisson(ts.random.key(0), (2,), lam=3), "write `rate=3`"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert words in str(caught.value)
