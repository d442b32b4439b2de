"""A GPT follows the same model in PyTorch, in f64 to rounding and in f32 as closely as PyTorch's own f32."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.nn.generate import program
from tests.nn import torch_gpt
from tests.nn.torch_layers import as_arrays, tolerance, widen

torch: Any = pytest.importorskip("torch")

SIZES: dict[str, Any] = {"vocabulary": 31, "length": 16, "width": 16, "depth": 2, "heads": 4}
GPT2 = nn.GPTConfig(**SIZES)
LLAMA = nn.GPTConfig.llama(**{**SIZES, "depth": 1}, kv_heads=2)
MIXTURE = nn.GPTConfig.llama(**{**SIZES, "depth": 1}, kv_heads=2, mlp="moe", hidden=8, experts=4, tied=True)
SLOW = pytest.mark.slow
TOKENS = np.random.default_rng(0).integers(0, 31, (3, 12))
TARGETS = np.roll(TOKENS, -1, axis=1)


def make(config: nn.GPTConfig) -> nn.GPT:
    """A model with weights that are large enough for all of its parts to count."""
    model = nn.GPT.init(ts.random.key(1), config)
    state = nn.state_dict(model)
    rng = np.random.default_rng(2)
    drawn = {name: rng.standard_normal(tuple(one.shape), np.float32) * 0.3 for name, one in state.items()}
    return nn.load_state_dict(model, drawn)


def loss(model: nn.GPT, tokens: Any, targets: Any) -> Any:
    return model.loss(tokens, targets)


@pytest.mark.parametrize(
    "config",
    [pytest.param(GPT2, marks=SLOW), pytest.param(LLAMA, marks=SLOW), MIXTURE],
    ids=["gpt-2", "llama", "experts"],
)
def test_loss_and_gradients_are_those_of_pytorch(config: nn.GPTConfig) -> None:
    model = make(config)
    tensors = as_arrays(nn.state_dict(model))
    expected, wanted = torch_gpt.gradients(tensors, TOKENS, TARGETS, config, torch.float64)
    value, found = ts.value_and_grad(loss)(widen(model), TOKENS, TARGETS)
    np.testing.assert_allclose(float(value), expected, rtol=tolerance(1000, 1.0))
    for name, one in nn.state_dict(found).items():
        scale = float(np.max(np.abs(wanted[name])))
        np.testing.assert_allclose(np.asarray(one), wanted[name], rtol=0, atol=tolerance(4000, scale), err_msg=name)


@cache
def in_f32() -> tuple[Any, Any]:
    """The loss and gradients of the model like GPT-2, all in one program."""
    return ts.jit(ts.value_and_grad(loss))(make(GPT2), TOKENS, TARGETS)


def test_f32_is_as_near_to_f64_as_pytorch() -> None:
    model = make(GPT2)
    tensors = as_arrays(nn.state_dict(model))
    _, exact = torch_gpt.gradients(tensors, TOKENS, TARGETS, GPT2, torch.float64)
    _, theirs = torch_gpt.gradients(tensors, TOKENS, TARGETS, GPT2, torch.float32)
    found = nn.state_dict(in_f32()[1])

    def distance(given: Any) -> float:
        return float(np.sqrt(sum(np.sum((np.asarray(given[name]) - one) ** 2.0) for name, one in exact.items())))

    assert distance(found) <= 2 * distance(theirs)


@pytest.mark.parametrize("config", [pytest.param(GPT2, marks=SLOW), LLAMA], ids=["gpt-2", "llama"])
def test_a_cache_gives_the_tokens_of_the_whole_sequence_and_is_compiled_once(config: nn.GPTConfig) -> None:
    model = make(config)
    tensors = {name: torch.tensor(one) for name, one in as_arrays(nn.state_dict(model)).items()}
    before = program(6, 0, 1.0, config.length, is_drawn=False).cache_info().misses
    for prompt in (TOKENS[:2, :3], TOKENS[:1, :5]):
        made = np.asarray(nn.generate(model, prompt, 6))
        whole = np.concatenate([prompt, made], axis=1)
        scores, _ = torch_gpt.forward(tensors, torch.tensor(whole[:, :-1]), config)
        np.testing.assert_array_equal(scores.argmax(-1).numpy()[:, prompt.shape[1] - 1 :], made)
    assert program(6, 0, 1.0, config.length, is_drawn=False).cache_info().misses == before + 1


@SLOW
def test_drawn_tokens_follow_the_key() -> None:
    model, prompt = make(GPT2), TOKENS[:2, :3]
    first, again, other = (
        np.asarray(nn.generate(model, prompt, 6, key=ts.random.key(seed), top_k=5, top_p=0.9)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_tokens_are_drawn_with_their_probabilities() -> None:
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    cases: list[tuple[dict[str, Any], int]] = [({"top_k": 3}, 3), ({"top_p": 0.75}, 2)]
    for options, count in cases:
        drawn = np.asarray(nn.draw_token(ts.asarray(np.tile(scores, (20_000, 1))), ts.random.key(3), **options))
        share, kept = np.bincount(drawn, minlength=4) / drawn.size, np.exp(scores) * (np.arange(4) < count)
        kept = kept / kept.sum()
        # Four standard deviations of each share.
        assert (np.abs(share - kept) <= 4 * np.sqrt(kept * (1 - kept) / drawn.size)).all()


@SLOW
def test_rematerialization_changes_no_bit() -> None:
    again = make(GPT2).replace(config=nn.GPTConfig(**SIZES, remat=True))
    plain, rematerialized = in_f32(), ts.value_and_grad(loss)(again, TOKENS, TARGETS)
    np.testing.assert_array_equal(np.asarray(plain[0]), np.asarray(rematerialized[0]))
    for name, one in nn.state_dict(plain[1]).items():
        np.testing.assert_array_equal(np.asarray(one), np.asarray(nn.state_dict(rematerialized[1])[name]), name)


def test_checkpoints_of_gpt2_load_by_their_names() -> None:
    model = make(GPT2)
    theirs = {nn.translate(name, nn.GPT2_NAMES): one for name, one in nn.state_dict(model).items()}
    assert "h.1.attn.c_attn.weight" in theirs
    theirs["h.1.attn.bias"] = ts.ones((1, 1, 16, 16))  # a mask, which checkpoints have beside the parameters
    blank = nn.GPT.init(ts.random.key(5), GPT2)
    with pytest.raises(ArgumentError, match="misses 0 tensors of the module, and has 1"):
        nn.load_state_dict(blank, theirs, names=nn.GPT2_NAMES)
    loaded = nn.load_state_dict(blank, theirs, names=nn.GPT2_NAMES, is_strict=False)
    for name, one in nn.state_dict(loaded).items():
        np.testing.assert_array_equal(np.asarray(one), np.asarray(nn.state_dict(model)[name]), name)


def test_wrong_calls_are_refused() -> None:
    model = make(GPT2)
    with pytest.raises(ShapeError, match=r"a length of at most 16, got \[1, 17\]"):
        model(np.zeros((1, 17), np.int64))
    with pytest.raises(ArgumentError, match="19 positions, and has 16"):
        nn.generate(model, TOKENS[:1], 8)
    with pytest.raises(ArgumentError, match="no norm 'batch'"):
        nn.GPTConfig(norm="batch")
    with pytest.raises(ArgumentError, match="a width of 10 for 4 heads"):
        nn.GPTConfig(width=10, heads=4)
