"""The check of drawn programs: what tensor cores round by their recipe passes, a wrong mask or a lost term fails."""

# Tensors of a library that is loaded by name have no types to give.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.drawn import roundings
from benchmarks.drawn.check import UNIT, Check
from benchmarks.drawn.models import unit, weights
from benchmarks.drawn.peers import Side
from benchmarks.drawn.program import Builder, Program
from benchmarks.drawn.spell_torch import dtype_of
from tessera.types.dtype import BY_NAME

BLOCK = 128
"""Keys of a block on tensor cores."""


def load_torch() -> Any:
    """PyTorch, which is loaded where it is used alone."""
    return importlib.import_module("torch")


def attention(dtype: str, q: tuple[int, ...], k: tuple[int, ...], *, causal: bool = False) -> Program:
    builder = Builder()
    names = [builder.argument(shape, dtype, unit) for shape in (q, k, k)]
    builder.do("attention", *names, causal=causal)
    return builder.program("attention", "attention", dtype)


def product(m: int, n: int, k: int) -> Program:
    builder = Builder()
    a = builder.argument((m, k), "f8e4m3", unit)
    b = builder.argument((k, n), "f8e4m3", weights(k))
    builder.do("matmul", a, b, dtype=BY_NAME["bf16"])
    return builder.program("gemm", "gemm", "f8e4m3")


def asked(program: Program) -> Check:
    """The check as on a device, without one, and by float64: as of sizes that take a reference too long."""
    found = Check(Side(program, "cpu", load_torch(), None))
    found.on_tensor_cores, found.alone = True, False
    return found


def attend(check: Check, seen: Callable[[Any], Any] | None = None) -> Any:
    """Attention as tensor cores compute it, in float64 but for the weights of values, which are rounded."""
    torch, program = load_torch(), check.program
    narrow = dtype_of(torch, program.dtype)
    q, k, v = (one.double() for one in check.side.tensors)
    group = q.shape[1] // k.shape[1]
    k, v = (one.repeat_interleave(group, 1) for one in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if program.steps[0].attributes["causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2]).logical_not()
        scores = scores.masked_fill(hidden, -math.inf)
    scores = scores if seen is None else seen(scores)
    top = torch.full((*q.shape[:3], 1), -math.inf, dtype=q.dtype)
    total, made = torch.zeros_like(top), torch.zeros_like(q)
    for start in range(0, k.shape[2], BLOCK):
        part = scores[..., start : start + BLOCK]
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        powers, kept = torch.exp(part - new), torch.exp(top - new)
        total = total * kept + powers.sum(-1, keepdim=True)
        made = made * kept + powers.to(narrow).double() @ v[:, :, start : start + BLOCK]
        top = new
    return (made / total).to(narrow)


SHAPES = [
    ("bf16", (2, 4, 60, 64), (2, 4, 128, 64), False),
    ("bf16", (1, 4, 300, 32), (1, 2, 300, 32), True),
    ("f16", (3, 2, 24, 128), (3, 2, 27, 128), False),
    ("f16", (1, 2, 256, 64), (1, 2, 256, 64), True),
    ("bf16", (2, 2, 4, 192), (2, 1, 2048, 192), False),
]


@pytest.mark.parametrize(("dtype", "q", "k", "causal"), SHAPES)
def test_weights_of_values_are_rounded_and_nothing_else_passes(
    dtype: str, q: tuple[int, ...], k: tuple[int, ...], causal: bool
) -> None:
    check = asked(attention(dtype, q, k, causal=causal))
    assert 0 < check.ours([attend(check)]) < 1
    assert check.how == "float64"

    def drop(scores: Any) -> Any:
        dropped = scores.clone()
        dropped[..., k[2] // 2] = -math.inf
        return dropped

    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([attend(check, drop)])


def test_a_mask_that_is_off_by_one_fails() -> None:
    check = asked(attention("bf16", (1, 2, 300, 64), (1, 2, 300, 64), causal=True))
    torch = load_torch()

    def hide(scores: Any) -> Any:
        return scores.masked_fill(torch.ones(300, 300, dtype=torch.bool).tril(-1).logical_not(), -math.inf)

    given = attend(check, hide)
    given[:, :, 0] = attend(check)[:, :, 0]
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([given])


def test_nothing_is_rounded_inside_where_threads_compute() -> None:
    """A head that tensor cores do not take, and a CPU: weights stay in f32."""
    for head, on_tensor_cores in ((42, True), (64, False)):
        check = asked(attention("bf16", (1, 2, 50, head), (1, 2, 50, head)))
        check.on_tensor_cores = on_tensor_cores
        with pytest.raises(ArithmeticError, match="wrong"):
            check.ours([attend(check)])


def multiply(check: Check, length: int) -> Any:
    """8-bit products as tensor cores add them: cut behind the largest of an instruction, and f32 after 128."""
    torch = load_torch()
    a, b = (one.double() for one in check.side.tensors)
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32)
    for group in range(0, length, roundings.PROMOTED):
        inner = torch.zeros_like(total, dtype=torch.float64)
        for start in range(group, min(group + roundings.PROMOTED, length), roundings.INSTRUCTION):
            end = min(start + roundings.INSTRUCTION, length)
            terms = torch.cat([inner[..., None], a[:, None, start:end] * b.T[None, :, start:end]], -1)
            largest = terms.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
            kept = torch.exp2(torch.floor(torch.log2(largest))) * roundings.BEHIND
            inner = (torch.trunc(terms / kept) * kept).sum(-1)
        total = total + inner.float()
    return total.to(torch.bfloat16)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 404, 48), (64, 48, 2048), (32, 48, 4096)])
