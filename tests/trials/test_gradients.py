"""The first programs of the trial of derivatives, that they are of many kinds, and that a wrong rule would be told."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.ir.graph.derivatives import reduce
from tessera.ir.graph.transforms.tape_builder import load_rule
from tests.fuzz.differentiable import DEPTH, differentiable_program
from tests.trials import gradients

PROGRAMS, BATCH = 6, 3


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_gradients_agree(first: int) -> None:
    """With JAX where it is installed, and with central differences where it is not."""
    record = gradients.run("grad", range(first, first + BATCH))
    assert record["failures"] == []
    assert record["results"] == {"agreed": BATCH}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jvp", "vmap", "second"])
def test_other_derivatives_agree(mode: str) -> None:
    assert gradients.run(mode, range(30, 32))["failures"] == []


def test_programs_are_deep_and_of_many_kinds() -> None:
    programs = [differentiable_program(seed) for seed in range(300)]
    assert all(program.depth >= DEPTH for program in programs)
    text = "\n".join(program.text for program in programs)
    wanted = (
        "ts.cond", "ts.scan", "ts.fori_loop", "reverse=True", "ts.grad", "ts.jvp", "ts.vmap", "ts.checkpoint",
        "mix(", "grow(", "ruled_product(", "ruled_bend(", ".at[", "take(", "topk(",
        "ops.sort", "ops.cumprod", "ops.einsum", "ops.layernorm", "ops.cross_entropy", "'drop'", "ops.prod", "[::2]",
        "ops.pad", "ops.where", "stop_gradient",
    )  # fmt: skip
    assert [word for word in wanted if word not in text] == []


def test_a_wrong_rule_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax whose derivative lacks a term."""

    def wrong(b: Any, op: Any) -> Any:
        return b.emit("mul", op.tangents[0], op.results[0])

    monkeypatch.setattr(reduce, "softmax_jvp", wrong)
    load_rule.cache_clear()
    try:
        programs = map(differentiable_program, range(400))
        small = next(one for one in programs if "v0 = (ops.softmax(" in one.text).with_outputs("v0")
        assert "differ" in gradients.fails(small, "grad")
    finally:
        monkeypatch.undo()
        load_rule.cache_clear()
    assert gradients.fails(small, "grad") == ""
