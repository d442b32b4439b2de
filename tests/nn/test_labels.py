"""Labels beyond the classes: an error with numbers where their values are known, and else they do not count."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import PositionError
from tessera.frontend.pytree import flatten

LOSSES: dict[str, Callable[..., Any]] = {
    "ops.cross_entropy": ts.ops.cross_entropy,
    "cross_entropy": nn.cross_entropy,
    "smoothed": partial(nn.cross_entropy, label_smoothing=0.1),
    "weighed": partial(nn.cross_entropy, weight=np.arange(1.0, 6.0, dtype=np.float32)),
    "nll_loss": nn.nll_loss,
    "weighed nll_loss": partial(nn.nll_loss, weight=np.arange(1.0, 6.0, dtype=np.float32)),
}
LOGITS = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
RIGHT = np.array([[0, 4, -1], [2, -1, -1]])
WRONG = np.array([[0, 4, -1], [2, 7, 5]])


@pytest.mark.parametrize("name", LOSSES)
def test_a_label_beyond_the_classes_is_an_error_with_its_value(name: str) -> None:
    for labels in (WRONG, ts.array(WRONG), ts.array(WRONG).cast(ts.u8)):
        with pytest.raises(PositionError) as caught:
            LOSSES[name](LOGITS, labels)
        is_signed = labels.dtype != ts.u8
        found = "the label 7 at [1, 1]" if is_signed else "the label 255 at [0, 2]"
        assert found in caught.value.message
        assert "there are 5 classes" in caught.value.message
        assert f"{2 if is_signed else 3} of 6 labels" in caught.value.notes[0]
        assert caught.value.span is not None
        assert caught.value.span.file == __file__


@pytest.mark.parametrize("name", LOSSES)
def test_where_values_are_not_known_such_a_label_counts_as_little_as_a_negative_one(name: str) -> None:
    for function in (LOSSES[name], ts.value_and_grad(LOSSES[name])):
        compiled = ts.jit(function)
        found, expected = (flatten(compiled(LOGITS, labels))[0] for labels in (WRONG, RIGHT))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    symbolic = ts.jit(LOSSES[name], dynamic=True)
    np.testing.assert_array_equal(np.asarray(symbolic(LOGITS, WRONG)), np.asarray(symbolic(LOGITS, RIGHT)))


@pytest.mark.parametrize("name", LOSSES)
def test_a_plan_of_eager_calls_keeps_looking_at_labels(name: str) -> None:
    for _ in range(4):
        LOSSES[name](LOGITS, RIGHT)
    with pytest.raises(PositionError):
        LOSSES[name](LOGITS, WRONG)


def test_labels_that_are_ignored_may_be_beyond_the_classes() -> None:
    for loss in (nn.cross_entropy, nn.nll_loss):
        ignored = np.where(WRONG >= 5, 255, WRONG)
        found = loss(LOGITS, ignored, ignore_index=255)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(loss(LOGITS, RIGHT, ignore_index=255)))
        with pytest.raises(PositionError, match="the label 7"):
            loss(LOGITS, WRONG, ignore_index=5)


def test_no_labels_and_multi_margin_loss() -> None:
    assert nn.cross_entropy(np.ones((0, 5), np.float32), np.zeros((0,), np.int64)).item() == 0.0
    with pytest.raises(PositionError, match="`multi_margin_loss` got the label 5 at"):
        nn.multi_margin_loss(LOGITS, np.where(WRONG < 0, 0, np.minimum(WRONG, 5)))


def test_constants_of_a_program_are_known() -> None:
    with pytest.raises(PositionError, match="the label 7"):
        ts.jit(lambda x: nn.cross_entropy(x, WRONG))(LOGITS)