def test_products_of_8_bits_are_cut_and_a_lost_one_fails(m: int, n: int, k: int) -> None:
    check = asked(product(m, n, k))
    worst = check.ours([multiply(check, k)])
    assert 0 < worst < 1
    check.on_tensor_cores, check.wide = False, None
    check.inside = None
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([multiply(check, k)])
    check = asked(product(m, n, k))
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([multiply(check, k - 1)])


def test_parts_of_heads_and_sequences_have_the_bound_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = load_torch()
    random = torch.Generator().manual_seed(1)
    shapes = (3, 6, 5, 16), (3, 2, 9, 16), (3, 2, 9, 16), (5, 9)
    operands = tuple(torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes)
    attributes = {"causal": True, "scale": None}
    whole = roundings.inside(torch, "attention", "bf16", attributes, operands)
    assert whole is not None
    for few in (1, 9 * 15 * 2, 9 * 15 * 5):
        monkeypatch.setattr(roundings, "SCORES", few)
        parts = roundings.inside(torch, "attention", "bf16", attributes, operands)
        assert parts is not None
        assert torch.allclose(parts.deviation, whole.deviation, rtol=2.0**-40)
        assert torch.allclose(parts.most, whole.most, rtol=2.0**-40)
    assert bool((whole.deviation <= whole.most * (1 + 2.0**-40)).all())
    cache = (*operands[:3], torch.tensor(6))
    filled = (operands[0], operands[1][:, :, :6], operands[2][:, :, :6])
    found = roundings.inside(torch, "cached_attention", "f16", attributes, cache)
    wanted = roundings.inside(torch, "attention", "f16", attributes, filled)
    assert found is not None
    assert wanted is not None
    assert torch.allclose(found.deviation, wanted.deviation, rtol=2.0**-40)


def test_steps_that_round_an_element_far_above_the_others_pass() -> None:
    """Two steps round it by a unit each; their draws may cancel, and others are too small to count."""
    builder, torch = Builder(), load_torch()
    x = builder.argument((1, 4096, 3), "bf16", unit)
    builder.do("erf", builder.do("softmax_safe", x, axis=1))
    check = asked(builder.program("op", "softmax_safe > erf", "bf16"))
    wide = torch.erf(torch.softmax(check.side.tensors[0].double(), 1))
    check.ours([(wide * (1 + 2 * UNIT["bf16"])).to(torch.float64)])
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([(wide * (1 + 2 * UNIT["bf16"])).roll(1, 1)])


def chained(check: Check, split: int = 1) -> Any:
    """Attention in f32, scores by chains of multiply-adds, in `split` parts of the head that are added at the end."""
    torch = load_torch()
    q, k, v = check.side.tensors
    k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], 1) for one in (k, v))
    parts = torch.zeros((split, *q.shape[:3], k.shape[2]), dtype=torch.float64)
    for at in range(q.shape[3]):
        terms = q[..., at, None].double() * k[:, :, None, :, at].double()
        parts[at % split] = (parts[at % split] + terms).float().double()
    scores = parts.sum(0).float() / math.sqrt(q.shape[3])
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize(("head", "keys"), [(2303, 5), (2303, 64), (64, 300)])
def test_scores_of_long_heads_are_off_by_their_chains(head: int, keys: int) -> None:
    """A long head was taken for as many steps as an element of the result has, which are few."""
    check = asked(attention("f32", (2, 2, 32, head), (2, 1, keys, head)))
    given = chained(check)
    assert 0 < check.ours([given]) < 1
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([given * (1 + 2.0**-14)])

    def without_last() -> Any:
        check.side.tensors[1][..., -1] = 0.0
        return chained(check)

    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([without_last()])


def test_shares_far_above_the_others_are_off_by_more_than_one_rounding() -> None:
    """Differences to the maximum, exp, sum and quotient round, each by a part of the share itself."""
    builder, torch = Builder(), load_torch()
    x = builder.argument((5, 126467), "f32", lambda rng, shape, dtype: 10 * unit(rng, shape, dtype))
    builder.do("softmax_safe", x, axis=1)
    check = asked(builder.program("op", "softmax_safe", "f32"))
    wide = torch.softmax(check.side.tensors[0].double(), 1)
    check.ours([wide * (1 + 3.5 * UNIT["f32"])])
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([wide * (1 + 40 * UNIT["f32"])])


def test_elements_in_which_terms_cancel_are_off_by_what_their_row_is() -> None:
    """Rotary rounds keys, and the first rows of a causal mask see few: one draw may miss what that moves them by."""
    builder, torch = Builder(), load_torch()
    q = builder.argument((1, 1, 64, 16), "f16", unit)
    angles = [builder.argument((64, 8), "f16", unit) for _ in range(2)]
    turned = builder.do("rotary", q, *angles)
    builder.do("attention", turned, turned, q, causal=True)
    check = asked(builder.program("op", "rotary > attention", "f16"))
    (wide,) = check._expected()  # pyright: ignore[reportPrivateUsage]
    rows = (wide**2).mean(-1, keepdim=True).sqrt()
    check.spread = [0.0 * part for part in check.spread]
    check.ours([wide + 2 * UNIT["f16"] * rows])
    with pytest.raises(ArithmeticError, match="wrong"):
        check.ours([wide + 64 * UNIT["f16"] * rows])
    assert torch.isfinite(wide).all()
